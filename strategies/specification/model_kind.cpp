#include "strategies/specification/model_kind.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>

namespace atl {

ModelKind model_kind(const RunSpec& spec) {
  if (has_own_trainer(spec)) {
    return ModelKind::own;
  }
  const bool tokens = std::ranges::find(kDataFormats, spec.data.format) - kDataFormats.begin() < kTokenFormats;
  return tokens ? ModelKind::language : ModelKind::diffusion;
}

std::uint64_t tokens_per_sequence(const RunSpec& spec) {
  switch (model_kind(spec)) {
    case ModelKind::language:
      return std::max<std::uint64_t>(spec.training.sequence_length, 1);
    case ModelKind::diffusion:
      break;
    case ModelKind::own:
      return std::max<std::uint64_t>(spec.trainer.tokens_per_sample, 1);
  }
  return 1;
}

std::uint64_t most_tokens_per_step(const RunSpec& spec) {
  return model_kind(spec) == ModelKind::language ? spec.training.batch * tokens_per_sequence(spec) : 0;
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  constexpr double kMost = 1099511627776.0;  // 2^40
  std::string digits;
  std::ranges::copy_if(text, std::back_inserter(digits), [](char c) { return c != '_'; });
  double factor = 1;
  constexpr std::string_view kSuffixes = "kKMGBT";
  if (const std::size_t at = digits.empty() ? std::string_view::npos : kSuffixes.find(digits.back()); at != std::string_view::npos) {
    constexpr std::array<double, 6> kFactors = {1e3, 1e3, 1e6, 1e9, 1e9, 1e12};
    factor = kFactors[at];
    digits.pop_back();
  }
  double value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size() || !(value * factor >= 1) || value * factor > kMost) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(std::llround(value * factor));
}

double model_parameter_bytes(const RunSpec& spec) {
  const ModelKind kind = model_kind(spec);
  if (kind == ModelKind::own) {
    return 4.0 * static_cast<double>(parse_count(spec.trainer.parameters).value_or(0));
  }
  const ModelSpec& model = spec.model;
  const double width = model.width;
  if (kind == ModelKind::diffusion) {
    const double patch = static_cast<double>(spec.diffusion.patch) * spec.diffusion.patch;
    const double hidden = model.feed_forward == 0 ? 4.0 * width : static_cast<double>(model.feed_forward);
    const double block = 10.0 * width * width + 2.0 * width * hidden + 11.0 * width + hidden;
    const double ends =
        patch * width + width + 256.0 * width + width + width * width + width + patch * width + patch + 2.0 * width * width + 2.0 * width;
    return 4.0 * (model.layers * block + ends);
  }
  const double block = 4.0 * width * width + 3.0 * width * feed_forward_width(model) + 2.0 * width;
  const double embeddings = (model.tied_embeddings ? 1.0 : 2.0) * model.vocabulary * width;
  return 4.0 * (model.layers * block + embeddings + width);
}

std::uint32_t feed_forward_width(const ModelSpec& model) {
  if (model.feed_forward != 0) {
    return model.feed_forward;
  }
  const std::uint32_t exact = (model.width * 8 + 2) / 3;
  return (exact + 31) / 32 * 32;
}

}  // namespace atl
