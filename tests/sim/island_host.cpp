#include "tests/sim/island_host.hpp"

#include <algorithm>
#include <bit>

#include "agent/storage/content_shelf.hpp"
#include "agent/storage/durable_file.hpp"
#include "agent/storage/stored_runs.hpp"
#include "tests/sim/cluster.hpp"
#include "tests/sim/trace.hpp"
#include "transport/identity/identity.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMostIslands = 32;

std::string key_of(std::size_t index) { return "key-i" + std::to_string(index); }

template <typename T, typename... Ts>
constexpr bool is_one_of(const std::variant<Ts...>*) {
  return (std::is_same_v<T, Ts> || ...);
}
template <typename E>
constexpr bool kForEngine = is_one_of<E>(static_cast<const agent::EngineCommand*>(nullptr));

// What changes only what is remembered takes no time.
template <typename E>
constexpr bool kAtOnce =
    std::is_same_v<E, agent::OpenRun> || std::is_same_v<E, agent::CloseRun> || std::is_same_v<E, agent::AllowPeers> ||
    std::is_same_v<E, agent::TryPaths> || std::is_same_v<E, agent::CancelExchange> || std::is_same_v<E, agent::KeepResults> ||
    std::is_same_v<E, agent::LeavePairs> || std::is_same_v<E, agent::HearOfPair> || std::is_same_v<E, agent::RenouncePair>;
template <typename E>
constexpr bool kLong =
    std::is_same_v<E, agent::BeginCheckpoint> || std::is_same_v<E, agent::WriteCheckpoint> || std::is_same_v<E, agent::LoadCheckpoint> ||
    std::is_same_v<E, agent::AdoptParameters> || std::is_same_v<E, agent::AdoptContent>;

}  // namespace

std::string name_of(const IslandId& island) {
  static const std::map<IslandId, std::string> names = [] {
    std::map<IslandId, std::string> all;
    for (std::size_t i = 0; i < kMostIslands; ++i) {
      all[island_of(key_of(i))] = "i" + std::to_string(i);
    }
    return all;
  }();
  const auto found = names.find(island);
  return found == names.end() ? island.text : found->second;
}

IslandHost::IslandHost(Cluster& cluster, std::size_t index)
    : cluster_(cluster),
      index_(index),
      name_("i" + std::to_string(index)),
      key_(key_of(index)),
      id_(island_of(key_)),
      address_("sim://" + name_) {}
IslandHost::~IslandHost() = default;

const IslandRun* IslandHost::open_run(const RunId& run) const { return process_ ? process_->engine->run(run) : nullptr; }

std::vector<agent::StoredCheckpoint> IslandHost::stored(const RunId& run) const {
  for (const agent::StoredRun& stored : agent::stored_runs(runs())) {
    if (stored.run == run) {
      return stored.checkpoints;
    }
  }
  return {};
}

std::size_t IslandHost::pending_in(const RunId& run, Round checkpoint) const {
  const auto entries = (runs() / run.text / "checkpoints" / std::to_string(checkpoint.value) / kRoundsFolder).list();
  return entries ? entries->size() : 0;
}

bool IslandHost::holds_content(const RunId& run, const Digest& digest) const { return content_path(runs() / run.text, digest).exists(); }

void IslandHost::start() {
  if (process_) {
    return;
  }
  static_cast<void>(make_folders_durably(runs()));  // as an agent does that starts
  std::vector<agent::StoredRun> stored = agent::stored_runs(runs());
  const std::uint64_t boot = (index_ + 1) * 1000 + ++boots_;
  agent::Identity identity{id_, name_, "test", boot, address_, "simulated", {}};
  identity.trainers = {"own"};
  identity.generation = met_;
  // Every second island says where its state lies, and is believed at once when it comes back. The others are as agents that do not say.
  if ((cluster_.scenario().seed + index_) % 2 == 0) {
    identity.place = name_ + ", disk " + std::to_string(disks_);
  }
  process_ = std::make_unique<Process>(identity, agent::Settings{}, stored, cluster_.timeline().now(), cluster_.draw_clock());
  process_->boot = boot;
  open_engine();
  for (const agent::StoredRun& run : stored) {
    order(agent::ServeStored{run.run});
    order(agent::OpenContent{run.run});
  }
  feed(agent::LinkUp{});
}

void IslandHost::crash() { process_.reset(); }

void IslandHost::lose_disk() {
  disk_ = std::make_shared<SimulatedDisk>();
  ++disks_;
}

void IslandHost::lose_power() { disk_->lose_power(cluster_.power()); }

void IslandHost::fill_disk(Duration length) {
  disk_full_until_ = cluster_.timeline().now() + length;
  disk_->set_full(length > Duration(0));
  cluster_.timeline().after(length, [this] { disk_->set_full(cluster_.timeline().now() < disk_full_until_); });
}

// Whatever it goes on from is broken.
void IslandHost::flip_bits_on_disk() {
  for (const agent::StoredRun& run : agent::stored_runs(runs())) {
    for (const agent::StoredCheckpoint& checkpoint : run.checkpoints) {
      disk_->flip_bit("runs/" + run.run.text + "/checkpoints/" + std::to_string(checkpoint.round.value) + "/" + kOuterFile, 3000);
    }
  }
}

TimePoint IslandHost::now() const { return process_->clock.at(cluster_.timeline().now()); }

void IslandHost::leave() {
  if (process_) {
    feed(agent::LeaveAsked{"the owner asked"});
  }
}

void IslandHost::crash_trainer() {
  if (crash_task()) {
    return;
  }
  if (trainer_up()) {
    process_->trainer.up = false;
    feed(agent::TrainerExited{process_->run, process_->trainer.incarnation, false, Error{Code::internal, "killed by signal 9"}});
  }
}

void IslandHost::from_coordinator(std::uint64_t boot, const Message& message) {
  if (process_ && process_->boot == boot) {
    feed(agent::FromCoordinator{message});
  }
}

void IslandHost::feed(const agent::Event& event) {
  trace(cluster_.timeline().now(), name_, event);
  cluster_.history().add(cluster_.timeline().now(), name_, event);
  process_->core.step(now(), event);
  pump();
}

void IslandHost::pump() {
  while (process_) {
    agent::Ready ready = process_->core.take_ready();
    if (ready.empty()) {
      break;
    }
    for (const Message& message : ready.messages) {
      cluster_.to_coordinator(*this, message);
    }
    for (const agent::Effect& effect : ready.effects) {
      if (std::holds_alternative<agent::Exit>(effect)) {
        crash();
        cluster_.timeline().after(std::chrono::seconds(3), [this] { start(); });
        return;
      }
      carry_out(effect);
    }
  }
  if (process_) {
    arm();
  }
}

void IslandHost::arm() {
  std::optional<TimePoint> next = process_->core.next_deadline();
  if (next) {
    next = process_->clock.when(*next);
  }
  if (!next || (process_->timer && *process_->timer <= *next && *process_->timer > cluster_.timeline().now())) {
    return;
  }
  process_->timer = std::max(*next, cluster_.timeline().now() + milliseconds(1));
  cluster_.timeline().at(*process_->timer, [this, boot = process_->boot, time = *process_->timer] {
    if (process_ && process_->boot == boot && process_->timer == time) {
      process_->timer.reset();
      if (process_->wakes.count(cluster_.timeline().now())) {
        cluster_.checkers().fail("the agent of " + name_ + " wakes again and again");
      }
      process_->core.tick(now());
      pump();
    }
  });
}

// The engine does one thing after the other; so does the trainer host.
void IslandHost::on_engine(Duration delay, std::function<void()> what) {
  process_->engine_free = std::max(process_->engine_free, cluster_.timeline().now()) + delay;
  cluster_.timeline().at(process_->engine_free, [this, boot = process_->boot, what = std::move(what)] {
    if (process_ && process_->boot == boot) {
      what();
    }
  });
}

void IslandHost::on_trainer(Duration delay, std::function<void()> what) {
  process_->trainer_free = std::max(process_->trainer_free, cluster_.timeline().now()) + delay;
  cluster_.timeline().at(process_->trainer_free,
                         [this, boot = process_->boot, incarnation = process_->trainer.incarnation, what = std::move(what)] {
                           if (process_ && process_->boot == boot && process_->trainer.incarnation == incarnation) {
                             what();
                           }
                         });
}

void IslandHost::carry_out(const agent::Effect& effect) {
  trace(cluster_.timeline().now(), name_, effect);
  cluster_.history().add(cluster_.timeline().now(), name_, effect);
  const Duration quick = cluster_.draw(milliseconds(1), milliseconds(20));
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, agent::OpenRun>) {
          process_->run = e.run;
          process_->spec = e.spec;
          process_->composition = compose(e.spec.strategy).value();
        } else if constexpr (std::is_same_v<E, agent::CloseRun>) {
          process_->trainer.up = false;
          process_->run = RunId{};
        }
        if constexpr (std::is_same_v<E, agent::FormInitialState>) {
          on_trainer(quick, [this, e] { form_initial_state(e); });
        } else if constexpr (kForEngine<E>) {
          const Duration delay = kAtOnce<E> ? Duration(0) : kLong<E> ? cluster_.draw(milliseconds(5), milliseconds(300)) : quick;
          on_engine(delay, [this, e] { order(e); });
        } else if constexpr (std::is_same_v<E, agent::StartTrainer>) {
          start_trainer(e);
        } else if constexpr (std::is_same_v<E, agent::StopTrainer>) {
          process_->trainer.up = false;
          process_->trainer.starting.reset();
        } else if constexpr (std::is_same_v<E, agent::LoadTrainer>) {
          process_->trainer.loading = e;
          on_engine(quick, [this, e] { order(agent::FillArena{e.run, e.incarnation}); });
        } else if constexpr (std::is_same_v<E, agent::PlanTrainer>) {
          on_trainer(quick, [this, e] { plan_trainer(e); });
        } else if constexpr (std::is_same_v<E, agent::SkipTrainer>) {
          on_trainer(quick, [this, e] { skip_trainer(e); });
        } else if constexpr (std::is_same_v<E, agent::TellTokens>) {
          tokens_told_.push_back(e);
        } else if constexpr (std::is_same_v<E, agent::DealData>) {
          on_trainer(quick, [this, e] { deal_data(e); });
        } else if constexpr (std::is_same_v<E, agent::FinishTrainer>) {
          on_trainer(quick, [this, e] { finish_trainer(e); });
        } else if constexpr (std::is_same_v<E, agent::GiveResult>) {
          on_trainer(quick, [this, e] {
            process_->trainer.results.emplace(e.round, e.fragment);
            advance_trainer();
          });
        } else if constexpr (std::is_same_v<E, agent::StartTask>) {
          start_task(e);
        } else if constexpr (std::is_same_v<E, agent::StopTask>) {
          stop_task();
        } else if constexpr (std::is_same_v<E, agent::RememberGeneration>) {
          met_ = e.generation;
        }
      },
      effect);
}

}  // namespace atl::sim
