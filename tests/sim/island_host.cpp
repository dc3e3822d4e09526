#include "tests/sim/island_host.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "strategies/composition.hpp"
#include "strategies/merge.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/sim/cluster.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;
constexpr std::size_t kSize = 12;       // parameters; fragments are equal parts
constexpr std::uint64_t kEpoch = 1000;  // sequences of a part
constexpr Duration kStall = std::chrono::seconds(4);

Vector initial_parameters(std::uint64_t seed, bool other) {
  Rng rng(seed, stream_of("initial"));
  Vector values(kSize);
  for (float& value : values) {
    value = static_cast<float>(rng.normal());
  }
  if (other) {
    values.front() = std::nextafter(values.front(), 10.0F);
  }
  return values;
}

}  // namespace

Digest file_digest(const DiskCheckpoint& checkpoint) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(checkpoint.parameters)));
  hash.update(std::as_bytes(std::span(checkpoint.momentum)));
  return hash.finish();
}

IslandHost::IslandHost(Cluster& cluster, std::size_t index)
    : cluster_(cluster), index_(index), id_("i" + std::to_string(index)), key_("key-" + std::to_string(index)) {}

Checkers& IslandHost::checkers() const { return cluster_.checkers().of(process_->run); }

bool IslandHost::gradients() const { return process_->engine && process_->engine->composition.payload == PayloadKind::gradient; }

std::uint32_t IslandHost::fragments() const { return std::max<std::uint32_t>(1, cluster_.scenario().spec.strategy.fragments); }

std::span<float> IslandHost::range(Vector& vector, std::uint32_t fragment) const {
  const std::size_t size = kSize / fragments();
  return std::span(vector).subspan(fragment * size, size);
}

bool IslandHost::alone() const { return process_->engine && process_->engine->composition.group == Group::nobody; }

void IslandHost::start() {
  if (process_) {
    return;
  }
  std::vector<agent::StoredRun> stored;
  for (const auto& [run, checkpoints] : disk_) {
    agent::StoredRun item{run, {}};
    for (const DiskCheckpoint& checkpoint : checkpoints) {
      item.checkpoints.push_back(checkpoint.meta);
    }
    stored.push_back(std::move(item));
  }
  const std::uint64_t boot = (index_ + 1) * 1000 + ++boots_;
  agent::Identity identity{id_, id_.text, "test", boot, "sim://" + id_.text, "simulated", {}};
  identity.generation = met_;
  process_ = std::make_unique<Process>(identity, agent::Settings{}, std::move(stored), cluster_.timeline().now(), cluster_.draw_clock());
  process_->boot = boot;
  feed(agent::LinkUp{});
}

void IslandHost::crash() { process_.reset(); }

void IslandHost::lose_disk() {
  disk_.clear();
  shelf_.clear();
}

void IslandHost::fill_disk(Duration length) { disk_full_until_ = cluster_.timeline().now() + length; }

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
  if (process_ && process_->trainer.up) {
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
      cluster_.to_coordinator(id_, process_->boot, message);
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
  arm();
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
        cluster_.checkers().fail("the agent of " + id_.text + " wakes again and again");
      }
      process_->core.tick(now());
      pump();
    }
  });
}

// The engine does one thing after the other; so does the trainer host.
template <typename F>
void IslandHost::on_engine(Duration delay, F what) {
  process_->engine_free = std::max(process_->engine_free, cluster_.timeline().now()) + delay;
  cluster_.timeline().at(process_->engine_free, [this, boot = process_->boot, engine = process_->engines, what] {
    if (process_ && process_->boot == boot && process_->engines == engine && process_->engine) {
      what();
    }
  });
}

template <typename F>
void IslandHost::on_trainer(Duration delay, F what) {
  process_->trainer_free = std::max(process_->trainer_free, cluster_.timeline().now()) + delay;
  cluster_.timeline().at(process_->trainer_free, [this, boot = process_->boot, incarnation = process_->trainer.incarnation, what] {
    if (process_ && process_->boot == boot && process_->trainer.incarnation == incarnation) {
      what();
    }
  });
}

void IslandHost::carry_out(const agent::Effect& effect) {
  cluster_.trace_effect(id_, effect);
  const Duration quick = cluster_.draw(milliseconds(1), milliseconds(20));
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (std::is_same_v<E, agent::OpenRun>) {
          process_->run = e.run;
          process_->engine.emplace();
          ++process_->engines;
          process_->engine->spec = e.spec;
          process_->engine->composition = compose(e.spec.strategy).value();
        } else if constexpr (std::is_same_v<E, agent::CloseRun>) {
          process_->engine.reset();
          process_->trainer.up = false;
          process_->saved.clear();
          process_->run = RunId{};
        } else if constexpr (std::is_same_v<E, agent::StartTrainer>) {
          start_trainer(e);
        } else if constexpr (std::is_same_v<E, agent::RememberGeneration>) {
          met_ = e.generation;
        } else if constexpr (std::is_same_v<E, agent::StopTrainer>) {
          process_->trainer.up = false;
        } else if constexpr (std::is_same_v<E, agent::LoadTrainer>) {
          on_trainer(quick, [this, e] { load_trainer(e); });
        } else if constexpr (std::is_same_v<E, agent::PlanTrainer>) {
          on_trainer(quick, [this, e] {
            Trainer& trainer = process_->trainer;
            trainer.until = std::max(trainer.until, e.until);
            trainer.orders.add(e.publish, e.merge);
            advance_trainer();
          });
        } else if constexpr (std::is_same_v<E, agent::SkipTrainer>) {
          on_trainer(quick, [this, e] { skip_trainer(e); });
        } else if constexpr (std::is_same_v<E, agent::FinishTrainer>) {
          on_trainer(quick, [this, e] { finish_trainer(e); });
        } else if constexpr (std::is_same_v<E, agent::GiveResult>) {
          on_trainer(quick, [this, e] {
            process_->trainer.results.insert(e.round);
            advance_trainer();
          });
        } else if constexpr (std::is_same_v<E, agent::FormInitialState>) {
          on_engine(quick, [this, e] {
            Engine& engine = *process_->engine;
            if (!process_->trainer.up || process_->trainer.incarnation != e.incarnation) {
              return;
            }
            engine.parameters = process_->trainer.state.parameters;
            engine.momentum.assign(kSize, 0.0F);
            engine.arena = engine.parameters;
            engine.has_state = true;
            engine.round = Round(0);
            engine.digest = digest_of_initial(engine.parameters);
            checkers().outer_state(id_, Round(0), engine.digest, engine.parameters, engine.momentum);
            checkers().void_pairs(id_, Round(0));
            feed(agent::InitialState{e.run, engine.digest});
          });
        } else if constexpr (std::is_same_v<E, agent::FormContribution>) {
          on_engine(quick, [this, e] { form(e); });
        } else if constexpr (std::is_same_v<E, agent::BeginExchange>) {
          on_engine(quick, [this, e] { begin_exchange(e); });
        } else if constexpr (std::is_same_v<E, agent::AllowPeers>) {
          on_engine(Duration(0), [this, e] {
            std::vector<IslandId> members;
            for (const Member& member : e.members) {
              members.push_back(member.island);
            }
            process_->engine->store->set_readers(e.run, std::move(members));
          });
        } else if constexpr (std::is_same_v<E, agent::PreparePair>) {
          on_engine(quick, [this, e] { prepare_pair(e); });
        } else if constexpr (std::is_same_v<E, agent::MeetPartner>) {
          on_engine(quick, [this, e] { meet(e); });
        } else if constexpr (std::is_same_v<E, agent::LeavePairs>) {
          on_engine(Duration(0), [this, e] { leave_pairs(e); });
        } else if constexpr (std::is_same_v<E, agent::HearOfPair>) {
          on_engine(Duration(0), [this, e] { hear_of_pair(e); });
        } else if constexpr (std::is_same_v<E, agent::RenouncePair>) {
          on_engine(Duration(0), [this, e] { renounce_pair(e); });
        } else if constexpr (std::is_same_v<E, agent::FormMergeContribution>) {
          on_engine(quick, [this, e] { form_merge(e); });
        } else if constexpr (std::is_same_v<E, agent::CancelExchange>) {
          on_engine(Duration(0), [this, e] {
            const auto exchange = process_->engine->exchanges.find(e.round);
            if (exchange != process_->engine->exchanges.end() && exchange->second.attempt == e.attempt) {
              process_->engine->exchanges.erase(exchange);
            }
            const auto pair = process_->engine->pairs.find(e.round);
            if (pair != process_->engine->pairs.end() && pair->second.order && pair->second.order->attempt == e.attempt) {
              process_->engine->pairs.erase(pair);
            }
          });
        } else if constexpr (std::is_same_v<E, agent::ApplyResult>) {
          on_engine(quick, [this, e] { apply(e); });
        } else if constexpr (std::is_same_v<E, agent::AdoptParameters>) {
          on_engine(cluster_.draw(milliseconds(1), milliseconds(200)), [this, e] { adopt(e); });
        } else if constexpr (std::is_same_v<E, agent::BeginCheckpoint>) {
          on_engine(cluster_.draw(milliseconds(5), milliseconds(100)), [this, e] { begin_checkpoint(e); });
        } else if constexpr (std::is_same_v<E, agent::WriteCheckpoint>) {
          on_engine(cluster_.draw(milliseconds(10), milliseconds(300)), [this, e] { write_checkpoint(e); });
        } else if constexpr (std::is_same_v<E, agent::LoadCheckpoint>) {
          on_engine(cluster_.draw(milliseconds(10), milliseconds(300)), [this, e] { load_checkpoint(e); });
        } else if constexpr (std::is_same_v<E, agent::CatchUpFromPeers>) {
          const std::uint64_t order = ++process_->engine->catch_up;
          on_engine(cluster_.draw(milliseconds(100), milliseconds(2000)), [this, e, order] {
            if (process_->engine->catch_up == order) {
              catch_up(e);
            }
          });
        } else if constexpr (std::is_same_v<E, agent::OpenContent>) {
          open_content(e);
        } else if constexpr (std::is_same_v<E, agent::FetchContent>) {
          fetch_content(e);
        } else if constexpr (std::is_same_v<E, agent::AdoptContent>) {
          adopt_content(e);
        } else if constexpr (std::is_same_v<E, agent::DropContent>) {
          drop_content(e);
        } else if constexpr (std::is_same_v<E, agent::StartTask>) {
          start_task(e);
        } else if constexpr (std::is_same_v<E, agent::StopTask>) {
          stop_task();
        } else if constexpr (std::is_same_v<E, agent::KeepResults>) {
          on_engine(Duration(0), [this, e] {
            process_->engine->keep = e.keep;
            if (!e.keep) {
              process_->engine->kept.clear();
            }
          });
        }
      },
      effect);
}

void IslandHost::start_trainer(const agent::StartTrainer& effect) {
  ++trainer_starts_;
  Trainer fresh;
  fresh.incarnation = effect.incarnation;
  fresh.part = effect.part;
  process_->trainer = std::move(fresh);
  on_trainer(cluster_.draw(milliseconds(100), milliseconds(1500)), [this, effect] {
    Trainer& trainer = process_->trainer;
    if (data_refused_) {
      feed(agent::TrainerExited{effect.run, effect.incarnation, true, Error{Code::unauthorized, "the owner does not allow these data"}});
      return;
    }
    trainer.up = true;
    trainer.state.parameters = initial_parameters(effect.spec.seed, other_initial_);
    trainer.state.published_at.assign(fragments(), 0);
    trainer.state.trained = Trained{trainer.part, 0, 0, cluster_.next_load(), {}};
    if (effect.checkpoint) {
      bool found = false;
      for (const DiskCheckpoint& checkpoint : disk_[effect.run]) {
        if (checkpoint.meta.round == *effect.checkpoint && checkpoint.trainer) {
          trainer.state = *checkpoint.trainer;
          // What the checkpoint's trainer had made again is in its state, too.
          Trained& trained = trainer.state.trained;
          if (!trained.resumed || checkpoint.meta.round < *trained.resumed) {
            trained.resumed = checkpoint.meta.round;
            trained.resumed_digest = checkpoint.meta.digest;
          }
          found = true;
        }
      }
      if (!found) {
        trainer.up = false;
        feed(agent::TrainerExited{effect.run, effect.incarnation, false, Error{Code::not_found, "there is no such trainer state"}});
        return;
      }
    }
    trainer.stood_at = trainer.state.step;
    trainer.until = trainer.state.step;
    if (process_->engine && process_->engine->arena.empty()) {
      process_->engine->arena.assign(kSize, 0.0F);
    }
    feed(agent::TrainerReady{effect.run, effect.incarnation, trainer.state.step, trainer.state.position, fragments(), true, kEpoch});
  });
}

void IslandHost::load_trainer(const agent::LoadTrainer& effect) {
  Trainer& trainer = process_->trainer;
  if (!trainer.up || !process_->engine) {
    return;
  }
  process_->engine->arena = process_->engine->parameters;
  trainer.state =
      TrainerState{process_->engine->parameters, effect.step, effect.position, std::vector<std::uint64_t>(fragments(), effect.position),
                   Trained{trainer.part, effect.position, effect.position, cluster_.next_load(), {}}};
  trainer.until = effect.step;
  trainer.stood_at = effect.step;
  trainer.gradient.clear();
  trainer.orders.clear();
  trainer.awaited.reset();
  trainer.results.clear();
  trainer.last.reset();
  trainer.finishing_now = false;
  trainer.skip_to = Step(0);
  trainer.stepping = false;
  ++trainer.loads;
  feed(agent::TrainerLoaded{effect.run, effect.incarnation, effect.step, effect.position});
}

void IslandHost::skip_trainer(const agent::SkipTrainer& effect) {
  Trainer& trainer = process_->trainer;
  if (!trainer.up) {
    return;
  }
  trainer.skip_to = std::min(effect.step, trainer.until);
  if (!trainer.stepping) {
    trainer.state.step = std::max(trainer.state.step, trainer.skip_to);
    advance_trainer();
  }
}

void IslandHost::finish_trainer(const agent::FinishTrainer& effect) {
  Trainer& trainer = process_->trainer;
  if (!trainer.up) {
    return;
  }
  trainer.until = trainer.orders.finish(effect.round, effect.now, trainer.state.step);
  trainer.last = effect.round;
  trainer.finishing_now = effect.now;
  advance_trainer();
}

// Executes the orders of its step; then takes the next step, if it may. Where gradients are exchanged the orders of a step are executed
// inside it.
void IslandHost::advance_trainer() {
  Trainer& trainer = process_->trainer;
  if (!trainer.up || trainer.stepping || !process_->engine) {
    return;
  }
  const auto same = [this, boot = process_->boot, incarnation = trainer.incarnation, loads = trainer.loads] {
    return process_ && process_->boot == boot && process_->trainer.incarnation == incarnation && process_->trainer.loads == loads &&
           process_->trainer.up;
  };
  if (gradients() && trainer.gradient.empty()) {
    begin_step();
    return;
  }
  const Step inside = gradients() ? trainer.state.step.next() : trainer.state.step;
  while (same()) {
    if (!trainer.awaited && !take_order(inside)) {
      begin_step();
      return;
    }
    if (same() && trainer.awaited) {
      if (trainer.results.erase(trainer.awaited->round) == 0) {
        return;  // waits for the result
      }
      take_result(*std::exchange(trainer.awaited, std::nullopt));
    }
  }
}

// Begins the order that comes next at this step; false if none is due.
bool IslandHost::take_order(Step step) {
  Trainer& trainer = process_->trainer;
  if (const auto next = trainer.finishing_now ? trainer.orders.next_step() : std::nullopt) {
    trainer.state.step = std::max(trainer.state.step, *next);
    step = std::max(step, *next);
  }
  const auto due = trainer.orders.take(step);
  if (due && std::holds_alternative<agent::PublishOrder>(*due)) {
    publish(std::get<agent::PublishOrder>(*due));
  } else if (due) {
    trainer.awaited = std::get<agent::MergeOrder>(*due);
  }
  return due.has_value();
}

void IslandHost::publish(const agent::PublishOrder& order) {
  Trainer& trainer = process_->trainer;
  Engine& engine = *process_->engine;
  const std::uint64_t inside = gradients() ? 1 : 0;  // a gradient belongs to the step that it is about to make
  const Step step(trainer.state.step.value + inside);
  const std::span<float> from = range(gradients() ? trainer.gradient : trainer.state.parameters, order.fragment);
  std::copy(from.begin(), from.end(), range(engine.arena, order.fragment).begin());
  checkers().published(id_, order.round, step, trainer.stood_at);
  agent::TrainerPublished event{
      process_->run, trainer.incarnation, order.round, order.fragment, step, trainer.state.position + inside, 0, 0, 1.0,
      false,         std::nan("")};
  std::uint64_t& before = trainer.state.published_at[order.fragment];
  event.steps = event.position - before;
  event.tokens = event.steps * (100 + index_) + 1;
  before = event.position;
  Trained& held = process_->published[order.round] = trainer.state.trained;
  held.from = gradients() ? trainer.state.position : held.from;  // a gradient holds nothing of earlier steps
  if (spoil_ || (cluster_.troubled() && cluster_.rng().chance(cluster_.scenario().nonfinite))) {
    spoil_ = false;
    event.nonfinite = true;
  }
  feed(event);
}

void IslandHost::take_result(const agent::MergeOrder& order) {
  Trainer& trainer = process_->trainer;
  Engine& engine = *process_->engine;
  if (gradients()) {
    trainer.gradient = engine.arena;
    inner_step();
    engine.arena = trainer.state.parameters;
  } else if (const Status status = merge(order.alpha, range(engine.arena, order.fragment), range(trainer.state.parameters, order.fragment));
             !status) {
    checkers().fail("the merge failed: " + status.error().why);
  }
  checkers().merged(id_, order.round, trainer.state.step, trainer.stood_at);
  const bool save = order.save || trainer.last == order.round;
  if (save) {
    process_->saved[order.round] = trainer.state;
  }
  feed(agent::TrainerMerged{process_->run, trainer.incarnation, order.round, order.fragment, trainer.state.step, trainer.state.position,
                            0.0, 1.0, save, ""});
}

// The next inner step, in a while; where gradients are exchanged, as far as the gradient.
void IslandHost::begin_step() {
  Trainer& trainer = process_->trainer;
  if (gradients() && !trainer.gradient.empty()) {
    inner_step();
    advance_trainer();
    return;
  }
  if (trainer.state.step >= trainer.until) {
    return;
  }
  trainer.stepping = true;
  const Duration step_time =
      (slow_ ? milliseconds(5000) : cluster_.scenario().step_time + cluster_.scenario().step_lag * static_cast<Duration::rep>(index_)) +
      cluster_.draw(Duration(0), milliseconds(40));
  cluster_.timeline().after(step_time, [this, boot = process_->boot, incarnation = trainer.incarnation, loads = trainer.loads] {
    if (!process_ || process_->boot != boot || process_->trainer.incarnation != incarnation || process_->trainer.loads != loads ||
        !process_->trainer.up) {
      return;
    }
    TrainerState& state = process_->trainer.state;
    state.trained.to = state.position + 1;
    Rng noise(cluster_.scenario().seed, stream_of("batch", process_->trainer.part * 1'000'000ULL + state.position));
    Vector& gradient = process_->trainer.gradient;
    for (const float value : state.parameters) {
      gradient.push_back(0.05F * value + 0.01F * static_cast<float>(noise.normal()));
    }
    process_->trainer.stepping = false;
    if (!gradients()) {
      inner_step();
    }
    agent::TrainerProgress progress;
    progress.run = process_->run;
    progress.incarnation = incarnation;
    progress.step = process_->trainer.state.step;
    feed(progress);
    if (process_ && process_->boot == boot && process_->trainer.incarnation == incarnation && process_->trainer.loads == loads &&
        process_->trainer.up) {
      advance_trainer();
    }
  });
}

// By the gradient that is there.
void IslandHost::inner_step() {
  TrainerState& state = process_->trainer.state;
  for (std::size_t i = 0; i < kSize; ++i) {
    state.parameters[i] -= process_->trainer.gradient[i];
  }
  process_->trainer.gradient.clear();
  state.step = std::max(state.step.next(), process_->trainer.skip_to);
  state.position += 1;
  ++steps_;
}

void IslandHost::form(const agent::FormContribution& effect) {
  Engine& engine = *process_->engine;
  if (!engine.has_state) {
    return;
  }
  if (cluster_.troubled() && !alone() && cluster_.rng().chance(cluster_.scenario().nonfinite)) {
    feed(agent::ContributionFailed{effect.run, effect.round, Error{Code::corrupt, "the contribution is not finite"}});
    return;
  }
  const std::span<float> local = range(engine.arena, effect.fragment);
  const std::span<float> outer = range(engine.parameters, effect.fragment);
  Vector values(local.begin(), local.end());
  double norm = 0;
  const float scale = explode_ || (cluster_.troubled() && cluster_.rng().chance(cluster_.scenario().exploding)) ? 1000.0F : 1.0F;
  explode_ = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * (engine.composition.payload == PayloadKind::outer_gradient ? outer[i] - local[i] : local[i]);
    norm += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const Trained trained = process_->published[effect.round];
  checkers().contribution(id_, effect.round, engine.digest, values, effect.facts.tokens, trained);
  const FormedContribution formed{{effect.round, effect.fragment, std::sqrt(norm), effect.facts}, std::move(values), trained};
  for (auto& [round, checkpoint] : engine.begun) {
    std::erase_if(checkpoint.pending, [&](const FormedContribution& old) { return old.facts.round >= effect.round; });
    checkpoint.pending.push_back(formed);
  }
  engine.contributions[effect.round] = formed;
  checkers().retained(id_, engine.round,
                      static_cast<std::size_t>(std::distance(engine.contributions.upper_bound(engine.round), engine.contributions.end())));
  feed(agent::ContributionFormed{effect.run, effect.round, formed.facts.norm});
}

void IslandHost::begin_exchange(const agent::BeginExchange& effect) {
  Engine& engine = *process_->engine;
  ExchangeInHand exchange;
  exchange.epoch = effect.epoch;
  exchange.attempt = effect.attempt;
  exchange.fragment = effect.fragment;
  exchange.members = effect.members;
  exchange.tokens = effect.tokens;
  exchange.progress = cluster_.timeline().now();
  for (std::size_t i = 0; i < effect.members.size(); ++i) {
    if (effect.members[i].island == id_ && effect.tokens[i] > 0) {
      if (engine.contributions.count(effect.round) == 0) {
        checkers().fail(id_.text + " was asked to exchange a contribution to round " + std::to_string(effect.round.value) +
                        " that it does not have");
        return;
      }
      exchange.got[id_] = engine.contributions.at(effect.round).values;
    }
  }
  engine.exchanges[effect.round] = std::move(exchange);
  poll_exchange(effect.round, effect.attempt);
}

// Reduces once everything is there; else who is missing.
std::vector<IslandId> IslandHost::reduce_exchange(ExchangeInHand& exchange) {
  std::vector<IslandId> missing;
  std::vector<const Vector*> parts;
  for (std::size_t i = 0; i < exchange.members.size(); ++i) {
    const auto got = exchange.got.find(exchange.members[i].island);
    parts.push_back(got == exchange.got.end() ? nullptr : &got->second);
    if (got == exchange.got.end() && exchange.tokens[i] > 0) {
      missing.push_back(exchange.members[i].island);
    }
  }
  if (missing.empty()) {
    exchange.result = reduce(parts, exchange.tokens, process_->engine->composition.aggregator);
    // Of one alone nobody could tell.
    if (cluster_.troubled() && exchange.members.size() > 1 && !exchange.result.empty() && cluster_.scenario().flipped_bits > 0 &&
        cluster_.rng().chance(cluster_.scenario().flipped_bits)) {
      // Bits of its own: two islands that flip the same one would be a majority.
      float& value = exchange.result[cluster_.rng().below(exchange.result.size())];
      value =
          std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ static_cast<std::uint32_t>(1 + cluster_.rng().below((1U << 22U) - 1)));
    }
    exchange.done = true;
    report_exchanges();
  }
  return missing;
}

// Asks for what is missing, until everything is there or somebody has been silent for too long.
void IslandHost::poll_exchange(Round round, Attempt attempt) {
  Engine& engine = *process_->engine;
  const auto found = engine.exchanges.find(round);
  if (found == engine.exchanges.end() || found->second.attempt != attempt || found->second.done) {
    return;
  }
  ExchangeInHand& exchange = found->second;
  const std::vector<IslandId> missing = reduce_exchange(exchange);
  if (missing.empty()) {
    return;
  }
  if (cluster_.timeline().now() - exchange.progress > kStall) {
    const Error error{Code::timeout, missing.front().text + " delivered nothing for 4 s"};
    feed(agent::ExchangeBroke{process_->run, round, attempt, missing.front(), error});
    return;
  }
  for (const IslandId& peer : missing) {
    const auto answer = [this, peer, run = process_->run, round, epoch = exchange.epoch, attempt, boot = process_->boot] {
      IslandHost* source = cluster_.find(peer);
      if (source == nullptr || !source->process_ || !source->process_->engine || source->process_->run != run) {
        return;
      }
      const Engine& theirs = *source->process_->engine;
      const auto serving = theirs.exchanges.find(round);
      if (serving == theirs.exchanges.end() || serving->second.attempt != attempt || serving->second.epoch != epoch) {
        return;
      }
      const auto own = serving->second.got.find(peer);
      if (own != serving->second.got.end()) {
        cluster_.carry(peer.text, id_.text, [this, run, round, epoch, attempt, peer, piece = own->second, boot] {
          if (process_ && process_->boot == boot && process_->engine && process_->run == run) {
            take_piece(round, epoch, attempt, peer, piece);
          }
        });
      }
    };
    cluster_.carry(id_.text, peer.text, answer);
  }
  cluster_.timeline().after(milliseconds(300), [this, round, attempt, boot = process_->boot, engine = process_->engines] {
    if (process_ && process_->boot == boot && process_->engines == engine && process_->engine) {
      poll_exchange(round, attempt);
    }
  });
}

void IslandHost::take_piece(Round round, Epoch epoch, Attempt attempt, const IslandId& from, const Vector& piece) {
  const auto found = process_->engine->exchanges.find(round);
  if (found == process_->engine->exchanges.end() || found->second.attempt != attempt || found->second.epoch != epoch ||
      found->second.done) {
    return;
  }
  found->second.got[from] = piece;
  found->second.progress = cluster_.timeline().now();
  reduce_exchange(found->second);
}

// A result whose round comes next is reported; one that is early waits until the round before is applied, for its digest needs it.
void IslandHost::report_exchanges() {
  Engine& engine = *process_->engine;
  const auto next = engine.exchanges.find(engine.round.next());
  if (!engine.has_state || next == engine.exchanges.end() || !next->second.done || next->second.reported) {
    return;
  }
  next->second.reported = true;
  next->second.digest = digest_after(digest_before(next->first), next->second.result);
  feed(agent::ExchangeDone{process_->run, next->first, next->second.attempt, next->second.digest, 100, 100, 0.1});
}

void IslandHost::take_outer_step(Round round, std::uint32_t fragment, const Vector& result, const Digest& digest) {
  Engine& engine = *process_->engine;
  checkers().applied(id_, engine.round, round, digest, own(round));
  if (engine.composition.group == Group::pairs) {
    std::copy(result.begin(), result.end(), range(engine.parameters, fragment).begin());  // a merge: the mean
  } else if (!gradients()) {
    const std::span<float> momentum = has_momentum(engine.composition.outer.kind) ? range(engine.momentum, fragment) : std::span<float>();
    if (const Status status = outer_step(result, engine.composition.outer, OuterState{range(engine.parameters, fragment), momentum});
        !status) {
      checkers().fail("the outer step failed: " + status.error().why);
    }
  }
  engine.round = round;
  engine.digest = digest;
  if (engine.keep) {
    engine.kept[round] = result;
  }
  if (engine.composition.group == Group::all && !gradients()) {
    checkers().outer_state(id_, round, digest, engine.parameters, engine.momentum);
  } else if (engine.composition.group == Group::pairs && round == Round(engine.spec.rounds)) {
    checkers().outer_state(id_, round, digest, engine.parameters, {});  // one model; each its own momentum
  }
}

void IslandHost::apply(const agent::ApplyResult& effect) {
  Engine& engine = *process_->engine;
  if (apply_pair(effect)) {
    return;
  }
  const auto found = engine.exchanges.find(effect.round);
  if (found == engine.exchanges.end() || !found->second.reported || found->second.attempt != effect.attempt ||
      found->second.digest != effect.digest) {
    checkers().fail(id_.text + " was asked to apply a result of round " + std::to_string(effect.round.value) + " that it does not hold");
    return;
  }
  const Vector result = found->second.result;
  take_outer_step(effect.round, effect.fragment, result, effect.digest);
  const std::span<float> outer = range(engine.parameters, effect.fragment);
  const auto& given = gradients() ? std::span<const float>(result) : std::span<const float>(outer);
  std::copy(given.begin(), given.end(), range(engine.arena, effect.fragment).begin());
  engine.contributions.erase(engine.contributions.begin(), engine.contributions.upper_bound(effect.round));
  engine.exchanges.erase(effect.round);
  feed(agent::ResultApplied{effect.run, effect.round, std::nullopt});
  if (process_ && process_->engine) {
    report_exchanges();
  }
}

void IslandHost::adopt(const agent::AdoptParameters& effect) {
  Engine& engine = *process_->engine;
  if (engine.round != effect.round) {
    checkers().fail(id_.text + " adopts the parameters of round " + std::to_string(effect.round.value) + " while its state is another");
    return;
  }
  engine.parameters = engine.arena;
  checkers().outer_state(id_, engine.round, engine.digest, engine.parameters, engine.momentum);
  feed(agent::ParametersAdopted{effect.run, effect.round, std::nullopt});
}

DiskCheckpoint IslandHost::present_state() const {
  const Engine& engine = *process_->engine;
  DiskCheckpoint checkpoint;
  checkpoint.parameters = engine.parameters;
  checkpoint.momentum = engine.momentum;
  checkpoint.meta.round = engine.round;
  checkpoint.meta.digest = engine.digest;
  for (auto later = engine.contributions.upper_bound(engine.round); later != engine.contributions.end(); ++later) {
    if (engine.composition.group == Group::pairs && !own(later->first)) {
      break;  // what merges all islands is formed again
    }
    checkpoint.pending.push_back(later->second);
  }
  return checkpoint;
}

void IslandHost::begin_checkpoint(const agent::BeginCheckpoint& effect) {
  Engine& engine = *process_->engine;
  if (engine.round != effect.round || engine.digest != effect.digest) {
    checkers().fail(id_.text + " was told to begin a checkpoint of round " + std::to_string(effect.round.value) +
                    " while its state is another");
    return;
  }
  engine.begun[effect.round] = present_state();
}

void IslandHost::write_checkpoint(const agent::WriteCheckpoint& effect) {
  Engine& engine = *process_->engine;
  const bool full = cluster_.timeline().now() < disk_full_until_;
  if (full || (cluster_.troubled() && cluster_.rng().chance(cluster_.scenario().broken_disk))) {
    feed(agent::CheckpointFailed{effect.run, effect.round, Error{Code::io, "no space left on device"}});
    return;
  }
  const auto begun = engine.begun.find(effect.round);
  const bool prepared = begun != engine.begun.end() && begun->second.meta.digest == effect.digest;
  if (!prepared && (engine.round != effect.round || engine.digest != effect.digest)) {
    checkers().fail(id_.text + " was asked for a checkpoint of round " + std::to_string(effect.round.value) +
                    " while its state is another");
    return;
  }
  DiskCheckpoint checkpoint = prepared ? begun->second : present_state();
  engine.begun.erase(effect.round);
  if (effect.trainer_state) {
    checkpoint.trainer = process_->saved.at(effect.round);
    if (!engine.spec.work.run.empty() && effect.round == Round(engine.spec.rounds)) {
      checkers().trainer_saved(id_, effect.digest, checkpoint.trainer->step, checkpoint.trainer->parameters);
    }
  }
  checkpoint.meta = agent::StoredCheckpoint{effect.round,    effect.digest,           effect.epoch, effect.trainer_state, effect.step,
                                            effect.position, file_digest(checkpoint), 100,          effect.part};
  std::vector<DiskCheckpoint>& held = disk_[effect.run];
  std::erase_if(held, [&](const DiskCheckpoint& old) { return old.meta.round == effect.round; });
  held.push_back(checkpoint);
  const std::size_t unread =
      std::count_if(held.begin(), held.end(), [&](const DiskCheckpoint& c) { return !effect.needed.contains(c.meta.round); });
  if (unread > effect.keep) {
    held.erase(std::find_if(held.begin(), held.end(), [&](const DiskCheckpoint& c) { return !effect.needed.contains(c.meta.round); }));
  }
  process_->saved.erase(effect.round);
  feed(agent::CheckpointWritten{effect.run, effect.round, effect.digest, checkpoint.meta.file, 100, effect.trainer_state, effect.step,
                                effect.position, effect.part});
}

void IslandHost::load_checkpoint(const agent::LoadCheckpoint& effect) {
  Engine& engine = *process_->engine;
  std::vector<DiskCheckpoint>& held = disk_[effect.run];
  const auto found = std::find_if(held.begin(), held.end(),
                                  [&](const DiskCheckpoint& c) { return c.meta.round == effect.round && c.meta.digest == effect.digest; });
  if (found == held.end() || flipped_) {
    flipped_ = false;
    std::erase_if(held, [&](const DiskCheckpoint& c) { return c.meta.round == effect.round; });
    feed(agent::CheckpointBroken{effect.run, effect.round, Error{Code::corrupt, "its digest is another"}});
    return;
  }
  take_over(*found);
  checkers().void_pairs(id_, Round(0));  // it had left, or everybody was lost: what it decided with others before counts no more
  engine.arena = engine.parameters;
  agent::CheckpointLoaded loaded{effect.run, effect.round, effect.digest, {}};
  for (const FormedContribution& formed : found->pending) {
    engine.contributions[formed.facts.round] = formed;
    checkers().contribution(id_, formed.facts.round, engine.digest, formed.values, formed.facts.facts.tokens, formed.trained);
    loaded.pending.push_back(formed.facts);
  }
  if (engine.composition.group == Group::all) {
    checkers().outer_state(id_, engine.round, engine.digest, engine.parameters, engine.momentum);
  }
  feed(loaded);
}

void IslandHost::take_over(const DiskCheckpoint& checkpoint) {
  Engine& engine = *process_->engine;
  engine.has_state = true;
  engine.round = checkpoint.meta.round;
  engine.digest = checkpoint.meta.digest;
  engine.parameters = checkpoint.parameters;
  engine.momentum = checkpoint.momentum;
  engine.contributions.clear();
  engine.exchanges.clear();
  engine.pairs.clear();
  engine.begun.clear();
}

void IslandHost::catch_up(const agent::CatchUpFromPeers& effect) {
  for (const Member& member : effect.order.sources) {
    IslandHost* source = cluster_.find(member.island);
    const bool there = source != nullptr && source != this && source->process_ && source->process_->engine &&
                       source->process_->run == effect.order.run && cluster_.reachable(id_.text, member.island.text) &&
                       cluster_.reachable(member.island.text, id_.text);
    if (there && copy_from(*source, effect)) {
      feed(agent::CatchUpDone{effect.order.run, effect.order.committed, effect.order.digest});
      return;
    }
  }
  feed(agent::CatchUpBroke{effect.order.run, Error{Code::unavailable, "no source could be read"}});
}

// From its own state with the results it missed if they lead to the right digest; else from the source's checkpoint.
bool IslandHost::copy_from(IslandHost& source, const agent::CatchUpFromPeers& effect) {
  Engine& engine = *process_->engine;
  const Engine& theirs = *source.process_->engine;
  const auto results_after = [&](Round from, Digest digest) -> std::optional<std::vector<Vector>> {
    if (gradients() && from != effect.order.committed) {
      return std::nullopt;  // only an optimiser could apply them
    }
    std::vector<Vector> results;
    for (Round round = from.next(); round <= effect.order.committed; round = round.next()) {
      const auto kept = theirs.kept.find(round);
      if (kept == theirs.kept.end()) {
        return std::nullopt;
      }
      digest = digest_after(digest, kept->second);
      results.push_back(kept->second);
    }
    return digest == effect.order.digest ? std::optional(std::move(results)) : std::nullopt;
  };
  std::optional<std::vector<Vector>> results;
  if (effect.has_state && engine.round == effect.own_round && engine.digest == effect.own_digest &&
      engine.round <= effect.order.committed) {
    results = results_after(engine.round, engine.digest);
  }
  if (!results) {
    const std::vector<DiskCheckpoint>& held = source.disk_[effect.order.run];
    const auto found = std::find_if(held.begin(), held.end(), [&](const DiskCheckpoint& c) {
      return c.meta.round == effect.order.checkpoint_round && c.meta.file == effect.order.checkpoint_file;
    });
    results = found == held.end() ? std::nullopt : results_after(found->meta.round, found->meta.digest);
    if (!results) {
      return false;
    }
    take_over(*found);
    checkers().void_pairs(id_, Round(0));
  }
  engine.contributions.clear();
  engine.exchanges.clear();
  engine.begun.clear();
  for (const Vector& result : *results) {
    const Round round = engine.round.next();
    take_outer_step(round, cluster_.schedule().round_at(round).value().fragment, result, digest_after(engine.digest, result));
  }
  engine.arena = engine.parameters;
  return true;
}

}  // namespace atl::sim
