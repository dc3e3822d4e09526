// The agent's core: what an island does at any time in its run, as a state machine without I/O.
//
// It stands between the coordinator (messages), the trainer (orders and what came of them) and the sync engine (contributions,
// exchanges, outer steps, checkpoints). The driver feeds it events and the time, then calls take_ready(), sends the messages and
// carries out the effects in order; each effect says which event answers it.
//
// The life of a run here: Invite → the outer state comes from the seed, an own checkpoint, peers, or is still in memory → active: train,
// publish, form, Ready → Exchange → Exchanged → Commit → apply, merge, go on → the last round's checkpoint → RunEnded → Release.
// What was last said and not answered is repeated, so any message may be lost; what is stale (epoch, round, attempt) is dropped.
// The trainer has orders for the rounds ahead, so it goes on until it needs a result, whether the coordinator is there or not.
//
// A group of one (`nobody`) commits its own rounds: its exchange has one member. Nothing here knows a strategy by name.
// Threads: one thread owns a core.
// Cost: a step is O(members); memory does not grow with rounds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/core/event.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// A checkpoint that lies on disk, complete.
struct StoredCheckpoint {
  Round round;
  Digest digest;
  Epoch epoch;  // in which it was written
  bool trainer_state = false;
  Step step;
  std::uint64_t position = 0;
  Digest file;
  std::uint64_t file_bytes = 0;
  std::uint32_t part = 0;  // of the data
};
struct StoredRun {
  RunId run;
  std::vector<StoredCheckpoint> checkpoints;  // by round, oldest first
};

// Who this agent is, for its hello.
struct Identity {
  IslandId island;
  std::string name;
  std::string version;
  std::uint64_t boot = 0;  // random per process start
  std::string bulk_address;
  std::string platform;
  std::vector<std::string> data_sets;
  std::uint32_t codec_version = 0;
  double uplink_bits_per_second = 0;  // its owner's budget; 0: none
  std::string kernels = {};           // what its trainers multiply matrices with, for people
};

struct Settings {
  Duration hello_again = std::chrono::seconds(1);    // until welcomed
  Duration resend = std::chrono::seconds(2);         // what is not answered is said again
  Duration restart_delay = std::chrono::seconds(1);  // of a crashed trainer; doubles with each crash
  std::uint32_t crashes = 5;                        // without a committed round, or of a task a checkpoint, in between: the island gives up
  Duration leave_limit = std::chrono::seconds(60);  // after SIGTERM, without an answer: go anyway
  std::uint64_t rounds_ahead = 2;                   // orders that the trainer has beyond the round in hand
};

// In this order.
struct Ready {
  std::vector<Message> messages;  // to the coordinator; dropped by the driver while there is no link
  std::vector<Effect> effects;
  [[nodiscard]] bool empty() const { return messages.empty() && effects.empty(); }
};

// What the island does at the moment, for logs and reports.
struct Standing {
  RunId run;          // empty: none
  std::string state;  // as IslandReport.state
  std::string reason;
  Round committed;  // newest round applied
  Digest digest;
  Epoch epoch;
  bool active = false;
};

class Core {
 public:
  Core(Identity identity, Settings settings, std::vector<StoredRun> stored, TimePoint now);
  ~Core();
  Core(Core&&) noexcept;
  Core& operator=(Core&&) noexcept;

  void step(TimePoint now, const Event& event);
  // Time has passed. Call at next_deadline(), at the latest.
  void tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;
  // Empties it.
  Ready take_ready();

  [[nodiscard]] Standing standing() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atl::agent
