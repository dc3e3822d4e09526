// One island: a disk that survives, and an agent process that may die, with the real core and the real sync engine on a simulated disk and
// a simulated link. Its trainer is a small one that does real arithmetic on a few numbers.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/core/core.hpp"
#include "agent/engine/sync_engine.hpp"
#include "agent/island_link/round_orders.hpp"
#include "strategies/composition.hpp"
#include "tests/sim/checkers.hpp"
#include "tests/sim/clock.hpp"
#include "transport/simulated/simulated_disk.hpp"

namespace atl::sim {

class Cluster;

struct TrainerState {
  Vector parameters;  // fragment after fragment
  Step step;
  std::uint64_t position = 0;
  Vector start;                             // the parameters as they were loaded or merged last, and the fragments
  std::set<std::uint32_t> unsaid;           // that were not published since
  std::vector<std::uint64_t> published_at;  // by fragment: position of the last publish
  Trained trained;                          // since it was loaded
};

struct Trainer {
  std::uint64_t incarnation = 0;
  bool up = false;
  bool stepping = false;
  std::uint32_t part = 0;
  TrainerState state;
  Step until;
  Step stood_at;  // where it was loaded or resumed
  Step skip_to;
  std::optional<Round> last;   // finish: save after its merge
  bool finishing_now = false;  // finish: its publish and merge are due as soon as the step under way is done
  island_link::RoundOrders<agent::PublishOrder, agent::MergeOrder> orders;
  std::optional<agent::MergeOrder> awaited;  // waits for its result
  std::set<std::pair<Round, std::uint32_t>> results;
  Vector gradient;  // of the step under way, where gradients are exchanged
  std::uint64_t loads = 0;
  DataShare share;
  std::optional<agent::StartTrainer> starting;  // until the arena is prepared
  std::optional<agent::LoadTrainer> loading;    // until the arena is filled
  TimePoint saving_until{};                     // it writes its state beside its steps
};

struct TaskInHand {
  RunId run;
  std::uint64_t start = 0;
  std::string task;
  std::uint64_t step = 0;
  std::uint64_t steps = 0;
  std::uint64_t save_every = 0;
  Digest history;
};

struct Process {
  Process(agent::Identity identity, const agent::Settings& settings, std::vector<agent::StoredRun> stored, TimePoint now,
          const Clock& its_clock)
      : core(std::move(identity), settings, std::move(stored), its_clock.at(now)), clock(its_clock) {}
  agent::Core core;
  std::uint64_t boot = 0;
  Clock clock;
  BulkLink* link = nullptr;  // of the engine
  std::unique_ptr<agent::SyncEngine> engine;
  std::deque<std::function<bool()>> beside;  // what the agent's other thread would do, in half of the processes
  TimePoint engine_free;
  std::optional<TimePoint> engine_timer;
  RunId run;  // of rounds, that is open
  RunSpec spec;
  Composition composition;
  std::vector<island_link::Fragment> fragments;  // in the arena
  std::span<float> arena;
  Trainer trainer;
  TimePoint trainer_free;
  std::map<Round, Trained> published;                 // what the trainer's contributions hold
  std::map<std::uint32_t, Trained> newest_published;  // by fragment; and its trainer's parameters
  std::map<std::uint32_t, Vector> newest_parameters;  // by fragment
  std::map<Round, Vector> formed_from;  // what the engine's contributions are formed from; the trainer may have published anew
  std::map<Round, Vector> moved;        // what the trainer's contributions are, where a merge keeps nothing of its parameters
  std::optional<TaskInHand> task;
  std::optional<TimePoint> timer;
  Wakes wakes;
};

class IslandHost {
 public:
  IslandHost(Cluster& cluster, std::size_t index);
  ~IslandHost();
  IslandHost(const IslandHost&) = delete;
  IslandHost& operator=(const IslandHost&) = delete;

  [[nodiscard]] const IslandId& id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] bool up() const { return process_ != nullptr; }
  [[nodiscard]] bool trainer_up() const { return process_ && process_->trainer.up; }
  [[nodiscard]] std::uint64_t boot() const { return process_->boot; }
  // The run that is open in its engine; null: none.
  [[nodiscard]] const IslandRun* open_run(const RunId& run) const;
  // Its checkpoints of a run, oldest first, as an agent that starts finds them.
  [[nodiscard]] std::vector<agent::StoredCheckpoint> stored(const RunId& run) const;
  // The rounds in flight that a checkpoint holds.
  [[nodiscard]] std::size_t pending_in(const RunId& run, Round checkpoint) const;
  [[nodiscard]] bool holds_content(const RunId& run, const Digest& digest) const;
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  // Tokens behind all that its trainers have published.
  [[nodiscard]] std::uint64_t tokens_published() const { return tokens_published_; }
  // Results that its trainers have taken over.
  [[nodiscard]] std::uint64_t results_taken() const { return results_taken_; }
  // What its trainer was told of the run's committed tokens, in order.
  [[nodiscard]] const std::vector<agent::TellTokens>& tokens_told() const { return tokens_told_; }
  [[nodiscard]] std::size_t trainer_starts() const { return trainer_starts_; }
  void start();
  // What it says of itself when it is started again.
  void set_address(const std::string& address) { address_ = address; }
  [[nodiscard]] const std::string& address() const { return address_; }
  // From now on that island gives it something else than the others, where those read the same.
  void deceive_by(const IslandId& other) { deceived_by_.insert(other); }
  void crash();
  void crash_trainer();
  void leave();
  void lose_disk();
  // What was not made durable when the process died is gone, or torn.
  void lose_power();
  void fill_disk(Duration length);
  void flip_bits_on_disk();
  void set_slow(bool slow) { slow_ = slow; }
  // So long every further trainer takes until it is ready: an interpreter, a compiler, large data.
  void set_trainer_start(Duration length) { trainer_start_ = length; }
  void set_other_initial(bool other) { other_initial_ = other; }
  void set_data_refused(bool refused) { data_refused_ = refused; }
  // Its trainer says of what it publishes that it is another fragment.
  void misname_fragments() { misnames_fragments_ = true; }
  void spoil_next_contribution() { spoil_ = true; }
  void explode_next_contribution() { explode_ = true; }
  // Its trainer says that the model is good enough.
  void call_good_enough(const std::string& why) { feed(agent::TrainerSaid{process_->run, process_->trainer.incarnation, {}, why}); }
  void feed(const agent::Event& event);
  void from_coordinator(std::uint64_t boot, const Message& message);
  // Something has come over its link.
  void receive();

 private:
  [[nodiscard]] TimePoint now() const;  // by the clock of its process
  void pump();
  void arm();
  void carry_out(const agent::Effect& effect);
  void on_engine(Duration delay, std::function<void()> what);
  void on_trainer(Duration delay, std::function<void()> what);
  [[nodiscard]] DiskPath runs() const { return DiskPath(disk_) / "runs"; }

  // ---- island_engine.cpp
  void open_engine();
  void order(const agent::EngineCommand& command);
  void work_beside();
  void turn_engine();
  void arm_engine();
  void listen();
  void hear(const agent::ArenaPrepared& answer);
  void hear(const agent::ArenaFilled& answer);

  // ---- island_watch.cpp: what the checkers see of the engine
  void before(const agent::EngineCommand& command);
  void after(const agent::Event& event);
  void saw_contribution(const IslandRun& run, Round round, const ContributionFacts* facts);
  void saw_state(const IslandRun& run);
  [[nodiscard]] Checkers& checkers(const RunId& run) const;

  // ---- island_trainer.cpp
  void start_trainer(const agent::StartTrainer& effect);
  void trainer_is_ready(const agent::StartTrainer& effect);
  void deal_data(const agent::DealData& effect);
  void load_trainer(const agent::LoadTrainer& effect);
  void plan_trainer(const agent::PlanTrainer& effect);
  void finish_trainer(const agent::FinishTrainer& effect);
  void skip_trainer(const agent::SkipTrainer& effect);
  void form_initial_state(const agent::FormInitialState& effect);
  void advance_trainer();
  bool take_order(Step step);
  void publish(const agent::PublishOrder& order);
  void take_result(const agent::MergeOrder& order);
  void begin_step();
  void inner_step();
  [[nodiscard]] std::optional<std::string> save_trainer(Round round, const TrainerState& state);  // or why not
  void save_beside(Round round);
  [[nodiscard]] std::optional<TrainerState> saved_trainer(const RunId& run, Round round) const;
  [[nodiscard]] bool gradients() const { return process_->composition.payload == PayloadKind::gradient; }
  [[nodiscard]] std::span<float> in_arena(std::uint32_t fragment) const;
  [[nodiscard]] std::span<float> range(Vector& vector, std::uint32_t fragment) const;

  // ---- island_tasks.cpp
  void on_task(Duration delay, std::function<void()> what);
  void start_task(const agent::StartTask& effect);
  [[nodiscard]] bool find_place(TaskInHand& task, const agent::StartTask& effect) const;
  void stop_task();
  void task_step();
  void write_task(const TaskInHand& task, bool done);
  bool crash_task();

  Cluster& cluster_;
  std::size_t index_;
  std::string name_;
  std::string key_;
  IslandId id_;
  std::shared_ptr<SimulatedDisk> disk_ = std::make_shared<SimulatedDisk>();
  std::unique_ptr<Process> process_;
  std::uint64_t boots_ = 0;
  std::uint64_t disks_ = 0;                  // that were lost
  Generation met_;                           // the newest of the coordinator that it has met, on its disk
  std::vector<TrainerState> saved_;          // a file holds the place here
  std::map<Digest, Trained> contributions_;  // what those that it formed hold, by their bytes and round
  struct Applying {
    Round from;
    Round to;
    Digest digest;
  };
  std::optional<Applying> applying_;  // what the engine is about to do, and
  std::function<void()> decided_;     // what is to be told of a pair then
  std::uint64_t steps_ = 0;
  std::uint64_t tokens_published_ = 0;
  std::uint64_t results_taken_ = 0;
  std::vector<agent::TellTokens> tokens_told_;
  std::size_t trainer_starts_ = 0;
  std::string address_;
  bool other_initial_ = false;
  bool data_refused_ = false;
  bool misnames_fragments_ = false;
  bool spoil_ = false;
  bool explode_ = false;
  bool slow_ = false;                      // each step takes seconds
  std::optional<Duration> trainer_start_;  // nothing: drawn
  TimePoint disk_full_until_;
  std::set<IslandId> deceived_by_;
};

// The name of a simulated island.
std::string name_of(const IslandId& island);

}  // namespace atl::sim
