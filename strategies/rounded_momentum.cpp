#include "strategies/rounded_momentum.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "strategies/codec_kernels.hpp"
#include "strategies/vectorised.hpp"

namespace atl {
namespace {

constexpr std::size_t kRoundedAtOnce = 1024;  // their random numbers stay in the first-level cache

// Of two values that share a random word the first takes its lower half.
ATOLL_VECTORISED void round_to_bf16(const float* __restrict values, const std::uint32_t* __restrict random, std::size_t count,
                                    std::byte* __restrict bytes) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t added;
    std::memcpy(&added, reinterpret_cast<const std::byte*>(random) + 2 * i, sizeof added);
    const std::uint32_t rounded = (std::bit_cast<std::uint32_t>(values[i]) + added) >> 16;
    const std::uint32_t overflow = (rounded & 0x7fffU) == 0x7f80U ? 1U : 0U;
    const auto kept = static_cast<std::uint16_t>(rounded - overflow);
    std::memcpy(bytes + 2 * i, &kept, sizeof kept);
  }
}

}  // namespace

void decode_momentum(const RoundedMomentum& momentum, std::span<float> values) {
  kernels::decode_bf16(momentum.bytes.data(), values.size(), values.data());
}

void round_momentum(std::span<const float> values, const RoundedMomentum& momentum) {
  std::array<std::uint32_t, kRoundedAtOnce / 2> random;
  for (std::size_t done = 0; done < values.size(); done += kRoundedAtOnce) {
    const std::size_t count = std::min(kRoundedAtOnce, values.size() - done);
    kernels::random_words(momentum.at.seed, (momentum.at.position + done) / 2, random.data(), (count + 1) / 2);
    round_to_bf16(values.data() + done, random.data(), count, momentum.bytes.data() + 2 * done);
  }
}

}  // namespace atl
