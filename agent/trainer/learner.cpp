#include "agent/trainer/learner.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "agent/island_link/arena.hpp"
#include "agent/trainer/data/learning_rate.hpp"
#include "agent/trainer/device_copies.hpp"
#include "agent/trainer/kernels/adamw.hpp"
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

// Neighbouring leaves with the same weight decay.
struct DecayRange {
  std::int64_t offset;
  std::int64_t count;
  bool decays;
};

std::vector<DecayRange> decay_ranges(const std::vector<Objective::Leaf>& leaves) {
  std::vector<DecayRange> ranges;
  for (const Objective::Leaf& leaf : leaves) {
    if (!ranges.empty() && ranges.back().decays == leaf.matrix) {
      ranges.back().count += leaf.tensor.numel();
    } else {
      ranges.push_back({leaf.offset, leaf.tensor.numel(), leaf.matrix});
    }
  }
  return ranges;
}

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
  at::Tensor gradient;
  at::Tensor first;
  at::Tensor second;
  at::Tensor average;  // of the synchronised parameters; undefined where none is kept
  std::vector<DecayRange> ranges;
  at::Tensor decay_mask;  // on a GPU: 1 where weight decay applies

  std::span<float> arena;
  std::vector<std::vector<CopyRun>> runs;                   // by fragment
  std::vector<std::uint64_t> averaged_at;                   // by fragment: the step of the parameters that its average took in last
  std::unique_ptr<DeviceCopies> copies;                     // of a GPU
  std::vector<std::vector<DeviceCopies::Fetched>> fetched;  // by fragment, as its runs

  std::uint64_t step = 0;
  std::uint64_t position = 0;
  std::uint64_t updates = 0;           // of the optimiser
  std::vector<double> losses;          // of a processor's steps
  std::vector<at::Tensor> gpu_losses;  // of a GPU's, which nobody has waited for yet

  State(const Configure& configure, std::unique_ptr<Objective> aim, at::Device where, bool half)
      : training(configure.training),
        gradients(configure.payload == island_link::Payload::gradient),
        objective(std::move(aim)),
        data(objective->data_digest()),
        learning_rate{training.learning_rate, training.warmup_steps, training.steps, training.final_learning_rate},
        device(where),
        bf16(half),
        parameters(objective->parameters()),
        gradient(at::zeros_like(parameters)),
        first(at::zeros_like(parameters)),
        second(at::zeros_like(parameters)) {
    const std::vector<Objective::Leaf> leaves = objective->leaves();
    ranges = decay_ranges(leaves);
    for (const Objective::Leaf& leaf : leaves) {
      leaf.tensor.mutable_grad() = gradient.narrow(0, leaf.offset, leaf.tensor.numel()).view(leaf.tensor.sizes());
    }
    if (objective->average_decay()) {
      average = parameters.clone();
    }
    if (device.is_cuda()) {
      decay_mask = at::zeros_like(parameters);
      for (const DecayRange& range : ranges) {
        decay_mask.narrow(0, range.offset, range.count).fill_(range.decays ? 1.0 : 0.0);
      }
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

  void step_on_processor(const AdamW& settings, const DecayRange& range) const {
    const auto from = static_cast<std::size_t>(range.offset);
    const auto count = static_cast<std::size_t>(range.count);
    AdamW own = settings;
    own.weight_decay = range.decays ? settings.weight_decay : 0.0;
    adamw_step(own, {floats_of(parameters).subspan(from, count), floats_of(gradient).subspan(from, count),
                     floats_of(first).subspan(from, count), floats_of(second).subspan(from, count)});
  }

  // The same arithmetic as adamw_step, without waiting for the GPU; a gradient that is not finite counts as zero.
  void step_on_gpu(const AdamW& settings) {
    const at::Tensor norm = gradient.norm();
    const at::Tensor finite = at::isfinite(norm);
    at::Tensor scale = finite.to(at::kFloat);
    if (!gpu_losses.empty()) {
      at::Tensor& loss = gpu_losses.back();  // finite or not: with such a gradient the step counts as not finite
      loss = at::where(finite, loss, at::full_like(loss, std::numeric_limits<double>::quiet_NaN()));
    }
    if (training.clip_norm > 0.0) {
      scale = scale * at::clamp_max(training.clip_norm / (at::nan_to_num(norm) + 1e-6), 1.0);
    }
    const at::Tensor g = at::nan_to_num(gradient, 0.0, 0.0, 0.0) * scale;
    const auto t = static_cast<double>(settings.step);
    parameters.addcmul_(parameters, decay_mask, -settings.learning_rate * settings.weight_decay);
    first.mul_(settings.beta1).add_(g, 1.0 - settings.beta1);
    second.mul_(settings.beta2).addcmul_(g, g, 1.0 - settings.beta2);
    const at::Tensor denominator = second.sqrt().mul_(1.0 / std::sqrt(1.0 - std::pow(settings.beta2, t))).add_(settings.epsilon);
    parameters.addcdiv_(first, denominator, -settings.learning_rate / (1.0 - std::pow(settings.beta1, t)));
  }

  // The loss was finite, its gradient was not: the step counts as not finite.
  void note_bad_gradient() {
    if (!losses.empty()) {
      losses.back() = std::numeric_limits<double>::quiet_NaN();
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
    ATOLL_ASSIGN(const bool bf16, bf16_named(training.precision, device));
    set_arithmetic_threads(training.threads);
    ATOLL_ASSIGN(std::unique_ptr<Objective> objective,
                 configure.diffusion ? image_objective(configure, device) : language_objective(configure, device));
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
    s.gradient.zero_();
    at::Tensor on_gpu;
    double sum = 0.0;
    for (std::uint64_t micro = 0; micro < accumulation; ++micro) {
      at::Tensor loss;
      {
        const Autocast autocast(s.bf16);
        ATOLL_ASSIGN(loss, s.objective->loss(s.position + micro * rows, rows));
      }
      (accumulation == 1 ? loss : loss / static_cast<double>(accumulation)).backward();
      if (s.device.is_cpu()) {
        sum += loss.item<double>();
      } else {
        on_gpu = on_gpu.defined() ? on_gpu + loss.detach() : loss.detach();
      }
    }
    if (s.device.is_cpu()) {
      s.losses.push_back(sum / static_cast<double>(accumulation));
    } else {
      s.gpu_losses.push_back(on_gpu / static_cast<double>(accumulation));
    }
    return {};
  });
}

Status Learner::apply_gradient(double progress) {
  return catching([this, progress]() -> Status {
    const at::NoGradGuard no_gradient;
    State& s = *state_;
    AdamW settings;
    const auto step = static_cast<double>(s.step + 1);
    const auto steps = static_cast<double>(s.training.steps);
    settings.learning_rate = s.learning_rate.at(progress > step / steps ? progress * steps : step);
    settings.weight_decay = s.training.weight_decay;
    settings.beta1 = s.training.beta1;
    settings.beta2 = s.training.beta2;
    settings.epsilon = s.training.epsilon;
    settings.step = s.updates + 1;
    if (s.device.is_cpu()) {
      const double norm = std::sqrt(sum_of_squares(floats_of(s.gradient)));
      if (s.training.clip_norm > 0.0 && norm > s.training.clip_norm) {
        settings.gradient_scale = static_cast<float>(s.training.clip_norm / (norm + 1e-6));
      }
      // One bad batch must not ruin the optimiser's state for good; the agent hears of it and decides.
      if (!std::isfinite(norm)) {
        s.note_bad_gradient();
      } else {
        for (const DecayRange& range : s.ranges) {
          s.step_on_processor(settings, range);
        }
        ++s.updates;
      }
    } else {
      s.step_on_gpu(settings);
      ++s.updates;
    }
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

Result<std::vector<double>> Learner::take_losses() {
  return catching([this]() -> Result<std::vector<double>> {
    std::vector<double> losses = std::exchange(state_->losses, {});
    if (!state_->gpu_losses.empty()) {
      const at::Tensor all = at::stack(std::exchange(state_->gpu_losses, {})).to(at::kDouble).cpu();
      losses.insert(losses.end(), all.data_ptr<double>(), all.data_ptr<double>() + all.numel());
    }
    return losses;
  });
}

Result<std::function<Learner::Numbers()>> Learner::report(bool wants_norm) {
  return catching([&]() -> Result<std::function<Numbers()>> {
    State& s = *state_;
    if (!s.copies) {
      Numbers numbers;
      ATOLL_ASSIGN(numbers.losses, take_losses());
      numbers.norm = wants_norm ? std::sqrt(sum_of_squares(floats_of(s.gradient))) : 0.0;
      return std::function<Numbers()>([numbers] { return numbers; });
    }
    std::vector<at::Tensor> all = std::exchange(s.gpu_losses, {});
    const std::size_t losses = all.size();
    if (wants_norm) {
      all.push_back(s.gradient.norm());
    }
    const at::Tensor here = all.empty() ? at::empty({0}, at::kDouble) : s.copies->to_host(at::stack(all).to(at::kDouble));
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
    const at::Tensor first = s.first.cpu();
    const at::Tensor second = s.second.cpu();
    const at::Tensor average = s.average.defined() ? s.average.cpu() : at::empty({0}, at::kFloat);
    return save_trainer_state(directory, s.manifest(), {floats_of(parameters), floats_of(first), floats_of(second), floats_of(average)},
                              {s.step, s.position, s.updates, s.average.defined() ? s.averaged_at : std::vector<std::uint64_t>(), s.data});
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
    s.first.copy_(first);
    s.second.copy_(second);
    if (s.average.defined()) {
      s.average.copy_(average);
      // Saved under another strategy's fragments: taken as that of all of them.
      s.averaged_at = place.averaged_at.size() == s.averaged_at.size() ? place.averaged_at
                                                                       : std::vector<std::uint64_t>(s.averaged_at.size(), place.step);
    }
    s.updates = place.updates;
    stand_at(step, position);
    return {};
  });
}

}  // namespace atl
