// The sync engine: the island's part in rounds. It forms contributions, exchanges them, takes the outer steps, writes and reads
// checkpoints, serves them and catches up: all on one thread of its own, so that nothing of it keeps the agent from its heartbeats.
//
// Commands go in by `post`, in order; answers come out by `take_answer`, `fd` being readable while there are some. Exchange and
// catch-up run beside the commands: the thread sleeps in one poll over the command queue and the bulk link.
// Memory beyond the trainer, for N parameters: at most 16N bytes (outer parameters 4, momentum 4, arena 4, what was received 4).
// Threads: `post`, `take_answer` and `traffic` from any; the link and the runs belong to the engine's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "agent/engine/engine_command.hpp"
#include "agent/engine/island_run.hpp"
#include "agent/engine/span_log.hpp"
#include "agent/faults/rehearsal.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/bulk_link.hpp"

namespace atl::agent {

struct EngineSettings {
  IslandId self;
  DiskPath runs;  // STATE/runs, confined to it
  MakeArena make_arena;
  Duration stall_after = std::chrono::seconds(20);  // an exchange in which a peer delivers nothing for so long has failed
  std::shared_ptr<SpanLog> spans;                   // where its time went; empty: not kept
  std::shared_ptr<Rehearsal> rehearsal;             // of faults; empty: none, the rule
  std::uint64_t kept_results_bytes = 16ULL << 30;   // on disk, for joiners; the oldest go first
};

class SyncEngine {
 public:
  // Takes the link over and starts the thread. Errors: io.
  static Result<std::unique_ptr<SyncEngine>> start(EngineSettings settings, std::unique_ptr<BulkLink> link);
  // Ends what is under way; queued commands are dropped.
  ~SyncEngine();
  SyncEngine(const SyncEngine&) = delete;
  SyncEngine& operator=(const SyncEngine&) = delete;

  void post(EngineCommand command);
  std::optional<EngineAnswer> take_answer();
  [[nodiscard]] int fd() const;
  // Until everything posted so far has been carried out, at most so long; false if not.
  bool drain(Duration at_most);

 private:
  struct State;
  explicit SyncEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atl::agent
