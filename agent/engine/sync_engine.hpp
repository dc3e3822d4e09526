// The sync engine: the island's part in rounds. It forms contributions, exchanges them, takes the outer steps, writes and reads
// checkpoints, serves them and catches up.
//
// A state machine over a clock, a disk and a link that it is given: commands are carried out in order by `step`, `turn` goes on with what
// is under way beside them (exchanges, catching up, fetches), and answers come out of both. It has no thread and sleeps nowhere, so that
// agent/service/engine_thread.hpp drives it with real ones, and the simulator with simulated ones.
// Memory beyond the trainer, for N parameters: at most 16N bytes (outer parameters 4, momentum 4, or 2 in bf16, arena 4, what was received
// 4), and `link_memory_bytes`.
// Threads: one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/engine/engine_command.hpp"
#include "agent/engine/island_run.hpp"
#include "agent/engine/pair_round.hpp"
#include "agent/engine/span_log.hpp"
#include "agent/faults/rehearsal.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/exchange_grid.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/in_parts.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/bulk_link.hpp"
#include "transport/bulk/link_memory.hpp"

namespace atl::agent {

struct EngineSettings {
  IslandId self;
  std::function<TimePoint()> clock = [] { return now(); };
  DiskPath runs;  // STATE/runs
  MakeArena make_arena;
  Duration stall_after = std::chrono::seconds(20);   // an exchange in which a peer delivers nothing for so long has failed
  bool probe_paths = false;                          // to see whether data come from each peer, and say so
  std::shared_ptr<SpanLog> spans;                    // where its time went; empty: not kept
  std::shared_ptr<Rehearsal> rehearsal;              // of faults; empty: none, the rule
  std::uint64_t kept_results_bytes = 16ULL << 30;    // on disk, for joiners; the oldest go first
  std::uint64_t link_memory_bytes = kLinkMemory;     // for pieces on their way (link_memory.hpp)
  std::size_t one_level_members = kOneLevelMembers;  // beyond so many an exchange has two levels; the same on all islands
  // Calls this again and again, until it returns false, while the engine goes on: the writing of checkpoints. Empty: the engine does it.
  std::function<void(std::function<bool()>)> beside = {};
  SnapshotTerms snapshots = {};
  InParts in_parts = one_after_another;  // digests and outer steps of large fragments
  bool check_arena = false;              // trainers that write there out of turn are told (arena_watch.hpp)
};

class SyncEngine {
 public:
  SyncEngine(EngineSettings settings, std::unique_ptr<BulkLink> link);
  // Ends what is under way.
  ~SyncEngine();
  SyncEngine(const SyncEngine&) = delete;
  SyncEngine& operator=(const SyncEngine&) = delete;

  // Carries a command out.
  void step(const EngineCommand& command);
  // Takes some of what came over the link, and goes on with what is under way. True: there is more to do at once.
  bool turn();
  std::vector<EngineAnswer> take_answers();
  // When `turn` is due though nothing comes; nothing: not before a command.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  // Readable while something has come; -1 on a simulated link.
  [[nodiscard]] int pollable_fd() const;
  // Pieces that left over the link so far, whoever reads them.
  [[nodiscard]] std::uint64_t pieces_sent() const;
  // A run that is open, and its round of a pair that is under way, to look at.
  [[nodiscard]] const IslandRun* run(const RunId& run) const;
  [[nodiscard]] const PairRound* pair(const RunId& run, Round round) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::agent
