#include "strategies/contribution.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "strategies/codec_kernels.hpp"
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

double sum_of(const std::array<double, kSums>& lanes) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The squares of floats sum to less than the largest double, so the norm is finite exactly if every value is.
Result<ContributionSummary> summary(std::span<const float> values, std::array<double, kSums> lanes) {
  const std::size_t whole = values.size() / kSums * kSums;
  for (std::size_t i = whole; i < values.size(); ++i) {
    lanes[i - whole] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  const double sum = sum_of(lanes);
  if (std::isfinite(sum)) {
    return ContributionSummary{std::sqrt(sum)};
  }
  const auto found = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return Error{Code::corrupt, "value " + std::to_string(found - values.begin()) +
                                  " of the contribution is not finite: the island's training has diverged or its memory is damaged"};
}

constexpr std::size_t kLookedAt = 65'536;

// The finaliser of splitmix64 (Steele et al., OOPSLA 2014).
std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

std::uint64_t fingerprint_of(std::span<const float> values) {
  const std::size_t stride = std::max<std::size_t>(1, (values.size() + kLookedAt - 1) / kLookedAt);
  std::uint64_t hash = values.size();
  bool zero = true;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    zero = zero && values[i] == 0.0F;
    hash = mixed(hash + 0x9e3779b97f4a7c15ULL + std::bit_cast<std::uint32_t>(values[i]));
  }
  return zero ? 0 : std::max<std::uint64_t>(hash, 1);
}

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

void TrainedNorm::add(std::span<const float> next) {
  each_run(buffers_, position_, next.size(), [&](std::size_t from, std::size_t to, bool buffer) {
    if (buffer) {
      return;
    }
    const auto alone = [&](std::size_t i) {
      lanes_[(position_ + i) % kSums] += static_cast<double>(next[i]) * static_cast<double>(next[i]);
    };
    for (; from < to && (position_ + from) % kSums != 0; ++from) {
      alone(from);
    }
    square(next.data() + from, to - from, lanes_.data());
    for (std::size_t i = from + (to - from) / kSums * kSums; i < to; ++i) {
      alone(i);
    }
  });
  position_ += next.size();
}

double TrainedNorm::value() const { return std::sqrt(sum_of(lanes_)); }

Result<double> encoded_norm(const CodecSettings& settings, std::span<const std::byte> bytes, std::uint64_t count,
                            std::span<const BufferRange> buffers) {
  constexpr std::uint64_t kPiece = 1ULL << 16;
  const std::uint64_t piece = values_at_once(kPiece, settings);
  std::vector<float> values(static_cast<std::size_t>(std::min(piece, count)));
  TrainedNorm norm(buffers);
  const bool all_count = buffers.empty() && (settings.kind == CodecKind::f32 ||
                                             settings.kind == CodecKind::bf16);  // then what is not finite makes the norm so
  if (all_count && !can_encode(settings, bytes.size(), count)) {
    return check_encoded(settings, bytes, count).error();
  }
  for (std::uint64_t at = 0; at < count; at += piece) {
    const std::uint64_t here = std::min(piece, count - at);
    const std::span<float> part = std::span(values).first(static_cast<std::size_t>(here));
    const std::span<const std::byte> encoded = encoded_part(settings, bytes, at, here);
    if (all_count) {
      kernels::decode(settings, encoded.data(), here, part.data());
    } else {
      ATOLL_TRY(decode(settings, encoded, part));
    }
    norm.add(part);
  }
  if (!std::isfinite(norm.value())) {
    ATOLL_TRY(check_encoded(settings, bytes, count));
  }
  return norm.value();
}

}  // namespace atl
