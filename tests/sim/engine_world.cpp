#include "tests/sim/engine_world.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "agent/engine/sync_engine.hpp"
#include "agent/storage/stored_runs.hpp"
#include "strategies/aggregate.hpp"
#include "strategies/outer_optimizer.hpp"
#include "transport/base/rng.hpp"
#include "transport/simulated/simulated_disk.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace atl::sim {
namespace {

using namespace atl::agent;
using std::chrono::milliseconds;
using std::chrono::seconds;

const RunId kRun("r-1");
constexpr Duration kPatience = seconds(180);  // virtual; more than every deadline of an engine

struct OuterValues {
  std::vector<float> parameters;
  std::vector<float> momentum;
  friend bool operator==(const OuterValues&, const OuterValues&) = default;
};

std::vector<float> copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

// One island: a disk that survives, and an agent process with a real engine that may die.
struct EngineIsland {
  Member member;
  std::shared_ptr<SimulatedDisk> disk = std::make_shared<SimulatedDisk>();
  std::unique_ptr<SyncEngine> engine;
  std::span<float> arena;
  Duration skew{};  // of its clock
  std::vector<EngineAnswer> heard;
  bool member_of_run = false;
  std::deque<std::function<bool()>> beside;  // what a thread would do

  [[nodiscard]] bool up() const { return engine != nullptr; }
  [[nodiscard]] const IslandRun& run() const { return *engine->run(kRun); }
  [[nodiscard]] OuterValues outer() const { return {copy_of(run().parameters()), run().outer().momentum()}; }
  void listen() {
    for (EngineAnswer& answer : engine->take_answers()) {
      heard.push_back(std::move(answer));
    }
  }
  void tell(const EngineCommand& command) {
    engine->step(command);
    listen();
  }
  // The first of these that was heard and not taken yet.
  template <typename Wanted>
  std::optional<Wanted> take() {
    for (auto answer = heard.begin(); answer != heard.end(); ++answer) {
      const auto* event = std::get_if<Event>(&*answer);
      if (const Wanted* found = event != nullptr ? std::get_if<Wanted>(event) : nullptr) {
        Wanted taken = *found;
        heard.erase(answer);
        return taken;
      }
    }
    return std::nullopt;
  }
};

class EngineWorld {
 public:
  EngineWorld(std::uint64_t seed, EngineWorldCounts& counts)
      : rng_(seed, stream_of("engine world")), beside_(seed, stream_of("beside")), counts_(counts), network_(seed ^ stream_of("network")) {
    spec_.strategy = named_strategy("diloco").value();
    spec_.strategy.outer_state = seed % 2 == 0 ? OuterStateFormat::bf16 : OuterStateFormat::f32;
    spec_.seed = seed;
    values_ = 2 + rng_.below(600);
    PathConditions paths;
    paths.latency = milliseconds(1 + rng_.below(80));
    paths.jitter = milliseconds(rng_.below(60));
    paths.loss = rng_.chance(0.5) ? 0.1 * rng_.uniform() : 0;
    paths.duplication = rng_.chance(0.5) ? 0.2 * rng_.uniform() : 0;
    paths.reordering = rng_.chance(0.5) ? 0.3 * rng_.uniform() : 0;
    paths.replay = rng_.chance(0.6) ? 0.3 * rng_.uniform() : 0;
    network_.set_conditions(paths);
    const std::uint64_t islands = 2 + rng_.below(4);
    for (std::uint64_t i = 0; i < islands; ++i) {
      EngineIsland& island = *islands_.emplace_back(std::make_unique<EngineIsland>());
      const std::string name = "i" + std::to_string(i);
      island.member = {IslandId(name), name, "key-" + name, "sim://" + name};
      island.skew = milliseconds(rng_.below(7'200'000)) - seconds(3600);
      members_.push_back(island.member);
    }
  }

  std::string run() {
    begin();
    const std::uint64_t rounds = 3 + rng_.below(8);
    while (failure_.empty() && committed_.value < rounds) {
      one_round();
      for (const auto& island : islands_) {
        if (failure_.empty() && !island->member_of_run && rng_.chance(0.5)) {
          come_back(*island);
        }
        if (failure_.empty() && island->member_of_run && rng_.chance(0.3)) {
          write_checkpoint(*island);
        }
      }
      if (rng_.chance(0.25)) {
        crash_one();
      }
    }
    return failure_;
  }

 private:
  void fail(const std::string& what) {
    if (failure_.empty()) {
      failure_ = what;
    }
  }

  std::vector<EngineIsland*> active() {
    std::vector<EngineIsland*> all;
    for (const auto& island : islands_) {
      if (island->member_of_run) {
        all.push_back(island.get());
      }
    }
    return all;
  }

  void start(EngineIsland& island) {
    EngineSettings settings;
    settings.self = island.member.island;
    settings.clock = [this, &island] { return network_.now() + island.skew; };
    settings.runs = DiskPath(island.disk);
    settings.make_arena = [&island](const RunId&, std::uint64_t bytes) {
      Result<island_link::Arena> arena = island_link::Arena::of_this_process(bytes);
      island.arena = arena ? arena->floats() : std::span<float>();
      return arena;
    };
    island.beside.clear();
    if (works_beside_) {
      settings.beside = [&island](std::function<bool()> some) { island.beside.push_back(std::move(some)); };
      settings.snapshots = {50 + beside_.below(400), 1 + beside_.below(5)};
    }
    island.heard.clear();
    island.engine = std::make_unique<SyncEngine>(settings, network_.bulk_link(island.member.island, std::make_shared<BlobStore>()));
    island.tell(OpenRun{kRun, spec_});
    island.tell(AllowPeers{kRun, epoch_, members_, {}});
    island_link::Manifest manifest;
    manifest.parameters.push_back({"w", {values_}, 0});
    island.tell(PrepareArena{kRun, 1, std::move(manifest)});
    island.tell(KeepResults{kRun, true});
  }

  void crash(EngineIsland& island) {
    ++counts_.crashes;
    island.engine.reset();
    island.member_of_run = false;
    epoch_ = epoch_.next();
    if (rng_.chance(0.6)) {
      island.disk->lose_power(rng_);
    }
    island.disk->set_full(false);
  }

  void crash_one() {
    const std::vector<EngineIsland*> all = active();
    if (all.size() > 1) {
      crash(*all[rng_.below(all.size())]);
    }
  }

  // Lets time pass until it is so; false if patience ends first.
  bool run_until(const std::function<bool()>& so) {
    const TimePoint end = network_.now() + kPatience;
    while (true) {
      for (const auto& island : islands_) {
        if (island->up()) {
          if (!island->beside.empty() && !island->beside.front()()) {
            island->beside.pop_front();
          }
          while (island->engine->turn()) {
          }
          island->listen();
        }
      }
      if (so()) {
        return true;
      }
      TimePoint next = network_.next_event().value_or(end);
      for (const auto& island : islands_) {
        const std::optional<TimePoint> deadline = island->up() ? island->engine->next_deadline() : std::nullopt;
        next = deadline ? std::min(next, *deadline - island->skew) : next;
      }
      if (network_.now() >= end) {
        return false;
      }
      network_.advance_to(std::min(end, std::max(next, network_.now() + milliseconds(1))));
    }
  }

  void begin() {
    for (const auto& island : islands_) {
      start(*island);
      Rng initial(spec_.seed, stream_of("initial"));
      for (std::uint64_t i = 0; i < values_; ++i) {
        island->arena[i] = static_cast<float>(initial.normal());
      }
      island->tell(FormInitialState{kRun, 1});
      const std::optional<InitialState> formed = island->take<InitialState>();
      if (!formed) {
        fail("no initial state is formed");
        return;
      }
      digests_[Round(0)] = formed->digest;
      island->member_of_run = true;
    }
    states_[Round(0)] = islands_.front()->outer();
  }

  // What each trainer made of it; the mean of it all by a loop of our own.
  std::vector<double> contribute(const std::vector<EngineIsland*>& all, const std::vector<std::uint64_t>& tokens, Round round) {
    std::vector<double> mean(values_);
    double weights = 0;
    for (const std::uint64_t count : tokens) {
      weights += static_cast<double>(count);
    }
    for (std::size_t k = 0; k < all.size(); ++k) {
      EngineIsland& island = *all[k];
      island.tell(FillArena{kRun, 1});
      for (std::uint64_t i = 0; i < values_; ++i) {
        island.arena[i] -= 0.1F * static_cast<float>(rng_.normal());
        const double made = static_cast<double>(states_.at(committed_).parameters[i] - island.arena[i]);
        mean[i] += static_cast<double>(tokens[k]) * made / weights;
      }
      island.tell(FormContribution{kRun, round});
      if (!island.take<ContributionFormed>()) {
        fail(island.member.name + " formed no contribution to round " + std::to_string(round.value));
      }
    }
    return mean;
  }

  // One round, tried until it is committed; islands die on the way.
  void one_round() {
    const Round round = committed_.next();
    std::vector<EngineIsland*> all = active();
    std::vector<std::uint64_t> tokens;
    for (std::size_t i = 0; i < all.size(); ++i) {
      tokens.push_back(i > 0 && rng_.chance(0.1) ? 0 : 1 + rng_.below(100));
    }
    std::vector<double> mean = contribute(all, tokens, round);
    std::optional<Digest> digest;
    Attempt attempt{0};
    while (failure_.empty() && !digest) {
      attempt = attempt.next();
      ++counts_.attempts;
      if (attempt.value > 12) {
        fail("round " + std::to_string(round.value) + " is tried again and again");
      }
      digest = exchange(all, tokens, round, attempt);
      if (!digest && all != active()) {  // the next attempt is of those that are left, with the contributions that they kept
        all = active();
        tokens.assign(all.size(), 1 + rng_.below(100));
        mean = retained_mean(all, tokens, round);
      }
    }
    if (failure_.empty()) {
      commit(all, round, attempt, *digest, mean);
    }
  }

  // From what the engines retain: the same as was formed, which is checked.
  std::vector<double> retained_mean(const std::vector<EngineIsland*>& all, const std::vector<std::uint64_t>& tokens, Round round) {
    std::vector<double> mean(values_);
    double weights = 0;
    for (const std::uint64_t count : tokens) {
      weights += static_cast<double>(count);
    }
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Contribution* contribution = all[k]->run().contribution(round);
      if (contribution == nullptr) {
        fail(all[k]->member.name + " lost its contribution to round " + std::to_string(round.value));
        return mean;
      }
      for (std::uint64_t i = 0; i < values_; ++i) {
        float made = 0;
        std::copy_n(contribution->encoded.bytes.begin() + static_cast<std::ptrdiff_t>(i * sizeof made), sizeof made,
                    std::as_writable_bytes(std::span(&made, 1)).begin());
        mean[i] += static_cast<double>(tokens[k]) * static_cast<double>(made) / weights;
      }
    }
    return mean;
  }

  // The digest that all told; nothing if the attempt came to nothing.
  std::optional<Digest> exchange(const std::vector<EngineIsland*>& all, const std::vector<std::uint64_t>& tokens, Round round,
                                 Attempt attempt) {
    std::vector<Member> members;
    for (EngineIsland* island : all) {
      members.push_back(island->member);
      island->heard.clear();
    }
    for (EngineIsland* island : all) {
      island->tell(BeginExchange{kRun, epoch_, round, attempt, 0, members, {tokens}});
    }
    const bool doomed = all.size() > 1 && rng_.chance(0.2);
    const TimePoint doom = network_.now() + milliseconds(rng_.below(400));
    bool broke = false;
    std::map<EngineIsland*, Digest> told;
    const bool over = run_until([&] {
      for (EngineIsland* island : all) {
        if (std::optional<ExchangeDone> done = island->take<ExchangeDone>(); done && done->attempt == attempt) {
          told[island] = done->digest;
        }
        if (std::optional<ExchangeBroke> failed = island->take<ExchangeBroke>(); failed && failed->attempt == attempt) {
          broke = true;
        }
      }
      return broke || told.size() == all.size() || (doomed && network_.now() >= doom);
    });
    if (!over) {
      fail("the exchange of round " + std::to_string(round.value) + " neither ends nor breaks");
    }
    if (told.size() == all.size()) {
      for (const auto& [island, digest] : told) {
        if (digest != told.begin()->second) {
          fail("round " + std::to_string(round.value) + ": " + island->member.name + " came to another result than the others");
        }
      }
      return told.begin()->second;
    }
    if (doomed) {
      crash_one();
    }
    for (EngineIsland* island : all) {
      if (island->up()) {
        island->tell(CancelExchange{kRun, round, attempt});
      }
    }
    return std::nullopt;
  }

  void commit(const std::vector<EngineIsland*>& all, Round round, Attempt attempt, const Digest& digest, const std::vector<double>& mean) {
    committed_ = round;
    digests_[round] = digest;
    ++counts_.rounds;
    OuterValues expected = states_.at(Round(round.value - 1));
    const std::vector<float> step(mean.begin(), mean.end());
    const Composition composition = compose(spec_.strategy).value();
    (void)outer_step(step, composition.outer, OuterState{expected.parameters, expected.momentum});
    for (EngineIsland* island : all) {
      island->tell(ApplyResult{kRun, round, attempt, 0, digest});
      const std::optional<ResultApplied> applied = island->take<ResultApplied>();
      if (!applied || applied->error) {
        fail(island->member.name + " did not apply round " + std::to_string(round.value));
        return;
      }
      const OuterValues outer = island->outer();
      states_.try_emplace(round, outer);
      check_state(*island, round, "applied");
      for (std::size_t i = 0; i < outer.parameters.size() && failure_.empty(); ++i) {
        if (std::abs(outer.parameters[i] - expected.parameters[i]) > 1e-4F) {
          fail("round " + std::to_string(round.value) + ": its result is not the mean of its members' contributions");
        }
      }
    }
  }

  void check_state(const EngineIsland& island, Round round, const std::string& how) {
    if (island.run().round() != round || island.run().digest() != digests_.at(round) || island.outer() != states_.at(round)) {
      fail(island.member.name + " " + how + " round " + std::to_string(round.value) + ", and its outer state is another than the others'");
    }
  }

  void write_checkpoint(EngineIsland& island) {
    island.disk->set_full(rng_.chance(0.1));
    island.tell(BeginCheckpoint{kRun, committed_, digests_.at(committed_)});
    island.tell(WriteCheckpoint{kRun, epoch_, committed_, digests_.at(committed_), TrainerSave::none, Step(committed_.value), 0, 2});
    island.disk->set_full(false);
    island.heard.clear();
    if (rng_.chance(0.1)) {  // a bad sector, in a checkpoint or in a result that is kept for others
      const bool result = rng_.chance(0.6) && committed_.value > 0;
      const std::string round = std::to_string(result ? 1 + rng_.below(committed_.value) : committed_.value);
      island.disk->flip_bit(result ? "r-1/results/" + round : "r-1/checkpoints/" + round + "/outer.safetensors", rng_.next_u32());
    }
  }

  // From its own checkpoint if there is one, then from the others.
  void come_back(EngineIsland& island) {
    epoch_ = epoch_.next();
    const std::vector<StoredRun> stored = stored_runs(DiskPath(island.disk));
    start(island);
    CatchUpFromPeers order;
    for (const StoredCheckpoint& checkpoint : stored.empty() ? std::vector<StoredCheckpoint>() : stored.front().checkpoints) {
      if (digests_.contains(checkpoint.round) && digests_.at(checkpoint.round) == checkpoint.digest) {
        order.own_round = checkpoint.round;
        order.own_digest = checkpoint.digest;
        order.has_state = true;
      }
    }
    if (order.has_state) {
      island.tell(LoadCheckpoint{kRun, order.own_round, order.own_digest});
      order.has_state = island.take<CheckpointLoaded>().has_value();
      ++(order.has_state ? counts_.loaded : counts_.broken);
      if (order.has_state) {
        check_state(island, order.own_round, "loaded its checkpoint of");
      }
    }
    catch_up(island, order);
  }

  void catch_up(EngineIsland& island, CatchUpFromPeers order) {
    order.order.run = kRun;
    order.order.epoch = epoch_;
    order.order.committed = committed_;
    order.order.digest = digests_.at(committed_);
    for (EngineIsland* source : active()) {
      order.order.sources.push_back(source->member);
    }
    EngineIsland& first = *active().front();
    first.tell(WriteCheckpoint{kRun, epoch_, committed_, digests_.at(committed_), TrainerSave::none, Step(committed_.value), 0, 2});
    std::optional<CheckpointWritten> written;
    if (!run_until([&] {
          do {  // older ones first
            written = first.take<CheckpointWritten>();
          } while (written && written->round != committed_);
          return written.has_value();
        })) {
      fail(first.member.name + " cannot write a checkpoint for a joiner");
      return;
    }
    order.order.checkpoint_round = committed_;
    order.order.checkpoint_file = written->file;
    order.order.checkpoint_bytes = written->file_bytes;
    island.tell(order);
    std::optional<CatchUpDone> done;
    std::optional<CatchUpBroke> broke;
    if (!run_until([&] {
          done = island.take<CatchUpDone>();
          broke = island.take<CatchUpBroke>();
          return done || broke;
        })) {
      fail(island.member.name + " neither catches up nor gives up");
    }
    if (done) {
      ++counts_.caught_up;
      check_state(island, committed_, "caught up to");
      island.member_of_run = true;
    } else {
      ++counts_.broken;
      island.engine.reset();
    }
  }

  Rng rng_;
  Rng beside_;  // in half of the worlds checkpoints are written while their engine goes on
  const bool works_beside_ = beside_.chance(0.5);
  EngineWorldCounts& counts_;
  SimulatedNetwork network_;
  RunSpec spec_;
  std::uint64_t values_ = 0;
  std::vector<std::unique_ptr<EngineIsland>> islands_;
  std::vector<Member> members_;
  Epoch epoch_{1};
  Round committed_;
  std::map<Round, Digest> digests_;  // of committed rounds
  std::map<Round, OuterValues> states_;
  std::string failure_;
};

}  // namespace

std::string run_engine_world(std::uint64_t seed, EngineWorldCounts& counts) { return EngineWorld(seed, counts).run(); }

}  // namespace atl::sim
