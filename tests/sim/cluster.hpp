// A whole cluster in one thread on virtual time: a coordinator and up to eight islands with their real cores, over a network that loses,
// delays, repeats and replays; with disks that keep what was made durable, and processes that die at any instant.
//
// Sync engines and trainers are small stand-ins that do real arithmetic (strategies/) on vectors of a few numbers, so that checkers can
// recompute every result.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core.hpp"
#include "tests/sim/checkers.hpp"
#include "tests/sim/island_host.hpp"
#include "tests/sim/scenario.hpp"
#include "tests/sim/timeline.hpp"

namespace atl::sim {

// What the coordinator made durable.
struct Ledger {
  std::map<RunId, coordinator::RunRecord> runs;
  std::map<std::pair<RunId, IslandId>, coordinator::SeatRecord> seats;
  std::map<RunId, coordinator::MembershipRecord> memberships;
  std::map<IslandId, coordinator::IslandRecord> islands;
  std::map<std::tuple<RunId, std::uint32_t, Round>, coordinator::RoundRecord> rounds;
  std::map<std::pair<RunId, std::uint32_t>, coordinator::PartRecord> parts;
  std::map<std::string, std::size_t> events;  // by kind

  void apply(const std::vector<coordinator::Record>& records);
  [[nodiscard]] coordinator::Recovered recovered() const;
};

class Cluster {
 public:
  explicit Cluster(const Scenario& scenario);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Trouble, then healing, then until the run is over. The first thing that went wrong; empty: nothing.
  std::string run();

  // ---- single steps, for tests of one story
  void start();
  void run_for(Duration duration);
  // Until the run has this state or has committed that round; false if patience ends first.
  bool run_until_committed(Round round, Duration patience);
  bool run_until_state(coordinator::RunState state, Duration patience);
  void crash_coordinator();
  void start_coordinator();
  void heal();
  Status pause();
  Status resume();
  Status drain(std::size_t index);
  // The coordinator, which must not run, starts from an older copy of its ledger.
  void start_coordinator_from(const Ledger& backup);
  void cut(const std::string& from, const std::string& to) { cuts_.insert({from, to}); }
  [[nodiscard]] std::optional<coordinator::RunView> view();
  [[nodiscard]] IslandHost& host(std::size_t index) { return *hosts_.at(index); }
  [[nodiscard]] std::size_t islands() const { return hosts_.size(); }
  [[nodiscard]] const RunId& run_id() const { return run_id_; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] Checkers& checkers() { return checkers_; }

  // ---- for hosts
  [[nodiscard]] Timeline& timeline() { return timeline_; }
  [[nodiscard]] Rng& rng() { return rng_; }
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] bool troubled() const { return troubled_; }
  [[nodiscard]] bool reachable(const std::string& from, const std::string& to) const { return cuts_.count({from, to}) == 0; }
  // Numbers the loads of all trainers.
  std::uint64_t next_load() { return ++loads_; }
  [[nodiscard]] IslandHost* find(const IslandId& island);
  // Something travels from one host to another; it may be lost, late, doubled, or come again much later.
  void carry(const std::string& from, const std::string& to, std::function<void()> deliver);
  void to_coordinator(const IslandId& from, std::uint64_t boot, const Message& message);
  Duration draw(Duration from, Duration to);
  void trace_effect(const IslandId& island, const agent::Effect& effect);

 private:
  void pump_coordinator();
  void arm_coordinator();
  void next_fault();
  void fault();
  void check_reasons();
  [[nodiscard]] bool all_copies_lost();

  Scenario scenario_;
  Schedule schedule_;
  Rng rng_;
  Timeline timeline_;
  Checkers checkers_;
  Ledger ledger_;
  std::unique_ptr<coordinator::Core> coordinator_;
  std::uint64_t coordinator_life_ = 0;
  std::optional<TimePoint> coordinator_timer_;
  std::vector<std::unique_ptr<IslandHost>> hosts_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::map<std::pair<std::string, std::string>, std::vector<std::function<void()>>> history_;
  RunId run_id_{"r-1"};
  bool troubled_ = false;
  std::uint64_t loads_ = 0;
};

}  // namespace atl::sim
