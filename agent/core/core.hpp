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
#include "agent/core/outbox.hpp"
#include "agent/core/settings.hpp"
#include "agent/core/stored_runs.hpp"

namespace atl::agent {

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
  // It belongs to a run that goes on; a paused one lets its islands go.
  [[nodiscard]] bool belongs() const;

  // The inside (agent/core/core_state.hpp).
  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace atl::agent
