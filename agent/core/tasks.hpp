// An island's part in a run of phases: its newest assignment, carried out, and how that stands.
//
// An Assignment is all that the island has to do, and an AssignmentReport all that it has done, so either may be lost or repeated. Content
// (results, and what tasks are continued from) is fetched by its digest from any island that has it; a task starts when its inputs are
// here. Nothing is said before what lies on the disk is known.
// Threads: owned by one Core.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>

#include "agent/core/event.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/readers.hpp"
#include "agent/core/settings.hpp"
#include "agent/core/stored_runs.hpp"
#include "strategies/specification/run_spec.hpp"

namespace atl::agent {

class Tasks {
 public:
  // Asks for what lies on the disk. settings and out outlive it.
  Tasks(RunId run, RunSpec spec, const Settings& settings, Outbox& out);

  [[nodiscard]] const RunId& run() const { return report_.run; }
  [[nodiscard]] Epoch epoch() const { return assignment_.epoch; }
  // Of the newest assignment.
  [[nodiscard]] std::uint64_t number() const { return assignment_.number; }
  [[nodiscard]] const AssignmentReport& report() const { return report_; }
  [[nodiscard]] const Readers& readers() const { return readers_; }

  // A newer assignment of the run.
  void take(const Assignment& message);
  // Fetches what is missing, and starts the task once all that it needs is here. Called after everything that happens.
  void drive(TimePoint now, const StoredRuns& stored, Starts& starts);
  // How it stands, to the coordinator; nothing before it is welcomed.
  void say();
  // Ends what runs. It is said no more.
  void stop(const std::string& why);
  void heed(const Serve& message);

  void on(const TaskProgressed& event);
  void on(const TaskWrote& event);
  // Said once.
  void on(const TaskDrew& event);
  // An error: the island cannot take part in this run.
  [[nodiscard]] std::optional<Error> on(const TaskEnded& event, TimePoint now);
  void on(const ContentHeld& event);
  void on(const ContentOpened& event);
  void on(const ContentMissed& event, TimePoint now);

  // What the island did in a group's run that is over counts in this run.
  void add_group_work(const IslandReport& group);
  // For the heartbeat. group: of the run in which the island trains the task's expert with others at the moment.
  [[nodiscard]] IslandReport island_report(const std::optional<IslandReport>& group) const;

  [[nodiscard]] std::optional<TimePoint> next_deadline() const;

 private:
  struct GroupWork {
    double compute_seconds = 0;
    double wait_seconds = 0;
    std::uint64_t bytes_sent = 0;
    std::uint64_t bytes_received = 0;
  };

  void want(const Assignment& message);
  void drop(const Assignment& message);
  void forget_task(const std::string& task);
  [[nodiscard]] bool fetch_missing(TimePoint now);
  [[nodiscard]] std::optional<Round> saved_by_group(const StoredRuns& stored) const;
  void begin_task(const StoredRuns& stored, Starts& starts);
  void note_checkpoint(const ContentHeld& event);

  const Settings* settings_;
  Outbox* out_;
  RunSpec spec_;
  Assignment assignment_;
  AssignmentReport report_;               // said with every heartbeat and whenever it changes
  std::map<Digest, std::uint64_t> held_;  // bytes
  std::map<Digest, TimePoint> fetching_;  // under way, or to be tried again at that time; nothing before what lies here is known
  std::set<Digest> wanted_;               // by the newest assignment
  Readers readers_;                       // besides the members
  std::uint64_t start_ = 0;               // of the task that runs, or ran last
  bool opened_ = false;                   // what lies on the disk is known
  bool running_ = false;
  std::size_t adopting_ = 0;  // orders to adopt that are not answered
  unsigned crashes_ = 0;
  std::optional<TimePoint> restart_at_;
  double compute_before_ = 0;  // of earlier starts
  GroupWork group_work_;       // of groups whose rounds are over
};

}  // namespace atl::agent
