// One island: a disk that survives, and an agent process that may die: the real core, a stand-in sync engine and a stand-in trainer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "agent/core/core.hpp"
#include "agent/engine/pair_exchange.hpp"
#include "agent/island_link/round_orders.hpp"
#include "strategies/composition.hpp"
#include "tests/sim/checkers.hpp"
#include "tests/sim/clock.hpp"
#include "transport/base/rng.hpp"
#include "transport/bulk/blob_store.hpp"

namespace atl::sim {

class Cluster;

struct TrainerState {
  Vector parameters;
  Step step;
  std::uint64_t position = 0;
  std::vector<std::uint64_t> published_at;  // by fragment: position of the last publish
  Trained trained;                          // since it was loaded
};

// A contribution as it is retained.
struct FormedContribution {
  PendingRound facts;
  Vector values;
  Trained trained;  // what it holds, as the trainer knows it
};

struct DiskCheckpoint {
  agent::StoredCheckpoint meta;
  Vector parameters;
  Vector momentum;
  std::optional<TrainerState> trainer;
  std::vector<FormedContribution> pending;
};

struct ExchangeInHand {
  Epoch epoch;
  Attempt attempt;
  std::uint32_t fragment = 0;
  std::vector<Member> members;
  std::vector<std::uint64_t> tokens;
  std::map<IslandId, Vector> got;
  bool done = false;      // the result is there
  bool reported = false;  // with its digest, which needs the round before to be applied
  Vector result;
  Digest digest;
  TimePoint progress;
};

// A round of a pair, with the real protocol (agent/engine/pair_exchange.hpp).
struct PairInHand {
  std::unique_ptr<PairExchange> exchange;   // none: no partner
  std::optional<agent::MeetPartner> order;  // the trainer has reached the step
  bool said_ahead = false;
  std::optional<TimePoint> said_in_doubt;
  bool reported = false;
  Vector result;
  Digest digest;
};

struct Engine {
  RunSpec spec;
  Composition composition;
  bool has_state = false;
  Round round;
  Digest digest;
  Vector parameters;
  Vector momentum;
  Vector arena;
  std::map<Round, FormedContribution> contributions;
  std::map<Round, ExchangeInHand> exchanges;
  std::map<Round, Vector> kept;  // results
  std::map<Round, DiskCheckpoint> begun;
  bool keep = false;
  std::uint64_t catch_up = 0;  // the newest order
  std::map<Round, PairInHand> pairs;
  std::unique_ptr<BlobStore> store = std::make_unique<BlobStore>();
  bool polling = false;  // the pairs
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
  std::set<Round> results;
  Vector gradient;  // of the step under way, where gradients are exchanged
  std::uint64_t loads = 0;
};

// Of a run of phases: something on an island's disk, named by its digest.
struct ShelfItem {
  std::string task;
  std::uint64_t step = 0;
  Digest history;  // of all steps up to there; its name, too
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
  RunId run;
  std::optional<Engine> engine;
  std::uint64_t engines = 0;  // opened so far
  Trainer trainer;
  TimePoint engine_free;
  TimePoint trainer_free;
  std::map<Round, TrainerState> saved;
  std::map<Round, Trained> published;  // what the trainer's contributions hold
  std::optional<TaskInHand> task;
  std::map<std::string, ShelfItem> written;  // by path; not adopted yet
  std::set<Digest> fetches;                  // of content, under way
  std::optional<TimePoint> timer;
  Wakes wakes;
  Clock clock;
};

class IslandHost {
 public:
  IslandHost(Cluster& cluster, std::size_t index);

  [[nodiscard]] const IslandId& id() const { return id_; }
  [[nodiscard]] const std::string& key() const { return key_; }
  [[nodiscard]] bool up() const { return process_ != nullptr; }
  [[nodiscard]] Process* process() { return process_.get(); }
  void start();
  void crash();
  void crash_trainer();
  void leave();
  void lose_disk();
  void set_slow(bool slow) { slow_ = slow; }
  void feed(const agent::Event& event);
  void from_coordinator(std::uint64_t boot, const Message& message);
  [[nodiscard]] const std::map<RunId, std::vector<DiskCheckpoint>>& disk() const { return disk_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }
  [[nodiscard]] std::size_t trainer_starts() const { return trainer_starts_; }
  void set_other_initial(bool other) { other_initial_ = other; }
  void set_data_refused(bool refused) { data_refused_ = refused; }
  void spoil_next_contribution() { spoil_ = true; }
  void explode_next_contribution() { explode_ = true; }
  void flip_bits_on_disk() { flipped_ = true; }
  void fill_disk(Duration length);

 private:
  [[nodiscard]] TimePoint now() const;  // by the clock of its process
  void pump();
  void arm();
  void carry_out(const agent::Effect& effect);
  template <typename F>
  void on_engine(Duration delay, F what);
  template <typename F>
  void on_trainer(Duration delay, F what);

  void start_trainer(const agent::StartTrainer& effect);
  void load_trainer(const agent::LoadTrainer& effect);
  void finish_trainer(const agent::FinishTrainer& effect);
  void skip_trainer(const agent::SkipTrainer& effect);
  void advance_trainer();
  bool take_order(Step step);
  void publish(const agent::PublishOrder& order);
  void take_result(const agent::MergeOrder& order);
  void begin_step();
  void inner_step();
  void form(const agent::FormContribution& effect);
  void begin_exchange(const agent::BeginExchange& effect);
  std::vector<IslandId> reduce_exchange(ExchangeInHand& exchange);
  void poll_exchange(Round round, Attempt attempt);
  void take_piece(Round round, Epoch epoch, Attempt attempt, const IslandId& from, const Vector& piece);
  void report_exchanges();
  void apply(const agent::ApplyResult& effect);
  void adopt(const agent::AdoptParameters& effect);
  void begin_checkpoint(const agent::BeginCheckpoint& effect);
  [[nodiscard]] DiskCheckpoint present_state() const;
  void take_over(const DiskCheckpoint& checkpoint);
  void take_outer_step(Round round, std::uint32_t fragment, const Vector& result, const Digest& digest);

  // ---- island_pairs.cpp
  void prepare_pair(const agent::PreparePair& effect);
  void meet(const agent::MeetPartner& effect);
  void leave_pairs(const agent::LeavePairs& effect);
  void hear_of_pair(const agent::HearOfPair& effect);
  void renounce_pair(const agent::RenouncePair& effect);
  [[nodiscard]] PairExchange* exchange_of(Epoch epoch, Round round);
  void form_merge(const agent::FormMergeContribution& effect);
  void pump_pairs();
  void poll_pairs();
  [[nodiscard]] std::optional<agent::Event> decided(Round round, PairInHand& pair);
  void serve(const IslandId& reader, const Want& want);
  void receive(const IslandId& from, const StoreAnswer& answer);
  bool apply_pair(const agent::ApplyResult& effect);
  [[nodiscard]] bool own(Round round) const;
  [[nodiscard]] Digest digest_before(Round round) const;

  // ---- island_tasks.cpp
  template <typename F>
  void on_shelf(Duration delay, F what);
  void open_content(const agent::OpenContent& effect);
  void fetch_content(const agent::FetchContent& effect);
  void adopt_content(const agent::AdoptContent& effect);
  void drop_content(const agent::DropContent& effect);
  void start_task(const agent::StartTask& effect);
  void stop_task();
  void task_step();
  bool crash_task();

  void write_checkpoint(const agent::WriteCheckpoint& effect);
  void load_checkpoint(const agent::LoadCheckpoint& effect);
  void catch_up(const agent::CatchUpFromPeers& effect);
  bool copy_from(IslandHost& source, const agent::CatchUpFromPeers& effect);
  [[nodiscard]] Checkers& checkers() const;  // of the run of rounds that it serves
  [[nodiscard]] bool alone() const;
  [[nodiscard]] bool gradients() const;
  [[nodiscard]] std::uint32_t fragments() const;
  [[nodiscard]] std::span<float> range(Vector& vector, std::uint32_t fragment) const;

  Cluster& cluster_;
  std::size_t index_;
  IslandId id_;
  std::string key_;
  std::unique_ptr<Process> process_;
  std::uint64_t boots_ = 0;
  std::map<RunId, std::vector<DiskCheckpoint>> disk_;
  Generation met_;  // the newest of the coordinator that it has met, on its disk
  std::map<RunId, std::map<Digest, ShelfItem>> shelf_;
  std::uint64_t steps_ = 0;
  std::size_t trainer_starts_ = 0;
  bool other_initial_ = false;
  bool data_refused_ = false;
  bool spoil_ = false;
  bool explode_ = false;
  bool slow_ = false;  // each step takes seconds
  bool flipped_ = false;
  TimePoint disk_full_until_;
};

Digest file_digest(const DiskCheckpoint& checkpoint);

}  // namespace atl::sim
