#include "strategies/projection.hpp"

#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {

void project(std::uint64_t seed, std::uint64_t position, std::span<const float> values, Projection& sums) {
  ATOLL_CHECK(position % 4 == 0, "projections begin at a multiple of four parameters");
  const std::uint64_t stream = stream_of("projection");
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const std::uint64_t block = (position + i) / 4;
    const std::array<std::uint32_t, 4> words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                                                       static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)},
                                                      key);
    for (std::size_t k = 0; k < 4 && i + k < values.size(); ++k) {
      const auto value = static_cast<double>(values[i + k]);
      sums[words[k] % kProjections] += (words[k] & 0x80000000U) != 0 ? -value : value;
    }
  }
}

}  // namespace atl
