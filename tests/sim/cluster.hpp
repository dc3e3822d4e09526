// A whole cluster in one thread on virtual time: a coordinator and up to sixteen islands with their real cores, over a network that loses,
// delays, reorders, repeats, replays, clogs and is cut; with disks that keep what was made durable and are full at times, clocks that are
// wrong, and processes that die at any instant.
//
// The sync engines are real, too, on simulated disks and links. Only the trainers are small ones, with a few numbers, so that checkers can
// recompute every result.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/core.hpp"
#include "tests/sim/checkers.hpp"
#include "tests/sim/clock.hpp"
#include "tests/sim/history_digest.hpp"
#include "tests/sim/island_host.hpp"
#include "tests/sim/ledger.hpp"
#include "tests/sim/scenario.hpp"
#include "tests/sim/timeline.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace atl::sim {

// The coordinator's name where ways have one; islands are "i0", "i1", …
inline const std::string kCoordinator = "coordinator";

struct LedgerCopy {
  Ledger ledger;
  EventTape tape;
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
  void revoke(std::size_t index);
  Status remove();
  // A copy of the ledger, with what its readers had heard by then.
  [[nodiscard]] LedgerCopy copy_ledger() const { return {ledger_, checkers_.tape()}; }
  // The coordinator, which must not run, starts from an older copy of its ledger: restored as such, or put in place by hand.
  void start_coordinator_from(const LedgerCopy& older, bool restored = true);
  // From now on what this island says to the coordinator is changed on its way: it lies.
  void lie(std::size_t index, std::function<void(Message&)> change) { lies_[hosts_.at(index)->id()] = std::move(change); }
  // Ways between names.
  void cut(const std::string& from, const std::string& to);
  // This address alone leads to the island's bulk link; empty: none, for it is behind a router.
  void reach_at(std::size_t island, const std::string& address) { network_.reach_at(host(island).id().text, address); }
  void join(const std::string& from, const std::string& to);
  [[nodiscard]] std::optional<coordinator::RunView> view();
  [[nodiscard]] IslandHost& host(std::size_t index) { return *hosts_.at(index); }
  [[nodiscard]] std::size_t islands() const { return hosts_.size(); }
  [[nodiscard]] const RunId& run_id() const { return run_id_; }
  [[nodiscard]] const Ledger& ledger() const { return ledger_; }
  [[nodiscard]] Checkers& checkers() { return checkers_; }
  // Virtual time since the beginning, and from healing to the next commit: none if the run was over, or paused by its user.
  [[nodiscard]] Duration elapsed() const { return timeline_.now() - begun_; }
  [[nodiscard]] std::optional<Duration> first_progress() const { return first_progress_; }
  // After healing the next round is committed within this.
  [[nodiscard]] Duration progress_bound() const;

  // ---- for hosts
  [[nodiscard]] Timeline& timeline() { return timeline_; }
  [[nodiscard]] HistoryDigest& history() { return digest_; }
  // Runs what comes next; false if there is nothing by then.
  bool run_one(TimePoint until);
  [[nodiscard]] SimulatedNetwork& network() { return network_; }
  // What a loss of power does to a disk is drawn from here.
  [[nodiscard]] Rng& power() { return power_; }
  [[nodiscard]] Rng& rng() { return rng_; }
  [[nodiscard]] const Scenario& scenario() const { return scenario_; }
  [[nodiscard]] const Schedule& schedule() const { return schedule_; }
  [[nodiscard]] bool troubled() const { return troubled_; }
  // Numbers the loads of all trainers.
  std::uint64_t next_load() { return ++loads_; }
  [[nodiscard]] IslandHost* find(const IslandId& island);
  void to_coordinator(IslandHost& from, const Message& message);
  Duration draw(Duration from, Duration to);
  // Of a process that starts now.
  Clock draw_clock();

 private:
  void pump_coordinator();
  void arm_coordinator();
  void next_fault();
  void fault();
  void large_fault();
  void isolate(const std::string& name);
  // A message travels between an island and the coordinator; it may be lost, late, doubled, or come again much later.
  void carry(const std::string& from, const std::string& to, std::function<void()> deliver);
  // How the ways between islands are now.
  void set_ways();
  void clog(const std::pair<std::string, std::string>& way, Duration length, Duration each);
  [[nodiscard]] std::string host_of(const std::string& name) const;
  void cut_for_a_while(std::vector<std::pair<std::string, std::string>> ways);
  void hear(const IslandId& from, std::uint64_t boot, const Message& message);
  void announce(const std::vector<coordinator::Outgoing>& messages, std::size_t count);
  void retry_ledger();
  [[nodiscard]] TimePoint coordinator_now() const { return coordinator_clock_.at(timeline_.now()); }
  void check_reasons();
  [[nodiscard]] bool all_copies_lost();

  Scenario scenario_;
  HistoryDigest digest_;
  Schedule schedule_;
  Rng rng_;
  Rng power_;
  Timeline timeline_;
  SimulatedNetwork network_;
  Checkers checkers_;
  Ledger ledger_;
  std::unique_ptr<coordinator::Core> coordinator_;
  std::uint64_t coordinator_life_ = 0;
  Clock coordinator_clock_;
  std::optional<TimePoint> coordinator_timer_;
  Wakes coordinator_wakes_;
  std::optional<TimePoint> ledger_full_until_;
  std::optional<coordinator::Ready> unwritten_;  // decided, and neither durable nor said: the ledger's disk is full
  std::deque<std::function<void()>> unheard_;    // came meanwhile
  TimePoint reasons_checked_;
  std::vector<std::unique_ptr<IslandHost>> hosts_;
  std::set<std::pair<std::string, std::string>> cuts_;
  struct Clog {
    TimePoint until;
    TimePoint free;   // when the next message goes
    Duration each{};  // that one message takes
  };
  std::map<std::pair<std::string, std::string>, Clog> clogs_;
  std::map<IslandId, std::function<void(Message&)>> lies_;
  std::map<std::pair<std::string, std::string>, std::vector<std::function<void()>>> history_;
  RunId run_id_{"r-1"};
  bool troubled_ = false;
  TimePoint begun_;
  std::optional<Duration> first_progress_;
  std::uint64_t loads_ = 0;
};

}  // namespace atl::sim
