#include "strategies/contribution.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "strategies/vectorised.hpp"

namespace atl {
namespace {

constexpr std::size_t kSums = 8;

ATOLL_VECTORISED void subtract_and_square(const float* __restrict outer, float* __restrict local, std::size_t count,
                                          double* __restrict lanes) {
  for (std::size_t i = 0; i + kSums <= count; i += kSums) {
    for (std::size_t lane = 0; lane < kSums; ++lane) {
      const float difference = outer[i + lane] - local[i + lane];
      local[i + lane] = difference;
      lanes[lane] += static_cast<double>(difference) * static_cast<double>(difference);
    }
  }
}

ATOLL_VECTORISED void square(const float* __restrict values, std::size_t count, double* __restrict lanes) {
  for (std::size_t i = 0; i + kSums <= count; i += kSums) {
    for (std::size_t lane = 0; lane < kSums; ++lane) {
      lanes[lane] += static_cast<double>(values[i + lane]) * static_cast<double>(values[i + lane]);
    }
  }
}

// The squares of floats sum to less than the largest double, so the norm is finite exactly if every value is.
Result<ContributionSummary> summary(std::span<const float> values, std::array<double, kSums> lanes) {
  const std::size_t whole = values.size() / kSums * kSums;
  for (std::size_t i = whole; i < values.size(); ++i) {
    lanes[i - whole] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const double sum = ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
  if (std::isfinite(sum)) {
    return ContributionSummary{std::sqrt(sum)};
  }
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return Error{Code::corrupt, "value " + std::to_string(found - values.begin()) +
                                  " of the contribution is not finite: the island's training has diverged or its memory is damaged"};
}

}  // namespace

Result<ContributionSummary> form_outer_gradient(std::span<const float> outer, std::span<float> local) {
  if (outer.size() != local.size()) {
    return Error{Code::invalid_argument,
                 std::to_string(local.size()) + " local parameters do not fit " + std::to_string(outer.size()) + " outer parameters"};
  }
  std::array<double, kSums> lanes{};
  subtract_and_square(outer.data(), local.data(), local.size(), lanes.data());
  for (std::size_t i = local.size() / kSums * kSums; i < local.size(); ++i) {
    local[i] = outer[i] - local[i];
  }
  return summary(local, lanes);
}

Result<ContributionSummary> summarise_contribution(std::span<const float> values) {
  std::array<double, kSums> lanes{};
  square(values.data(), values.size(), lanes.data());
  return summary(values, lanes);
}

Result<double> encoded_norm(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count) {
  constexpr std::uint64_t kPiece = 1ULL << 16;
  const std::uint64_t granule = piece_granularity(settings);
  const std::uint64_t piece = std::max(granule, kPiece / granule * granule);
  std::vector<float> values(static_cast<std::size_t>(std::min(piece, count)));
  double squares = 0;
  for (std::uint64_t at = 0; at < count; at += piece) {
    const std::uint64_t here = std::min(piece, count - at);
    const std::span<float> part = std::span(values).first(static_cast<std::size_t>(here));
    ATOLL_TRY(decode(settings, bytes.subspan(encoded_bytes(settings, at), encoded_bytes(settings, here)), part));
    ATOLL_ASSIGN(const ContributionSummary summary, summarise_contribution(part));
    squares += summary.norm * summary.norm;
  }
  return std::sqrt(squares);
}

}  // namespace atl
