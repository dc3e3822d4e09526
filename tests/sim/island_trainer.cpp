// The trainer of a simulated island: it takes inner steps on a few numbers, and obeys the orders of the island link as every trainer does.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "agent/storage/checkpoint.hpp"
#include "strategies/specification/model_kind.hpp"
#include "tests/merge.hpp"
#include "tests/sim/cluster.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;
constexpr std::uint64_t kEpoch = 1000;  // sequences of a part
constexpr const char* kStateFile = "state";

std::uint32_t fragments_of(const RunSpec& spec) { return std::max<std::uint32_t>(1, spec.strategy.fragments); }
std::size_t size_of_fragment(const Scenario& scenario, const RunSpec& spec) { return scenario.parameters / fragments_of(spec); }

Vector initial_parameters(const Scenario& scenario, const RunSpec& spec, bool other) {
  Rng rng(spec.seed, stream_of("initial"));
  Vector values(size_of_fragment(scenario, spec) * fragments_of(spec));
  for (float& value : values) {
    value = static_cast<float>(rng.normal());
  }
  if (other) {
    values.front() = std::nextafter(values.front(), 10.0F);
  }
  return values;
}

// One parameter for each fragment.
island_link::Manifest manifest_of(const Scenario& scenario, const RunSpec& spec) {
  island_link::Manifest manifest;
  for (std::uint32_t i = 0; i < fragments_of(spec); ++i) {
    manifest.parameters.push_back({"w" + std::to_string(i), {size_of_fragment(scenario, spec)}, 0});
  }
  return manifest;
}

void start_from_here(TrainerState& state) {
  state.start = state.parameters;
  for (std::uint32_t fragment = 0; fragment < state.published_at.size(); ++fragment) {
    state.unsaid.insert(fragment);
  }
}

}  // namespace

std::span<float> IslandHost::in_arena(std::uint32_t fragment) const {
  const island_link::Fragment& range = process_->fragments.at(fragment);
  return process_->arena.subspan(static_cast<std::size_t>(range.offset), static_cast<std::size_t>(range.count));
}

std::span<float> IslandHost::range(Vector& vector, std::uint32_t fragment) const {
  const std::size_t size = size_of_fragment(cluster_.scenario(), process_->spec);
  return std::span(vector).subspan(fragment * size, size);
}

void IslandHost::start_trainer(const agent::StartTrainer& effect) {
  ++trainer_starts_;
  Trainer fresh;
  fresh.incarnation = effect.incarnation;
  fresh.part = effect.part;
  fresh.share = effect.share;
  fresh.starting = effect;
  process_->trainer = std::move(fresh);
  const Duration drawn = cluster_.draw(milliseconds(100), milliseconds(1500));
  on_trainer(trainer_start_.value_or(drawn), [this, effect] {
    if (!process_->trainer.starting) {
      return;  // stopped meanwhile
    }
    if (data_refused_) {
      feed(agent::TrainerExited{effect.run, effect.incarnation, true, Error{Code::unauthorized, "the owner does not allow these data"}});
      return;
    }
    on_engine(Duration(0), [this, effect] {
      order(agent::PrepareArena{effect.run, effect.incarnation, manifest_of(cluster_.scenario(), effect.spec)});
    });
  });
}

void IslandHost::deal_data(const agent::DealData& effect) {
  if (process_->trainer.up && process_->trainer.incarnation == effect.incarnation) {
    process_->trainer.share = effect.share;
  }
}

void IslandHost::trainer_is_ready(const agent::StartTrainer& effect) {
  Trainer& trainer = process_->trainer;
  trainer.up = true;
  trainer.state.parameters = initial_parameters(cluster_.scenario(), effect.spec, other_initial_);
  trainer.state.published_at.assign(process_->fragments.size(), 0);
  start_from_here(trainer.state);
  trainer.state.trained = Trained{trainer.part, 0, 0, cluster_.next_load(), {}};
  if (effect.checkpoint) {
    const std::optional<TrainerState> saved = saved_trainer(effect.run, *effect.checkpoint);
    if (!saved) {
      trainer.up = false;
      feed(agent::TrainerExited{effect.run, effect.incarnation, false, Error{Code::not_found, "there is no such trainer state"}});
      return;
    }
    trainer.state = *saved;
    // What the checkpoint's trainer had made again is in its state, too.
    Trained& trained = trainer.state.trained;
    if (!trained.resumed || *effect.checkpoint < *trained.resumed) {
      trained.resumed = *effect.checkpoint;
      for (const agent::StoredCheckpoint& checkpoint : stored(effect.run)) {
        trained.resumed_digest = checkpoint.round == *effect.checkpoint ? checkpoint.digest : trained.resumed_digest;
      }
    }
  }
  trainer.stood_at = trainer.state.step;
  trainer.until = trainer.state.step;
  feed(agent::TrainerReady{effect.run, effect.incarnation, trainer.state.step, trainer.state.position,
                           static_cast<std::uint32_t>(process_->fragments.size()), true, kEpoch});
}

// Its state goes beside what the engine has written of the same checkpoint already.
std::optional<std::string> IslandHost::save_trainer(Round round, const TrainerState& state) {
  const DiskPath partial = runs() / process_->run.text / "checkpoints" / ("." + std::to_string(round.value) + ".partial");
  const DiskPath folder = partial / kTrainerFolder;
  Status saved = folder.make_folders();
  if (saved) {
    const Result<std::unique_ptr<DiskFile>> file = (folder / kStateFile).open(OpenFor::creating);
    const std::uint64_t place = saved_.size();
    saved = file ? (*file)->write(0, std::as_bytes(std::span(&place, 1))) : Status(file.error());
  }
  if (!saved) {
    return saved.error().why;
  }
  saved_.push_back(state);
  return std::nullopt;
}

// What is saved is the state of this moment, and it is written one after the other. An agent that ends meanwhile, or a trainer, leaves
// none.
void IslandHost::save_beside(Round round) {
  Trainer& trainer = process_->trainer;
  Rng rng(cluster_.scenario().seed, stream_of("save", round.value * 1000 + index_));
  const auto most = std::chrono::duration_cast<milliseconds>(cluster_.scenario().saving).count();
  const Duration takes = milliseconds(1 + rng.below(static_cast<std::uint64_t>(most)));
  trainer.saving_until = std::max(trainer.saving_until, cluster_.timeline().now()) + takes;
  cluster_.timeline().at(trainer.saving_until, [this, boot = process_->boot, incarnation = trainer.incarnation, round,
                                                state = trainer.state, run = process_->run] {
    if (process_ && process_->boot == boot && process_->trainer.incarnation == incarnation && process_->trainer.up) {
      feed(agent::TrainerSaved{run, incarnation, round, save_trainer(round, state).value_or("")});
    }
  });
}

std::optional<TrainerState> IslandHost::saved_trainer(const RunId& run, Round round) const {
  const DiskPath folder = runs() / run.text / "checkpoints" / std::to_string(round.value) / kTrainerFolder;
  const Result<std::unique_ptr<DiskFile>> file = (folder / kStateFile).open(OpenFor::reading);
  std::uint64_t place = std::numeric_limits<std::uint64_t>::max();
  const auto bytes = std::as_writable_bytes(std::span(&place, 1));
  if (!file || (*file)->read(0, bytes).value_or(0) != bytes.size() || place >= saved_.size()) {
    return std::nullopt;
  }
  return saved_[static_cast<std::size_t>(place)];
}

void IslandHost::form_initial_state(const agent::FormInitialState& effect) {
  Trainer& trainer = process_->trainer;
  if (!trainer.up || trainer.incarnation != effect.incarnation) {
    return;
  }
  for (std::uint32_t fragment = 0; fragment < process_->fragments.size(); ++fragment) {
    std::ranges::copy(range(trainer.state.parameters, fragment), in_arena(fragment).begin());
  }
  on_engine(Duration(0), [this, effect] { order(effect); });
}

void IslandHost::load_trainer(const agent::LoadTrainer& effect) {
  Trainer& trainer = process_->trainer;
  for (std::uint32_t fragment = 0; fragment < process_->fragments.size(); ++fragment) {
    std::ranges::copy(in_arena(fragment), range(trainer.state.parameters, fragment).begin());
  }
  start_from_here(trainer.state);
  trainer.state.step = effect.step;
  trainer.state.position = effect.position;
  trainer.state.published_at.assign(process_->fragments.size(), effect.position);
  trainer.state.trained = Trained{trainer.part, effect.position, effect.position, cluster_.next_load(), {}};
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

void IslandHost::plan_trainer(const agent::PlanTrainer& effect) {
  Trainer& trainer = process_->trainer;
  for (const agent::MergeOrder& merge : effect.merge) {
    if (merge.save) {  // what is left of the same round, given up, goes
      const DiskPath partial = runs() / effect.run.text / "checkpoints" / ("." + std::to_string(merge.round.value) + ".partial");
      static_cast<void>((partial / kTrainerFolder).remove());
    }
  }
  trainer.until = std::max(trainer.until, effect.until);
  trainer.orders.add(effect.publish, effect.merge);
  advance_trainer();
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
  if (!trainer.up || trainer.stepping || open_run(process_->run) == nullptr) {
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
      if (trainer.results.erase({trainer.awaited->round, trainer.awaited->fragment}) == 0) {
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
  const Scenario& scenario = cluster_.scenario();
  const std::uint64_t inside = gradients() ? 1 : 0;  // a gradient belongs to the step that it is about to make
  const Step step(trainer.state.step.value + inside);
  const std::span<float> arena = in_arena(order.fragment);
  std::ranges::copy(range(gradients() ? trainer.gradient : trainer.state.parameters, order.fragment), arena.begin());
  checkers(process_->run).published(id_, order.round, step, trainer.stood_at);
  agent::TrainerPublished event{process_->run,
                                trainer.incarnation,
                                order.round,
                                step,
                                trainer.state.position + inside,
                                {.training_loss = 1.0, .fragment = order.fragment}};
  std::uint64_t& before = trainer.state.published_at[order.fragment];
  event.facts.steps = event.position - before;
  event.facts.tokens = std::max<std::uint64_t>(1, event.facts.steps * (100 + index_));
  tokens_published_ += event.facts.tokens;
  before = event.position;
  Trained& held = process_->published[order.round] = trainer.state.trained;
  held.from = gradients() ? trainer.state.position : held.from;  // a gradient holds nothing of earlier steps
  process_->newest_published[order.fragment] = held;
  const bool alone = process_->composition.group == Group::nobody;
  if (explode_ || (cluster_.troubled() && cluster_.rng().chance(scenario.exploding))) {
    explode_ = false;
    const auto outer = open_run(process_->run)->parameters().subspan(process_->fragments[order.fragment].offset, arena.size());
    const bool difference = process_->composition.payload == PayloadKind::outer_gradient;
    for (std::size_t i = 0; i < arena.size(); ++i) {
      const float zero = difference && !outer.empty() ? outer[i] : 0.0F;
      arena[i] = zero + 1000.0F * (arena[i] - zero);
    }
  }
  if (cluster_.troubled() && !alone && cluster_.rng().chance(scenario.nonfinite)) {
    arena.front() = std::numeric_limits<float>::quiet_NaN();  // it does not say so itself
  }
  process_->newest_parameters[order.fragment] = Vector(arena.begin(), arena.end());
  if (spoil_ || (cluster_.troubled() && cluster_.rng().chance(scenario.nonfinite))) {
    spoil_ = false;
    event.nonfinite = true;
  }
  process_->moved.erase(order.round);
  if (trainer.state.unsaid.contains(order.fragment)) {  // else what it said before may count or not
    Vector& moved = process_->moved[order.round];
    moved.resize(arena.size());
    std::ranges::transform(range(trainer.state.start, order.fragment), arena, moved.begin(), std::minus<>());
    trainer.state.unsaid.erase(order.fragment);
  }
  event.facts.fragment += misnames_fragments_ ? 1 : 0;
  feed(event);
}

void IslandHost::take_result(const agent::MergeOrder& order) {
  Trainer& trainer = process_->trainer;
  const std::span<float> arena = in_arena(order.fragment);
  if (gradients()) {
    std::ranges::copy(arena, trainer.gradient.begin());
    inner_step();
    std::ranges::copy(trainer.state.parameters, arena.begin());
  } else if (const Status status = merge(order.alpha, arena, range(trainer.state.parameters, order.fragment)); !status) {
    cluster_.checkers().fail("the merge failed: " + status.error().why);
  }
  std::ranges::copy(range(trainer.state.parameters, order.fragment), range(trainer.state.start, order.fragment).begin());
  trainer.state.unsaid.insert(order.fragment);
  ++results_taken_;
  checkers(process_->run).merged(id_, order.round, trainer.state.step, trainer.stood_at);
  agent::TrainerMerged event{
      process_->run, trainer.incarnation,      order.round, order.fragment, trainer.state.step, trainer.state.position, 0.0,
      1.0,           agent::TrainerSave::none, ""};
  if (order.save || trainer.last == order.round) {
    if (cluster_.scenario().saving > Duration(0) && !gradients()) {
      event.save = agent::TrainerSave::going_on;
      save_beside(order.round);
    } else {
      event.save_error = save_trainer(order.round, trainer.state).value_or("");
      event.save = event.save_error.empty() ? agent::TrainerSave::done : agent::TrainerSave::none;
    }
  }
  feed(event);
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
    const auto same = [&] {
      return process_ && process_->boot == boot && process_->trainer.incarnation == incarnation && process_->trainer.loads == loads &&
             process_->trainer.up;
    };
    if (!same()) {
      return;
    }
    TrainerState& state = process_->trainer.state;
    state.trained.to = state.position + 1;
    const DataShare& share = process_->trainer.share;
    checkers(process_->run).trained_on(process_->trainer.part, state.position, share.sequence(state.position));
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
    progress.tokens = process_->trainer.state.position * process_->spec.training.batch * tokens_per_sequence(process_->spec);
    feed(progress);
    if (same()) {
      advance_trainer();
    }
  });
}

// By the gradient that is there.
void IslandHost::inner_step() {
  TrainerState& state = process_->trainer.state;
  for (std::size_t i = 0; i < state.parameters.size(); ++i) {
    state.parameters[i] -= process_->trainer.gradient[i];
  }
  process_->trainer.gradient.clear();
  state.step = std::max(state.step.next(), process_->trainer.skip_to);
  state.position += 1;
  ++steps_;
}

}  // namespace atl::sim
