#include "agent/trainer/diffusion/dit_learner.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "agent/island_link/arena.hpp"
#include "agent/trainer/adamw.hpp"
#include "agent/trainer/data/learning_rate.hpp"
#include "agent/trainer/new_file.hpp"
#include "agent/trainer/tensor_values.hpp"
#include "agent/trainer/torch_runtime.hpp"

namespace atl {
namespace {

constexpr const char* kSizesKey = "atoll.dit";

std::int64_t elements_of(const DitSizes& sizes) {
  return static_cast<std::int64_t>(island_link::elements(Dit::manifest(sizes).parameters));
}

// Parts of a flat tensor on the processor under their names with `suffix` behind.
void add_views(const DitSizes& sizes, const at::Tensor& flat, const std::string& suffix, std::vector<TensorView>& views) {
  std::size_t at = 0;
  for (const island_link::Parameter& parameter : Dit::manifest(sizes).parameters) {
    const std::size_t count = island_link::elements(parameter);
    views.push_back({parameter.name + suffix, parameter.shape, std::span<const float>(floats_of(flat)).subspan(at, count)});
    at += count;
  }
}

Status read_into(const SafetensorsFile& file, const DitSizes& sizes, const std::string& suffix, const at::Tensor& flat) {
  const at::Tensor here = at::empty({flat.numel()}, at::kFloat);
  std::size_t at = 0;
  for (const island_link::Parameter& parameter : Dit::manifest(sizes).parameters) {
    const TensorEntry* entry = file.header().find(parameter.name + suffix);
    if (entry == nullptr || entry->shape != parameter.shape) {
      return Error{Code::corrupt, "it is of another model: no tensor '" + parameter.name + suffix + "' of the right shape"};
    }
    ATOLL_ASSIGN(const std::span<const float> values, file.floats(entry->name));
    std::copy(values.begin(), values.end(), floats_of(here).begin() + static_cast<std::ptrdiff_t>(at));
    at += values.size();
  }
  const at::NoGradGuard no_gradient;
  flat.copy_(here);
  return {};
}

}  // namespace

Status write_tensors(const std::string& path, std::vector<TensorView> tensors, const std::map<std::string, std::string>& metadata) {
  NewFile file(path + ".new");
  ATOLL_TRY(file.opened());
  ATOLL_TRY(write_safetensors(std::move(tensors), metadata, [&file](ByteView bytes) { return file.write(bytes); }));
  return file.keep_as(path);
}

struct DitLearner::State {
  DitSizes sizes;
  island_link::Training training;
  double ema;
  LearningRate learning_rate;
  at::Tensor parameters, average;
  Dit model;
  Dit averaged;
  AdamW optimizer;
  bool bf16 = false;
  std::uint64_t step = 0;

  State(const DitSizes& chosen, const island_link::Training& settings, double decay, const at::Tensor& flat)
      : sizes(chosen),
        training(settings),
        ema(decay),
        learning_rate{settings.learning_rate, settings.warmup_steps, settings.steps, settings.final_learning_rate},
        parameters(flat),
        average(at::zeros_like(flat)),
        model(chosen, flat),
        averaged(chosen, average),
        optimizer(settings, flat, model.leaves()) {}
};

DitLearner::DitLearner(std::unique_ptr<State> state) : state_(std::move(state)) {}
DitLearner::DitLearner(DitLearner&&) noexcept = default;
DitLearner& DitLearner::operator=(DitLearner&&) noexcept = default;
DitLearner::~DitLearner() = default;

Result<DitLearner> DitLearner::make(const DitSizes& given, const island_link::Training& training, double ema, std::uint64_t seed) {
  ATOLL_ASSIGN(const DitSizes sizes, Dit::checked(given));
  ATOLL_ASSIGN(const at::Device device, device_named(training.device));
  ATOLL_ASSIGN(const bool bf16, bf16_named(training.precision, device, elements_of(sizes)));
  set_arithmetic_threads(training.threads);
  ATOLL_TRY(fits_in_memory(elements_of(sizes), device));
  const at::Tensor flat = at::empty({elements_of(sizes)}, at::TensorOptions(at::kFloat).device(device));
  auto state = std::make_unique<State>(sizes, training, ema, flat);
  state->bf16 = bf16;
  state->model.initialize(seed);
  const at::NoGradGuard no_gradient;
  state->average.copy_(state->parameters);
  return DitLearner(std::move(state));
}

std::uint64_t DitLearner::step() const { return state_->step; }
at::Device DitLearner::device() const { return state_->parameters.device(); }
const Dit& DitLearner::averaged() const { return state_->averaged; }

Result<at::Tensor> DitLearner::take_step(const std::function<at::Tensor(const Dit&)>& loss_of) {
  State& s = *state_;
  s.optimizer.forget_gradients();
  at::Tensor loss;
  {
    const Autocast autocast(s.bf16);
    loss = loss_of(s.model);
  }
  loss.backward();
  const at::NoGradGuard no_gradient;
  const at::Tensor norm = s.optimizer.norm();
  ++s.step;
  s.optimizer.step(s.learning_rate.at(static_cast<double>(s.step)), norm);
  const at::Tensor& updates = s.optimizer.updates();
  const at::Tensor decay = at::clamp_max((updates + 1.0) / (updates + 10.0), s.ema);
  s.average.lerp_(s.parameters, (1.0 - decay) * at::isfinite(norm));
  return loss.detach();
}

Status DitLearner::save(const std::string& path) const {
  const State& s = *state_;
  const at::Tensor parameters = s.parameters.cpu(), first = s.optimizer.first().cpu(), second = s.optimizer.second().cpu(),
                   average = s.average.cpu();
  std::vector<TensorView> views;
  add_views(s.sizes, parameters, "", views);
  add_views(s.sizes, first, ".exp_avg", views);
  add_views(s.sizes, second, ".exp_avg_sq", views);
  add_views(s.sizes, average, ".ema", views);
  return write_tensors(path, std::move(views),
                       {{kSizesKey, Dit::describe(s.sizes)},
                        {"atoll.step", std::to_string(s.step)},
                        {"atoll.updates", std::to_string(static_cast<std::uint64_t>(s.optimizer.updates().item<double>()))}});
}

Status DitLearner::restore(const std::string& path) {
  State& s = *state_;
  const auto read = [&]() -> Status {
    ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
    ATOLL_TRY(read_into(file, s.sizes, "", s.parameters));
    ATOLL_TRY(read_into(file, s.sizes, ".exp_avg", s.optimizer.first()));
    ATOLL_TRY(read_into(file, s.sizes, ".exp_avg_sq", s.optimizer.second()));
    ATOLL_TRY(read_into(file, s.sizes, ".ema", s.average));
    std::uint64_t updates = 0;
    for (const auto& [key, to] : {std::pair{"atoll.step", &s.step}, std::pair{"atoll.updates", &updates}}) {
      const auto found = file.header().metadata.find(key);
      const std::string text = found == file.header().metadata.end() ? "" : found->second;
      if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), *to).ptr != text.data() + text.size()) {
        return Error{Code::corrupt, "it has no proper " + std::string(key)};
      }
    }
    s.optimizer.set_updates(updates);
    return {};
  };
  const Status done = read();
  return done ? done : Status(with_context(done.error(), "cannot continue from " + path));
}

Status DitLearner::export_average(const std::string& path, std::map<std::string, std::string> metadata) const {
  const at::Tensor average = state_->average.cpu();
  std::vector<TensorView> views;
  add_views(state_->sizes, average, "", views);
  metadata["format"] = "pt";
  metadata[kSizesKey] = Dit::describe(state_->sizes);
  return write_tensors(path, std::move(views), metadata);
}

Result<Dit> load_dit(const SafetensorsFile& file, const at::Device& device) {
  const auto& metadata = file.header().metadata;
  // A model of a run of rounds says what it is where every trainer's does.
  const auto described = metadata.contains(kSizesKey) ? metadata.find(kSizesKey) : metadata.find("atoll.description");
  if (described == metadata.end()) {
    return Error{Code::corrupt, "not a model of a diffusion run: it has neither `atoll.dit` nor `atoll.description`"};
  }
  ATOLL_ASSIGN(const DitSizes sizes, Dit::described(described->second));
  const at::Tensor flat = at::empty({elements_of(sizes)}, at::TensorOptions(at::kFloat).device(device));
  ATOLL_TRY(read_into(file, sizes, "", flat));
  return Dit(sizes, flat);
}

}  // namespace atl
