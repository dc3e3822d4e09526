// The same bytes in, the same bytes out, on every machine: the results of all arithmetic on fixed inputs, as pinned
// hashes. The release build runs the widest vectors the processor has and a sanitizer build plain x86-64, so that both
// passing means that their results are the same.
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/rounded_momentum.hpp"
#include "tests/catch.hpp"
#include "tests/mean.hpp"
#include "tests/merge.hpp"
#include "tests/outer_steps.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace of_strategies_determinism_test {

using namespace atl;

namespace {

constexpr std::size_t kCount = 10'007;  // odd: every loop has a rest

// Made of integer draws and exact scalings only: no library function whose last bit differs between versions.
std::vector<float> draw(std::uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(kCount);
  for (float& value : values) {
    const auto mantissa = static_cast<float>(static_cast<std::int32_t>(rng.next_u32()));
    value = mantissa * std::bit_cast<float>(static_cast<std::uint32_t>((127 - 40 + rng.below(20)) << 23));
  }
  return values;
}

std::uint64_t hash(std::span<const std::byte> bytes) { return stream_of(as_text(bytes)); }
std::uint64_t hash(std::span<const float> values) { return hash(std::as_bytes(values)); }

}  // namespace

TEST_CASE("determinism: the outer step, the contribution and the merge", "[strategies]") {
  auto parameters = draw(1);
  auto momentum = draw(2);
  REQUIRE(nesterov_step(draw(3), 0.7, 0.9, {parameters, momentum}));
  CHECK(hash(parameters) == 0xa8d528ac241e5217ULL);
  CHECK(hash(momentum) == 0xe0785bcb7c1b5488ULL);
  REQUIRE(sgd_step(draw(4), 0.3, {parameters, {}}));
  CHECK(hash(parameters) == 0x3e9c03cdf5ea3173ULL);
  auto local = draw(5);
  const double norm = form_outer_gradient(parameters, local).value().norm;
  CHECK(std::bit_cast<std::uint64_t>(norm) == 0x40ddfb174daa98b4ULL);
  REQUIRE(merge(0.3, parameters, local));
  CHECK(hash(local) == 0x67f02faf98ae4526ULL);
}

TEST_CASE("determinism: the outer step with its momentum in bf16", "[strategies]") {
  auto parameters = draw(1);
  Bytes momentum(2 * kCount);
  round_momentum(draw(2), {momentum, {0, 41}});
  CHECK(hash(momentum) == 0xeb9d4dbf85e5deb1ULL);
  REQUIRE(nesterov_step(draw(3), 0.7, 0.9, {parameters, {}, {momentum, {1600, 42}}}));
  CHECK(hash(parameters) == 0xad20e0a8a3e5ead6ULL);
  CHECK(hash(momentum) == 0xc6d02e2aef9070b6ULL);
}

TEST_CASE("determinism: the weighted mean", "[strategies]") {
  const std::vector<std::vector<float>> contributions{draw(6), draw(7), draw(8)};
  const std::vector<std::span<const float>> views(contributions.begin(), contributions.end());
  const auto weights = contribution_weights(std::vector<std::uint64_t>{2048, 6144, 1000}, Weighting::tokens).value();
  std::vector<float> mean(kCount);
  atl_test::weighted_mean(views, weights, mean);
  CHECK(hash(mean) == 0x68461e7401a824e2ULL);
}

TEST_CASE("determinism: every codec", "[strategies]") {
  struct Pinned {
    CodecSettings codec;
    std::uint64_t encoded;
    std::uint64_t accumulated;
  };
  const std::vector<Pinned> pinned{
      {{CodecKind::f32, 256, Rounding::nearest}, 0x6eb7bed39deb4f13ULL, 0xf2fa190af55ac8e0ULL},
      {{CodecKind::bf16, 256, Rounding::nearest}, 0xdf13faad4d78bc2bULL, 0x542545f2dbbfca3bULL},
      {{CodecKind::bf16, 256, Rounding::stochastic}, 0xb2d20c58e69ea1e3ULL, 0x66009bb0b1faf809ULL},
      {{CodecKind::int8, 256, Rounding::nearest}, 0x3537841973e83d04ULL, 0xa35487e5f4ce35a2ULL},
      {{CodecKind::int8, 48, Rounding::stochastic}, 0x8bcb7c261d2c0edULL, 0x82e20323d5ab9740ULL},
      {{CodecKind::fp4, 256, Rounding::nearest}, 0xb649f0916a99c3c8ULL, 0x194e80cf1d068faULL},
      {{CodecKind::fp4, 48, Rounding::stochastic}, 0x9b0d3a17df063fULL, 0xef8224c741654b0cULL},
  };
  const auto values = draw(9);
  for (const Pinned& expected : pinned) {
    Bytes bytes(encoded_bytes(expected.codec, kCount));
    REQUIRE(encode(expected.codec, values, bytes, {.position = 0, .seed = 42}));
    auto sum = draw(10);
    REQUIRE(decode_accumulate(expected.codec, bytes, 0.3F, sum));
    INFO(name_of(expected.codec.kind) << ", block " << expected.codec.block);
    CHECK(hash(bytes) == expected.encoded);
    CHECK(hash(sum) == expected.accumulated);
  }
}

}  // namespace of_strategies_determinism_test
