#include "strategies/outer_optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "strategies/co2.hpp"
#include "strategies/codec_kernels.hpp"
#include "strategies/contribution.hpp"
#include "strategies/vectorised.hpp"

namespace atl {
namespace {

constexpr std::size_t kDecodedAtOnce = 4096;   // values decoded at a time: 16 KiB stay in the first-level cache
constexpr std::size_t kStepPart = 256U << 10;  // values stepped by one thread at a time

// g does not overlap the state.
ATOLL_VECTORISED void nesterov(const float* __restrict g, float eta, float mu, std::size_t count, float* __restrict theta,
                               float* __restrict b) {
  for (std::size_t i = 0; i < count; ++i) {
    const float momentum = mu * b[i] + g[i];
    const float direction = g[i] + mu * momentum;
    b[i] = momentum;
    theta[i] = theta[i] - eta * direction;
  }
}

ATOLL_VECTORISED void sgd(const float* __restrict g, float eta, std::size_t count, float* __restrict theta) {
  for (std::size_t i = 0; i < count; ++i) {
    theta[i] = theta[i] - eta * g[i];
  }
}

ATOLL_VECTORISED void heavy_ball(const float* __restrict g, float beta, float alpha, std::size_t count, float* __restrict theta,
                                 float* __restrict m) {
  for (std::size_t i = 0; i < count; ++i) {
    const float momentum = alpha * m[i] - beta * g[i];
    m[i] = momentum;
    theta[i] = theta[i] + momentum;
  }
}

// phi: infinite where nothing is clipped.
ATOLL_VECTORISED void clipped_momentum(const float* __restrict g, float eta, float mu, float phi, std::size_t count,
                                       float* __restrict theta, float* __restrict m) {
  for (std::size_t i = 0; i < count; ++i) {
    float momentum = mu * m[i] + g[i];
    momentum = momentum > phi ? phi : momentum;
    momentum = momentum < -phi ? -phi : momentum;
    m[i] = momentum;
    theta[i] = theta[i] - eta * momentum;
  }
}

// `difference` is mean_j φ_j − φ.
ATOLL_VECTORISED void pulled_heavy_ball(const float* __restrict g, const float* __restrict difference, float beta, float alpha, float gamma,
                                        std::size_t count, float* __restrict theta, float* __restrict m) {
  for (std::size_t i = 0; i < count; ++i) {
    const float momentum = (alpha * m[i] - beta * g[i]) + gamma * difference[i];
    m[i] = momentum;
    theta[i] = theta[i] + momentum;
  }
}

ATOLL_VECTORISED void add_difference(const float* __restrict theirs, const float* __restrict own, std::size_t count,
                                     float* __restrict sum) {
  for (std::size_t i = 0; i < count; ++i) {
    sum[i] = sum[i] + (theirs[i] - own[i]);
  }
}

ATOLL_VECTORISED void scale(float factor, std::size_t count, float* __restrict values) {
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = factor * values[i];
  }
}

Status check_sizes(std::size_t gradient, const OuterOptimizer& settings, const OuterState& state) {
  const std::size_t momentum = state.momentum.size() + state.rounded.size();
  const bool twice = !state.momentum.empty() && !state.rounded.bytes.empty();
  if (twice || gradient != state.parameters.size() || (momentum != gradient && (has_momentum(settings.kind) || momentum != 0))) {
    return Error{Code::invalid_argument, "an outer step of " + std::to_string(gradient) + " values does not fit " +
                                             std::to_string(state.parameters.size()) + " parameters and " + std::to_string(momentum) +
                                             " of momentum"};
  }
  if (state.rounded.at.position % 16 != 0) {
    return Error{Code::invalid_argument, "a range of rounded momentum begins at value " + std::to_string(state.rounded.at.position) +
                                             ", which is not a multiple of 16"};
  }
  return check_outer_optimizer(settings);
}

Status check_finite(std::span<const float> values, std::uint64_t position) {
  if (kernels::max_magnitude(values.data(), values.size()) < kernels::kInfinityBits) {
    return {};
  }
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return Error{Code::corrupt, "the reduced result is not finite at value " +
                                  std::to_string(position + static_cast<std::uint64_t>(found - values.begin()))};
}

// Settings, sizes and finiteness have been checked.
void step(std::span<const float> gradient, const OuterOptimizer& settings, const OuterState& state) {
  const auto eta = static_cast<float>(settings.learning_rate);
  switch (settings.kind) {
    case OuterOptimizerKind::nesterov:
      nesterov(gradient.data(), eta, static_cast<float>(settings.momentum), gradient.size(), state.parameters.data(),
               state.momentum.data());
      return;
    case OuterOptimizerKind::sgd:
      sgd(gradient.data(), eta, gradient.size(), state.parameters.data());
      return;
    case OuterOptimizerKind::heavy_ball:
      heavy_ball(gradient.data(), eta, static_cast<float>(settings.momentum), gradient.size(), state.parameters.data(),
                 state.momentum.data());
      return;
    case OuterOptimizerKind::adopt:
      std::copy(gradient.begin(), gradient.end(), state.parameters.begin());
      return;
    case OuterOptimizerKind::clipped_momentum:
      clipped_momentum(gradient.data(), eta, static_cast<float>(settings.momentum),
                       settings.clip > 0.0 ? static_cast<float>(settings.clip) : std::numeric_limits<float>::infinity(), gradient.size(),
                       state.parameters.data(), state.momentum.data());
      return;
  }
}

// The momentum of one chunk after the other in float32: that of the state, or a copy of what is kept in bf16, which is rounded back.
class MomentumWindow {
 public:
  MomentumWindow(const OuterState& state, const OuterOptimizer& settings, std::size_t chunk)
      : state_(state), copy_(state.rounded.bytes.empty() || !has_momentum(settings.kind) ? 0 : chunk) {}
  std::span<float> open(std::size_t first, std::size_t count) {
    if (copy_.empty()) {
      return state_.momentum.empty() ? state_.momentum : state_.momentum.subspan(first, count);
    }
    const auto values = std::span(copy_).first(count);
    decode_momentum(state_.rounded.from(first), values);
    return values;
  }
  // What `open` gave has been stepped.
  void close(std::size_t first, std::size_t count) {
    if (!copy_.empty()) {
      round_momentum(std::span(copy_).first(count), state_.rounded.from(first));
    }
  }

 private:
  const OuterState& state_;
  std::vector<float> copy_;
};

void step_all(std::span<const float> gradient, const OuterOptimizer& settings, const OuterState& state) {
  const std::size_t chunk = state.rounded.bytes.empty() ? gradient.size() : std::min(kDecodedAtOnce, gradient.size());
  MomentumWindow momentum(state, settings, chunk);
  for (std::size_t done = 0; done < gradient.size(); done += chunk) {
    const std::size_t count = std::min(chunk, gradient.size() - done);
    step(gradient.subspan(done, count), settings, {state.parameters.subspan(done, count), momentum.open(done, count)});
    momentum.close(done, count);
  }
}

// That all members' outer parameters are finite and their differences too.
Status check_group(const GroupParameters& group, std::size_t count) {
  if (group.self >= group.members.size()) {
    return Error{Code::invalid_argument,
                 "a group of " + std::to_string(group.members.size()) + " has no member " + std::to_string(group.self)};
  }
  ATOLL_TRY(check_codec(group.codec));
  double bound = 0.0;
  for (const std::span<const std::byte> member : group.members) {
    ATOLL_ASSIGN(const float largest, encoded_bound(group.codec, member, count));
    bound += static_cast<double>(largest);
  }
  if (bound * static_cast<double>(group.members.size()) >= 0x1p+127) {
    return Error{Code::corrupt, "the outer parameters of the group are too large to subtract: the training has diverged"};
  }
  return {};
}

// mean_j φ_j − φ_self of the values [done, done + out.size()).
void group_difference(const GroupParameters& group, std::size_t done, std::span<float> own, std::span<float> theirs, std::span<float> out) {
  kernels::decode(group.codec, encoded_from(group.codec, group.members[group.self], done).data(), out.size(), own.data());
  std::fill(out.begin(), out.end(), 0.0F);
  for (std::size_t j = 0; j < group.members.size(); ++j) {
    if (j != group.self) {
      kernels::decode(group.codec, encoded_from(group.codec, group.members[j], done).data(), out.size(), theirs.data());
      add_difference(theirs.data(), own.data(), out.size(), out.data());
    }
  }
  scale(static_cast<float>(1.0 / static_cast<double>(group.members.size())), out.size(), out.data());
}

// The values [done, done + out.size()) of what the result's terms come to, with radial_directional not yet of their length.
void put_together(const ReducedResult& result, std::size_t done, std::span<float> out, std::vector<float>& scratch) {
  aggregate(result.aggregator, result.codec, result.terms, done, out, scratch);
  share_buffers(result.aggregator, result.buffers, result.codec, result.terms, done, done, out, scratch);
}

// 1/Λ for a gradient of this norm.
float penalty_of(double norm, const OuterOptimizer& settings, const OuterState& state) {
  TrainedNorm last;
  const std::size_t count = state.parameters.size();
  MomentumWindow momentum(state, settings, std::min(kDecodedAtOnce, count));
  for (std::size_t done = 0; done < count; done += kDecodedAtOnce) {
    last.add(momentum.open(done, std::min(kDecodedAtOnce, count - done)));
  }
  return static_cast<float>(1.0 / staleness_gap(norm, settings.learning_rate * last.value()));
}

double length_of(const ReducedResult& result) {
  return result.aggregator == Aggregator::radial_directional ? radial_length(result.terms) : 0.0;
}

// What the trained values are then multiplied by before `settings` steps with them. Each term was checked.
float factor_of(const ReducedResult& result, const OuterOptimizer& settings, const OuterState& state, std::size_t count,
                std::span<float> chunk) {
  const double length = length_of(result);
  if (length == 0.0 && !settings.gap_penalty) {
    return 1.0F;
  }
  std::vector<float> scratch;
  TrainedNorm norm(result.buffers);
  for (std::size_t done = 0; done < count; done += chunk.size()) {
    const auto part = chunk.first(std::min(chunk.size(), count - done));
    put_together(result, done, part, scratch);
    norm.add(part);
  }
  const float radial = radial_factor(length, norm.value());
  return settings.gap_penalty ? radial * penalty_of(norm.value() * static_cast<double>(radial), settings, state) : radial;
}

// The result's values [done, done + out.size()).
void combine(const ReducedResult& result, float factor, std::size_t done, std::span<float> out, std::vector<float>& scratch) {
  put_together(result, done, out, scratch);
  if (factor != 1.0F) {
    each_run(result.buffers, done, out.size(), [&](std::size_t from, std::size_t to, bool buffer) {
      if (!buffer) {
        scale(factor, to - from, out.data() + from);
      }
    });
  }
}

// That all terms are finite. Returns what no value of their sum is larger than, but for rounding, which cannot double it.
Result<double> check_terms(const ReducedResult& result, std::size_t count, const InParts& in_parts = one_after_another) {
  if (result.terms.empty()) {
    return Error{Code::invalid_argument, "a reduced result has no terms"};
  }
  const double length = length_of(result);
  double bound = 0.0;
  for (const EncodedTerm& term : result.terms) {
    ATOLL_ASSIGN(const float largest, encoded_bound(result.codec, term.bytes, count, in_parts));
    const float weight = weight_in_sum(term, length);
    if (!std::isfinite(weight)) {
      return Error{Code::invalid_argument, "a weight of a reduced result is not finite"};
    }
    bound = std::max(bound + std::fabs(static_cast<double>(weight)) * static_cast<double>(largest), static_cast<double>(largest));
  }
  return bound;
}

// That what the terms come to is finite, too: it is looked at only where the bound does not tell.
Status check_sum(const ReducedResult& result, double bound, float factor, std::size_t count, std::span<float> chunk) {
  const bool as_it_is = factor == 1.0F && result.terms.size() == 1 && result.terms[0].weight == 1.0F;
  if (bound * std::max(1.0, static_cast<double>(factor)) < 0x1p+127 || as_it_is) {
    return {};
  }
  std::vector<float> scratch;
  for (std::size_t done = 0; done < count; done += chunk.size()) {
    const auto part = chunk.first(std::min(chunk.size(), count - done));
    combine(result, factor, done, part, scratch);
    ATOLL_TRY(check_finite(part, done));
  }
  return {};
}

// What a buffer's step is instead of the optimiser's.
OuterOptimizer plain(const OuterOptimizer& settings) {
  return settings.kind == OuterOptimizerKind::adopt ? settings : OuterOptimizer{OuterOptimizerKind::sgd, 1.0, 0.0};
}

// The values [range.first, range.second), `size` at a time. All has been checked.
void step_range(const ReducedResult& result, const OuterOptimizer& settings, float factor, const OuterState& state,
                std::pair<std::size_t, std::size_t> range, std::size_t size) {
  std::vector<float> chunk(std::min(size, range.second - range.first));
  std::vector<float> scratch;
  MomentumWindow window(state, settings, chunk.size());
  for (std::size_t done = range.first; done < range.second; done += size) {
    const auto part = std::span(chunk).first(std::min(size, range.second - done));
    combine(result, factor, done, part, scratch);
    const std::span<float> momentum = window.open(done, part.size());
    each_run(result.buffers, done, part.size(), [&](std::size_t from, std::size_t to, bool buffer) {
      step(part.subspan(from, to - from), buffer ? plain(settings) : settings,
           {state.parameters.subspan(done + from, to - from), momentum.empty() ? momentum : momentum.subspan(from, to - from)});
    });
    window.close(done, part.size());
  }
}

}  // namespace

bool has_momentum(OuterOptimizerKind kind) {
  return kind == OuterOptimizerKind::nesterov || kind == OuterOptimizerKind::heavy_ball || kind == OuterOptimizerKind::clipped_momentum;
}

std::uint64_t outer_state_bytes(OuterOptimizerKind kind, OuterStateFormat format) {
  return sizeof(float) + (has_momentum(kind) ? bytes_a_value(format) : 0);
}

std::vector<OuterBuffer> OuterState::buffers() const {
  std::vector<OuterBuffer> all = {{"", OuterStateFormat::f32, std::as_writable_bytes(parameters)},
                                  {kMoments[0], OuterStateFormat::f32, std::as_writable_bytes(momentum)},
                                  {kMoments[0], OuterStateFormat::bf16, rounded.bytes}};
  std::erase_if(all, [](const OuterBuffer& buffer) { return buffer.bytes.empty(); });
  return all;
}

Status check_outer_optimizer(const OuterOptimizer& settings) {
  if (settings.kind == OuterOptimizerKind::adopt) {
    return {};
  }
  if (!std::isfinite(settings.learning_rate) || settings.learning_rate <= 0.0) {
    return Error{Code::invalid_argument, "outer_learning_rate must be above 0, not " + std::to_string(settings.learning_rate)};
  }
  if (has_momentum(settings.kind) && !(settings.momentum >= 0.0 && settings.momentum < 1.0)) {
    return Error{Code::invalid_argument, "outer_momentum must be at least 0 and below 1, not " + std::to_string(settings.momentum)};
  }
  if (settings.kind == OuterOptimizerKind::heavy_ball && !(std::isfinite(settings.pull) && settings.pull >= 0.0)) {
    return Error{Code::invalid_argument, "outer_pull must be at least 0, not " + std::to_string(settings.pull)};
  }
  if (!(std::isfinite(settings.clip) && settings.clip >= 0.0)) {
    return Error{Code::invalid_argument, "outer_clip must be at least 0, not " + std::to_string(settings.clip)};
  }
  return {};
}

Status outer_step(std::span<const float> gradient, const OuterOptimizer& settings, OuterState state) {
  ATOLL_TRY(check_sizes(gradient.size(), settings, state));
  ATOLL_TRY(check_finite(gradient, 0));
  if (settings.gap_penalty) {
    TrainedNorm norm;
    norm.add(gradient);
    std::vector<float> penalised(gradient.begin(), gradient.end());
    scale(penalty_of(norm.value(), settings, state), penalised.size(), penalised.data());
    step_all(penalised, settings, state);
    return {};
  }
  step_all(gradient, settings, state);
  return {};
}

Status outer_step(const ReducedResult& result, const OuterOptimizer& settings, OuterState state, const InParts& in_parts) {
  const std::size_t count = state.parameters.size();
  ATOLL_TRY(check_sizes(count, settings, state));
  ATOLL_TRY(check_codec(result.codec));
  const std::size_t size = values_at_once(kDecodedAtOnce, result.codec);
  const std::size_t values_a_part = std::max(kStepPart / size, std::size_t{1}) * size;
  float factor = 1.0F;
  {
    std::vector<float> chunk(std::min(size, count));
    ATOLL_ASSIGN(const double bound, check_terms(result, count, in_parts));
    factor = factor_of(result, settings, state, count, chunk);
    ATOLL_TRY(check_sum(result, bound, factor, count, chunk));
  }
  in_parts((count + values_a_part - 1) / values_a_part, [&](std::size_t i) {
    const std::size_t begin = i * values_a_part;
    step_range(result, settings, factor, state, {begin, std::min(begin + values_a_part, count)}, size);
  });
  return {};
}

Status outer_step(const ReducedResult& result, const GroupParameters& group, const OuterOptimizer& settings, OuterState state) {
  if (settings.kind != OuterOptimizerKind::heavy_ball) {
    return Error{Code::invalid_argument, "only heavy_ball is pulled towards a group"};
  }
  const std::size_t count = state.parameters.size();
  ATOLL_TRY(check_sizes(count, settings, state));
  ATOLL_TRY(check_codec(result.codec));
  ATOLL_TRY(check_group(group, count));
  const std::size_t size = std::min(values_at_once(kDecodedAtOnce, result.codec, group.codec), count);
  std::vector<float> chunk(size);
  ATOLL_ASSIGN(const double bound, check_terms(result, count));
  ATOLL_TRY(check_sum(result, bound, 1.0F, count, chunk));
  std::vector<float> difference(size);
  std::vector<float> own(size);
  std::vector<float> theirs(size);
  std::vector<float> scratch;
  MomentumWindow window(state, settings, size);
  for (std::size_t done = 0; done < count; done += size) {
    const std::size_t values = std::min(size, count - done);
    float* momentum = window.open(done, values).data();
    aggregate(result.aggregator, result.codec, result.terms, done, std::span(chunk).first(values), scratch);
    group_difference(group, done, own, theirs, std::span(difference).first(values));
    each_run(result.buffers, done, values, [&](std::size_t from, std::size_t to, bool buffer) {
      float* parameters = state.parameters.data() + done;
      if (!buffer) {
        pulled_heavy_ball(chunk.data() + from, difference.data() + from, static_cast<float>(settings.learning_rate),
                          static_cast<float>(settings.momentum), static_cast<float>(settings.pull), to - from, parameters + from,
                          momentum + from);
        return;
      }
      for (std::size_t i = from; i < to; ++i) {
        parameters[i] += difference[i] - chunk[i];
      }
    });
    window.close(done, values);
  }
  return {};
}

Status decode_result(const ReducedResult& result, std::span<float> values) {
  ATOLL_TRY(check_codec(result.codec));
  std::vector<float> chunk(std::min(values_at_once(kDecodedAtOnce, result.codec), values.size()));
  ATOLL_ASSIGN(const double bound, check_terms(result, values.size()));
  const float factor = factor_of(result, OuterOptimizer{OuterOptimizerKind::adopt}, {}, values.size(), chunk);
  ATOLL_TRY(check_sum(result, bound, factor, values.size(), chunk));
  std::vector<float> scratch;
  for (std::size_t done = 0; done < values.size(); done += chunk.size()) {
    const auto part = values.subspan(done, std::min(chunk.size(), values.size() - done));
    combine(result, factor, done, part, scratch);
  }
  return {};
}

}  // namespace atl
