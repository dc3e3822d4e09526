#include "agent/trainer/data/normals.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::size_t kLeast = 1U << 16;  // values that are worth a thread

double uniform_of(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>((low | (static_cast<std::uint64_t>(high) << 32)) >> 11) * 0x1.0p-53;
}

// One block of Philox is two uniforms, and they are one normal: what Rng::normal() does, without its place in the stream.
void fill(std::span<float> to, std::uint64_t seed, std::uint64_t stream, double deviation, std::uint64_t first) {
  const auto low = [](std::uint64_t word) { return static_cast<std::uint32_t>(word); };
  const auto high = [](std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); };
  for (float& value : to) {
    const auto words = philox({low(first), high(first), low(stream), high(stream)}, {low(seed), high(seed)});
    ++first;
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform_of(words[0], words[1])));
    value = static_cast<float>(deviation * (radius * std::cos(2.0 * std::numbers::pi * uniform_of(words[2], words[3]))));
  }
}

}  // namespace

void fill_with_normals(std::span<float> to, std::uint64_t seed, std::uint64_t stream, double deviation, std::uint64_t first,
                       unsigned threads) {
  const std::size_t cores = threads == 0 ? std::thread::hardware_concurrency() : threads;
  const std::size_t parts = std::clamp<std::size_t>(to.size() / kLeast, 1, std::max<std::size_t>(cores, 1));
  std::vector<std::jthread> others;
  for (std::size_t part = 1; part < parts; ++part) {
    const std::size_t from = to.size() * part / parts;
    const std::span<float> its = to.subspan(from, to.size() * (part + 1) / parts - from);
    others.emplace_back([=] { fill(its, seed, stream, deviation, first + from); });
  }
  fill(to.first(to.size() / parts), seed, stream, deviation, first);
}

}  // namespace atl
