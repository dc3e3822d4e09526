// The inside of the agent's core: its nouns, and the functions that lead what happens from one to the next.
//
// A noun has its own state, and nobody else sees it: Session, StoredRuns, Tasks and Departure are the agent's, and each run in hand has a
// Membership, a Lifecycle, a CommittedState, Rounds, Checkpoints and a Trainer. They do not know each other. What happens in a run its rule
// leads to them (agent/core/rules/rule.hpp); the functions here take an event to that rule, or to the agent's own nouns.
// Threads: owned by one Core.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "agent/core/core.hpp"
#include "agent/core/decide.hpp"
#include "agent/core/departure.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/past_runs.hpp"
#include "agent/core/run_in_hand.hpp"
#include "agent/core/session.hpp"
#include "agent/core/stored_runs.hpp"
#include "agent/core/tasks.hpp"

namespace atl::agent {

struct Core::State {
  State(Identity identity, Settings limits, std::vector<StoredRun> found, TimePoint start)
      : settings(limits), stored(std::move(found)), session(std::move(identity), settings, start, out), now(start), next_holds(start) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Settings settings;
  StoredRuns stored;
  PastRuns past;
  Outbox out;
  Session session;
  Starts starts;
  Departure departure;
  std::unique_ptr<RunInHand> run;
  std::vector<std::unique_ptr<RunInHand>> closed;  // in this step: what closed them may still be at work
  std::optional<Tasks> tasks;                      // of a run of phases; both only where `run` is that of a group that works for it
  TimePoint now;
  Gauges gauges;
  std::set<IslandId> neighbours;  // that the coordinator named last
  TimePoint next_holds;
  std::size_t removals = 0;  // of what lies here of runs that are over: ordered, and not done
  bool removed_some = false;
  std::set<RunId> told_kept;                   // its owner was told that they stay, though they are over
  std::map<IslandId, PathReport> tried_paths;  // to this island, as last tried: those that are broken, and from neighbours

  // ---- core.cpp: to whom an event belongs, what is said, and when
  struct Router;
  void dispatch(const Event& event);
  void on_core(const LinkUp& event);
  void on_core(const LinkDown&);
  void on_core(const FromCoordinator& event) { on_message(event.message); }
  void on_core(const Gauges& event) { gauges = event; }
  void on_core(const PathTried& event);
  // What the engine had begun for a run that is in hand no more.
  template <typename E>
  void note_stored(const E&) {}
  void note_stored(const CheckpointWritten& event);
  void on_core(const PathWatched& event);
  void on_core(const PathMeasured& event);
  void on_neighbours(const Neighbours& message);
  void on_core(const SelfChanged& event);
  void on_core(const StoredRemoved& event);
  void on_core(const CopyEnded& event) { send(event.copied); }
  void on_core(const LeaveAsked& event) { begin_leaving(event.why); }
  void on_task(const TaskEnded& event);
  void on_task(const ContentMissed& event) { tasks->on(event, now); }
  template <typename E>
  void on_task(const E& event) {
    tasks->on(event);
  }
  void on_message(const Message& message);
  void on_welcome(const Welcome& message);
  void on_refused(const Refused& message);
  void on_assignment(const Assignment& message);
  void close_tasks(const std::string& why);
  void on_time();
  void drive();
  void send(Message message) { out.send(std::move(message)); }
  void effect(Effect value) { out.effect(std::move(value)); }
  void tell(std::string level, std::string kind, std::string text);
  void say_hello();
  void say_all();  // whatever is not answered
  void beat();
  [[nodiscard]] const IslandId& island() const { return session.island(); }
  [[nodiscard]] bool in_group() const;
  [[nodiscard]] IslandReport report() const;
  [[nodiscard]] Activity activity() const;

  // ---- invitations.cpp
  void on_invite(const Invite& message);
  void open_run(const Invite& message, RunTerms terms);
  void on_invite_again(const Invite& message);

  // ---- serving.cpp
  void on_serve(const Serve& message);

  // ---- retention.cpp
  void say_holds();
  [[nodiscard]] bool in_hand(const RunId& id) const;
  void on_over(const Over& message);

  // ---- departures.cpp
  void begin_leaving(const std::string& why);
  void miss_coordinator();
  void say_leave();
  void on_release(const Release& message);
  void finish_leaving();
  [[nodiscard]] RunEnd end_of_run(const Release& message);
  void close_run(const std::string& why, RunEnd end = RunEnd::none);
  void exit(std::optional<Error> error);
};

}  // namespace atl::agent
