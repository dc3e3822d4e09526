#include "agent/trainer/learner.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "agent/island_link/arena.hpp"
#include "agent/trainer/adamw.hpp"
#include "agent/trainer/data/learning_rate.hpp"
#include "agent/trainer/device_copies.hpp"
#include "agent/trainer/objective.hpp"
#include "agent/trainer/tensor_values.hpp"
#include "agent/trainer/torch_runtime.hpp"
#include "agent/trainer/trainer_state.hpp"

namespace atl {

using island_link::ArenaLayout;
using island_link::Configure;
using island_link::Manifest;
using island_link::Training;

namespace {

// Neighbours in the flat tensor that are neighbours in the arena, too.
struct CopyRun {
  std::int64_t flat;
  std::uint64_t arena;
  std::int64_t count;
};

// What is left of an average that decays by min(decay, (1 + s)/(10 + s)) at every step s, from step `from` to step `to`. Nothing if it goes
// back.
double average_share(double decay, std::uint64_t from, std::uint64_t to) {
  if (to < from) {
    return 0.0;
  }
  // The first factors are (1 + s)/(10 + s), whose product from a to b is that of (a + k)/(b + 1 + k) over k = 1 … 9.
  const auto turn = static_cast<std::uint64_t>(std::max(0.0, (10.0 * decay - 1.0) / (1.0 - decay)));
  const std::uint64_t last = std::clamp(turn, from, to);
  double share = std::pow(decay, static_cast<double>(to - last));
  for (int k = 1; last > from && k <= 9; ++k) {
    share *= static_cast<double>(from + 1 + static_cast<std::uint64_t>(k)) / static_cast<double>(last + 1 + static_cast<std::uint64_t>(k));
  }
  return share;
}

Status check(const Training& training) {
  if (training.batch == 0 || training.sequence_length == 0 || training.accumulation == 0 || training.batch % training.accumulation != 0) {
    return Error{Code::invalid_argument, "training: batch and sequence_length must be at least 1, and accumulation a divisor of batch"};
  }
  return {};
}

}  // namespace

struct Learner::State {
  Training training;
  bool gradients;  // are exchanged, not parameters
  std::unique_ptr<Objective> objective;
  std::string data;  // which, as it was opened
  LearningRate learning_rate;
  at::Device device;
  bool bf16;

  // Flat, in manifest order.
  at::Tensor parameters;
  at::Tensor gradient;  // of the last step, where gradients are exchanged
  at::Tensor average;   // of the synchronised parameters; undefined where none is kept
  AdamW optimizer;
  at::Tensor norm;  // of the last step's gradient

  std::span<float> arena;
  std::vector<std::vector<CopyRun>> runs;                   // by fragment
  std::vector<std::uint64_t> averaged_at;                   // by fragment: the step of the parameters that its average took in last
  std::unique_ptr<DeviceCopies> copies;                     // of a GPU
  std::vector<std::vector<DeviceCopies::Fetched>> fetched;  // by fragment, as its runs

  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::vector<at::Tensor> losses;  // which nobody has waited for yet

  State(const Configure& configure, std::unique_ptr<Objective> aim, at::Device where, bool half)
      : training(configure.training),
        gradients(configure.payload == island_link::Payload::gradient),
        objective(std::move(aim)),
        data(objective->data_digest()),
        learning_rate{training.learning_rate, training.warmup_steps, training.steps, training.final_learning_rate},
        device(where),
        bf16(half),
        parameters(objective->parameters()),
        optimizer(training, parameters, objective->leaves()),
        norm(at::zeros({}, parameters.options())) {
    if (gradients) {
      gradient = at::zeros_like(parameters);
    }
    if (objective->average_decay()) {
      average = parameters.clone();
    }
  }

  [[nodiscard]] const Manifest& manifest() const { return objective->manifest(); }

  // The average takes in these values of a fragment's runs at `present`, for all the steps since it did so before.
  void take_into_average(std::uint32_t fragment, std::uint64_t present, const std::vector<at::Tensor>& values) {
    if (!average.defined()) {
      return;
    }
    const double kept = average_share(*objective->average_decay(), averaged_at[fragment], present);
    averaged_at[fragment] = present;
    for (std::size_t i = 0; i < values.size(); ++i) {
      mix(part(average, runs[fragment][i]), values[i], kept);
    }
  }

  static at::Tensor part(const at::Tensor& flat, const CopyRun& run) { return flat.narrow(0, run.flat, run.count); }

  // ours ← kept·ours + (1 − kept)·theirs; 0 is an exact copy.
  static void mix(at::Tensor ours, const at::Tensor& theirs, double kept) {
    if (kept == 0.0) {
      ours.copy_(theirs);
    } else {
      ours.mul_(kept).add_(theirs, 1.0 - kept);
    }
  }

  // Copies a fragment from a flat tensor into the arena.
  void to_arena(std::uint32_t fragment, const at::Tensor& flat) {
    for (const CopyRun& run : runs[fragment]) {
      if (copies) {
        copies->write(part(flat, run), arena.data() + run.arena);
      } else {
        at::from_blob(arena.data() + run.arena, {run.count}, at::kFloat).copy_(part(flat, run));
      }
    }
  }

  void fetch(std::uint32_t fragment) {
    fetched[fragment].clear();
    for (const CopyRun& run : runs[fragment]) {
      fetched[fragment].push_back(copies->fetch(arena.subspan(run.arena, static_cast<std::size_t>(run.count))));
    }
  }

  // What the arena has of a fragment, by its runs, on the device.
  std::vector<at::Tensor> of_arena(std::uint32_t fragment) {
    std::vector<at::Tensor> values;
    if (!copies) {
      for (const CopyRun& run : runs[fragment]) {
        values.push_back(at::from_blob(arena.data() + run.arena, {run.count}, at::kFloat));
      }
      return values;
    }
    if (fetched[fragment].empty()) {
      fetch(fragment);
    }
    for (const DeviceCopies::Fetched& run : std::exchange(fetched[fragment], {})) {
      values.push_back(copies->use(run));
    }
    return values;
  }

  void take(std::uint32_t fragment, const at::Tensor& flat, const std::vector<at::Tensor>& values, double alpha) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      mix(part(flat, runs[fragment][i]), values[i], alpha);
    }
  }

  Status check_fragment(std::uint32_t fragment) const {
    if (fragment >= runs.size()) {
      return Error{Code::corrupt, "there is no fragment " + std::to_string(fragment)};
    }
    return {};
  }
};

Learner::Learner(std::unique_ptr<State> state) : state_(std::move(state)) {}
Learner::Learner(Learner&&) noexcept = default;
Learner& Learner::operator=(Learner&&) noexcept = default;
Learner::~Learner() = default;

Result<Learner> Learner::make(const Configure& configure) {
  return catching([&]() -> Result<Learner> {
    const Training& training = configure.training;
    ATOLL_TRY(check(training));
    ATOLL_ASSIGN(const at::Device device, device_named(training.device));
    set_arithmetic_threads(training.threads);
    ATOLL_ASSIGN(std::unique_ptr<Objective> objective,
                 configure.diffusion ? image_objective(configure, device) : language_objective(configure, device));
    ATOLL_ASSIGN(const bool bf16, bf16_named(training.precision, device, objective->parameters().numel()));
    objective->deal(DataShare{configure.data.classes, configure.data.stretches, configure.data.part, configure.data.parts});
    return Learner(std::make_unique<State>(configure, std::move(objective), device, bf16));
  });
}

void Learner::deal(DataShare share) { state_->objective->deal(std::move(share)); }

const Manifest& Learner::manifest() const { return state_->manifest(); }
std::uint64_t Learner::step() const { return state_->step; }
std::uint64_t Learner::position() const { return state_->position; }
std::uint64_t Learner::tokens_per_step() const { return state_->training.batch * state_->objective->tokens_per_sequence(); }
std::uint64_t Learner::windows_per_step() const { return state_->training.batch; }
std::uint64_t Learner::tokens_available() const {
  return state_->objective->sequences_per_epoch() * state_->objective->tokens_per_sequence();
}
std::string Learner::data_listing() const { return state_->objective->data_listing(); }
std::size_t Learner::fragments() const { return state_->runs.size(); }

Status Learner::attach(std::span<float> arena, const ArenaLayout& layout) {
  State& s = *state_;
  ATOLL_TRY(island_link::check_layout(s.manifest(), layout));
  if (arena.size_bytes() != layout.bytes) {
    return Error{Code::corrupt, "the arena and its layout have different sizes"};
  }
  std::vector<std::uint64_t> arena_offset(s.manifest().parameters.size());
  for (const island_link::Entry& entry : layout.entries) {
    arena_offset[entry.parameter] = entry.offset;
  }
  s.runs.assign(layout.fragments.size(), {});
  s.averaged_at.assign(layout.fragments.size(), s.step);
  std::int64_t flat = 0;
  for (std::size_t i = 0; i < arena_offset.size(); ++i) {
    const auto count = static_cast<std::int64_t>(island_link::elements(s.manifest().parameters[i]));
    const auto fragment = std::find_if(layout.fragments.begin(), layout.fragments.end(), [&](const island_link::Fragment& f) {
      return arena_offset[i] >= f.offset && arena_offset[i] < f.offset + f.count;
    });
    std::vector<CopyRun>& runs = s.runs[static_cast<std::size_t>(fragment - layout.fragments.begin())];
    if (!runs.empty() && runs.back().flat + runs.back().count == flat &&
        runs.back().arena + static_cast<std::uint64_t>(runs.back().count) == arena_offset[i]) {
      runs.back().count += count;
    } else {
      runs.push_back({flat, arena_offset[i], count});
    }
    flat += count;
  }
  s.arena = arena;
  s.fetched.resize(s.runs.size());
  return catching([&]() -> Status {
    s.copies = s.device.is_cuda() ? std::make_unique<DeviceCopies>(s.device, arena) : nullptr;
    return {};
  });
}

Status Learner::compute_gradient() {
  return catching([this]() -> Status {
    State& s = *state_;
    const std::uint64_t accumulation = s.training.accumulation;
    const std::uint64_t rows = s.training.batch / accumulation;
    if (s.gradients) {
      s.optimizer.gather_gradients(s.gradient);
    } else {
      s.optimizer.forget_gradients();
    }
    at::Tensor mean;
    for (std::uint64_t micro = 0; micro < accumulation; ++micro) {
      at::Tensor loss;
      {
        const Autocast autocast(s.bf16);
        ATOLL_ASSIGN(loss, s.objective->loss(s.position + micro * rows, rows));
      }
      if (accumulation > 1) {
        loss = loss / static_cast<double>(accumulation);
      }
      loss.backward();
      mean = mean.defined() ? mean + loss.detach() : loss.detach();
    }
    s.norm = s.optimizer.norm();
    // Where the loss is finite and its gradient is not, the step counts as not finite.
    s.losses.push_back(at::where(at::isfinite(s.norm), mean, at::full_like(mean, std::numeric_limits<double>::quiet_NaN())));
    return {};
  });
}

Status Learner::apply_gradient(double progress) {
  return catching([this, progress]() -> Status {
    const at::NoGradGuard no_gradient;
    State& s = *state_;
    const auto step = static_cast<double>(s.step + 1);
    const auto steps = static_cast<double>(s.training.steps);
    // One bad batch must not ruin the optimiser's state for good; the agent hears of it and decides.
    s.optimizer.step(s.learning_rate.at(progress > step / steps ? progress * steps : step),
                     s.gradients ? s.optimizer.norm() : s.norm);  // what was exchanged is another gradient
    ++s.step;
    s.position += s.training.batch;
    for (std::uint32_t fragment = 0; s.gradients && fragment < s.runs.size(); ++fragment) {
      std::vector<at::Tensor> values;
      for (const CopyRun& run : s.runs[fragment]) {
        values.push_back(State::part(s.parameters, run));
      }
      s.take_into_average(fragment, s.step, values);
    }
    return {};
  });
}

Result<std::function<Learner::Numbers()>> Learner::report(bool wants_norm) {
  return catching([&]() -> Result<std::function<Numbers()>> {
    State& s = *state_;
    std::vector<at::Tensor> all = std::exchange(s.losses, {});
    const std::size_t losses = all.size();
    if (wants_norm) {
      all.push_back(s.norm);
    }
    const at::Tensor there = all.empty() ? at::empty({0}, at::kDouble) : at::stack(all).to(at::kDouble);
    const at::Tensor here = s.copies ? s.copies->to_host(there) : there.cpu();
    return std::function<Numbers()>([here, losses, wants_norm] {
      const auto* values = here.data_ptr<double>();
      return Numbers{{values, values + losses}, wants_norm ? values[losses] : 0.0};
    });
  });
}

Status Learner::write_parameters(std::uint32_t fragment) {
  ATOLL_TRY(state_->check_fragment(fragment));
  return catching([&]() -> Status {
    state_->to_arena(fragment, state_->parameters);
    return {};
  });
}

Status Learner::write_gradient(std::uint32_t fragment) {
  ATOLL_TRY(state_->check_fragment(fragment));
  return catching([&]() -> Status {
    state_->to_arena(fragment, state_->gradient);
    return {};
  });
}

Status Learner::fetch(std::uint32_t fragment) {
  ATOLL_TRY(state_->check_fragment(fragment));
  return catching([&]() -> Status {
    if (state_->copies) {
      state_->fetch(fragment);
    }
    return {};
  });
}

Status Learner::merge_parameters(std::uint32_t fragment, double alpha, bool fetched) {
  ATOLL_TRY(state_->check_fragment(fragment));
  return catching([&]() -> Status {
    const at::NoGradGuard no_gradient;
    State& s = *state_;
    if (!fetched) {
      s.fetched[fragment].clear();  // the run went on from elsewhere
    }
    const std::vector<at::Tensor> values = s.of_arena(fragment);
    s.take(fragment, s.parameters, values, alpha);
    s.take_into_average(fragment, s.step, values);
    return {};
  });
}

Status Learner::read_gradient(std::uint32_t fragment) {
  ATOLL_TRY(state_->check_fragment(fragment));
  return catching([&]() -> Status {
    state_->take(fragment, state_->gradient, state_->of_arena(fragment), 0.0);
    return {};
  });
}

Result<std::function<bool()>> Learner::begun() {
  return catching([this]() -> Result<std::function<bool()>> { return state_->copies ? state_->copies->begun() : std::function<bool()>(); });
}

void Learner::stand_at(std::uint64_t step, std::uint64_t position) {
  state_->step = step;
  state_->position = position;
}

std::uint32_t Learner::evaluation_batches() const {
  const std::uint64_t batch = state_->training.batch;
  return static_cast<std::uint32_t>((state_->objective->held_out_sequences() + batch - 1) / batch);
}

Result<std::optional<double>> Learner::evaluate() {
  return catching([this]() -> Result<std::optional<double>> {
    const State& s = *state_;
    const at::NoGradGuard no_gradient;
    const Autocast autocast(s.bf16);
    return s.objective->held_out_loss(s.training.batch / s.training.accumulation);  // no more memory than a step needs
  });
}

Status Learner::save(const std::string& directory) {
  return catching([&]() -> Status {
    const State& s = *state_;
    const at::Tensor parameters = s.parameters.cpu();
    const at::Tensor first = s.optimizer.first().cpu();
    const at::Tensor second = s.optimizer.second().cpu();
    const at::Tensor average = s.average.defined() ? s.average.cpu() : at::empty({0}, at::kFloat);
    return save_trainer_state(directory, s.manifest(), {floats_of(parameters), floats_of(first), floats_of(second), floats_of(average)},
                              {s.step, s.position, static_cast<std::uint64_t>(s.optimizer.updates().item<double>()),
                               s.average.defined() ? s.averaged_at : std::vector<std::uint64_t>(), s.data});
  });
}

Status Learner::restore(const std::string& directory, std::uint64_t step, std::uint64_t position) {
  return catching([&]() -> Status {
    State& s = *state_;
    const at::Tensor parameters = at::empty({s.parameters.numel()}, at::kFloat);
    const at::Tensor first = at::empty_like(parameters);
    const at::Tensor second = at::empty_like(parameters);
    const at::Tensor average = at::empty({s.average.defined() ? s.average.numel() : 0}, at::kFloat);
    ATOLL_ASSIGN(
        const TrainerPlace place,
        load_trainer_state(directory, s.manifest(), {floats_of(parameters), floats_of(first), floats_of(second), floats_of(average)}));
    if (place.step != step || place.position != position) {
      return Error{Code::corrupt, "cannot resume from " + directory + ": it was saved at step " + std::to_string(place.step) +
                                      ", position " + std::to_string(place.position) + ", not at step " + std::to_string(step) +
                                      ", position " + std::to_string(position)};
    }
    if (!place.data.empty() && place.data != s.data) {
      return Error{Code::invalid_argument, "the data are not those that were trained on up to step " + std::to_string(step) + ": then " +
                                               place.data + ", and now " + s.data +
                                               "; put the files back as they were, or begin another run from this one (model.from = "
                                               "\"run:NAME\")"};
    }
    const at::NoGradGuard no_gradient;
    s.parameters.copy_(parameters);
    s.optimizer.first().copy_(first);
    s.optimizer.second().copy_(second);
    if (s.average.defined()) {
      s.average.copy_(average);
      // Saved under another strategy's fragments: taken as that of all of them.
      s.averaged_at = place.averaged_at.size() == s.averaged_at.size() ? place.averaged_at
                                                                       : std::vector<std::uint64_t>(s.averaged_at.size(), place.step);
    }
    s.optimizer.set_updates(place.updates);
    stand_at(step, position);
    return {};
  });
}

}  // namespace atl
