// The outer optimiser's momentum in bf16: the same step as in float32 with a rounding that a scalar loop repeats, the same bits in whatever
// ranges the step is taken, and errors within their bound.
#include "strategies/rounded_momentum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "strategies/codec.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "tests/outer_steps.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace of_rounded_momentum_test {

using namespace atl;

namespace {

const CodecSettings kF32;
constexpr double kStep = 0x1p-7;  // of one rounding, at most, in parts of the value

std::vector<float> draw(Rng& rng, std::size_t count, double size = 1.0) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(size * rng.normal());
  }
  return values;
}

// One value of bf16 from one float, by the definition of stochastic rounding and base's scalar philox.
std::uint16_t rounded(float value, std::uint64_t seed, std::uint64_t position) {
  const std::uint64_t block = position / 8;
  const std::array<std::uint32_t, 4> words = philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
                                                    {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  const std::uint32_t word = words[position % 8 / 2];
  return static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) + (position % 2 == 0 ? word & 0xffffU : word >> 16)) >> 16);
}

Bytes rounded(const std::vector<float>& values, EncodePosition at) {
  Bytes bytes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    append_le(bytes, rounded(values[i], at.seed, at.position + i));
  }
  return bytes;
}

std::vector<float> decoded(Bytes& bytes) {
  std::vector<float> values(bytes.size() / 2);
  decode_momentum({bytes}, values);
  return values;
}

// An outer state whose momentum is kept in bf16, and the same one with the momentum in float32.
struct Pair {
  Pair(Rng& rng, std::size_t count, EncodePosition where = {}) : at(where), parameters(draw(rng, count)), plain(parameters) {
    bytes.resize(2 * count);
    round_momentum(draw(rng, count), {bytes, {0, 1}});
    momentum = decoded(bytes);
  }
  OuterState rounding() { return {parameters, {}, {bytes, at}}; }
  OuterState exact() { return {plain, momentum}; }
  // The step moved the parameters as the one in float32 did, and left its momentum, rounded.
  void check_stepped() const {
    CHECK(parameters == plain);
    CHECK(bytes == rounded(momentum, at));
  }

  EncodePosition at;
  std::vector<float> parameters;
  std::vector<float> plain;
  std::vector<float> momentum;
  Bytes bytes;
};

const std::vector<OuterOptimizer> kWithMomentum = {{OuterOptimizerKind::nesterov, 0.7, 0.9},
                                                   {OuterOptimizerKind::heavy_ball, 0.7, 0.5},
                                                   {OuterOptimizerKind::clipped_momentum, 1.0, 0.5, 0.0, 0.25, false},
                                                   {OuterOptimizerKind::clipped_momentum, 1.0, 0.5, 0.0, 1.0, true}};

}  // namespace

TEST_CASE("rounded momentum: a step is that in float32, and a scalar loop rounds what it leaves to the same bits", "[strategies]") {
  Rng rng(1);
  for (const OuterOptimizer& optimizer : kWithMomentum) {
    for (const std::size_t count : {0, 1, 15, 127, 129, 4096, 10'007}) {
      INFO(name_of(optimizer.kind) << ", " << count << " values");
      Pair state(rng, count, {16 * 1001, 0x123456789abcdefULL});
      const std::vector<float> gradient = draw(rng, count, 0.1);
      REQUIRE(outer_step(gradient, optimizer, state.rounding()));
      REQUIRE(outer_step(gradient, optimizer, state.exact()));
      state.check_stepped();
    }
  }
}

TEST_CASE("rounded momentum: the same for encoded results, whatever their codec, with buffers among the values", "[strategies]") {
  Rng rng(2);
  const std::size_t count = 20'011;
  const std::vector<BufferRange> buffers = {{3, 7, BufferShare::mean}, {4090, 30, BufferShare::one}, {19'999, 12, BufferShare::mean}};
  for (const OuterOptimizer& optimizer : kWithMomentum) {
    for (const CodecSettings& codec : {CodecSettings{CodecKind::f32, 256, {}}, CodecSettings{CodecKind::bf16, 256, {}},
                                       CodecSettings{CodecKind::int8, 48, {}}, CodecSettings{CodecKind::fp4, 8192, {}}}) {
      INFO(name_of(optimizer.kind) << ", " << name_of(codec.kind));
      Bytes one(encoded_bytes(codec, count));
      Bytes two(encoded_bytes(codec, count));
      REQUIRE(encode(codec, draw(rng, count), one));
      REQUIRE(encode(codec, draw(rng, count), two));
      const std::vector<EncodedTerm> terms = {{one, 0.25F}, {two, 0.75F}};
      const ReducedResult result{codec, terms, Aggregator::weighted_mean, buffers};
      Pair state(rng, count, {64, 7});
      const Bytes before = state.bytes;
      REQUIRE(outer_step(result, optimizer, state.rounding()));
      REQUIRE(outer_step(result, optimizer, state.exact()));
      state.check_stepped();
      for (const BufferRange& range : buffers) {  // whose momentum no step touches
        const auto first = static_cast<std::ptrdiff_t>(2 * range.offset);
        const auto end = first + static_cast<std::ptrdiff_t>(2 * range.count);
        CHECK(std::equal(before.begin() + first, before.begin() + end, state.bytes.begin() + first));
      }
    }
  }
}

TEST_CASE("rounded momentum: the same with the pull of a group", "[strategies]") {
  Rng rng(3);
  const std::size_t count = 9'001;
  Pair state(rng, count, {32, 9});
  const std::vector<float> others = draw(rng, count);
  const std::vector<float> own = state.parameters;
  const std::vector<float> gradient = draw(rng, count, 0.1);
  const std::array<std::span<const std::byte>, 2> members = {std::as_bytes(std::span(others)), std::as_bytes(std::span(own))};
  const EncodedTerm term{std::as_bytes(std::span(gradient)), 1.0F};
  const OuterOptimizer pulled{OuterOptimizerKind::heavy_ball, 0.7, 0.5, 0.6};
  REQUIRE(outer_step(ReducedResult{kF32, {&term, 1}}, GroupParameters{kF32, members, 1}, pulled, state.rounding()));
  REQUIRE(outer_step(ReducedResult{kF32, {&term, 1}}, GroupParameters{kF32, members, 1}, pulled, state.exact()));
  state.check_stepped();
}

TEST_CASE("rounded momentum: the same bits in whatever ranges a step is taken", "[strategies]") {
  Rng rng(4);
  const std::size_t count = 10'007;
  const OuterOptimizer optimizer;
  Pair whole(rng, count, {48, 11});
  const Pair before = whole;
  const std::vector<float> gradient = draw(rng, count);
  REQUIRE(outer_step(gradient, optimizer, whole.rounding()));
  for (int i = 0; i < 20; ++i) {
    Pair parts = before;
    std::size_t done = 0;
    while (done < count) {
      const std::size_t end = std::min<std::size_t>(count, done + 16 * (1 + rng.below(300)));
      const RoundedMomentum rest = parts.rounding().rounded.from(done);
      const OuterState part{std::span(parts.parameters).subspan(done, end - done), {}, {rest.bytes.first(2 * (end - done)), rest.at}};
      REQUIRE(outer_step(std::span(gradient).subspan(done, end - done), optimizer, part));
      done = end;
    }
    REQUIRE(parts.parameters == whole.parameters);
    REQUIRE(parts.bytes == whole.bytes);
  }
}

TEST_CASE("rounded momentum: optimisers without a momentum leave it alone", "[strategies]") {
  Rng rng(5);
  for (const OuterOptimizerKind kind : {OuterOptimizerKind::sgd, OuterOptimizerKind::adopt}) {
    Pair state(rng, 5000);
    const Bytes before = state.bytes;
    const std::vector<float> gradient = draw(rng, 5000);
    REQUIRE(outer_step(gradient, {kind, 0.5, 0.0}, state.rounding()));
    REQUIRE(outer_step(gradient, {kind, 0.5, 0.0}, state.exact()));
    CHECK(state.parameters == state.plain);
    CHECK(state.bytes == before);
  }
}

TEST_CASE("rounded momentum: over many rounds the error stays within its bound, and is none on average", "[strategies]") {
  Rng rng(6);
  const std::size_t count = 40'000;
  const double mu = 0.9;
  std::vector<float> parameters(count);
  Bytes bytes(2 * count);
  std::vector<double> exact(count);
  double largest = 0;
  for (std::uint64_t round = 1; round <= 200; ++round) {
    const std::vector<float> gradient = draw(rng, count, 0.1);
    REQUIRE(nesterov_step(gradient, 0.7, mu, {parameters, {}, {bytes, {0, stream_of("round", round)}}}));
    for (std::size_t i = 0; i < count; ++i) {
      exact[i] = static_cast<double>(static_cast<float>(mu)) * exact[i] + static_cast<double>(gradient[i]);
      largest = std::max(largest, std::abs(exact[i]));
    }
  }
  double most = 0;
  double sum = 0;
  double squares = 0;
  const std::vector<float> kept = decoded(bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const double error = static_cast<double>(kept[i]) - exact[i];
    most = std::max(most, std::abs(error));
    sum += error;
    squares += error * error;
  }
  const double deviation = std::sqrt(squares / static_cast<double>(count));
  CHECK(most < kStep * largest / (1 - mu));
  CHECK(deviation < kStep / 2 * largest / std::sqrt(1 - mu * mu));
  CHECK(deviation > 0);
  CHECK(std::abs(sum) / static_cast<double>(count) < 5 * deviation / std::sqrt(static_cast<double>(count)));
}

TEST_CASE("rounded momentum: small changes are not lost, as rounding to the nearest would lose them", "[strategies]") {
  // The momentum tends from 1 to 0.5. Each change of it is less than a tenth of the distance of neighbours in bf16.
  const std::size_t count = 20'000;
  const double mu = 0.999;
  const std::vector<float> gradient(count, static_cast<float>(0.5 * (1 - mu)));
  std::vector<float> parameters(count);
  Bytes bytes = rounded(std::vector<float>(count, 1.0F), {});
  std::vector<float> nearest(1, 1.0F);
  double exact = 1.0;
  for (std::uint64_t round = 1; round <= 700; ++round) {
    REQUIRE(heavy_ball_step(gradient, 1.0, mu, {parameters, {}, {bytes, {0, stream_of("round", round)}}}));
    exact = mu * exact - 0.5 * (1 - mu);
    const float next = static_cast<float>(mu) * nearest[0] - gradient[0];
    Bytes one(2);
    REQUIRE(encode({CodecKind::bf16, 256, Rounding::nearest}, {&next, 1}, one));
    nearest = decoded(one);
  }
  double mean = 0;
  for (const float value : decoded(bytes)) {
    mean += static_cast<double>(value) / static_cast<double>(count);
  }
  CHECK(exact < 0.25);
  CHECK(mean == Approx(exact).margin(0.002));
  CHECK(nearest[0] == 1.0F);
}

TEST_CASE("rounded momentum: what would round to infinity becomes the largest finite value", "[strategies]") {
  const float large = std::numeric_limits<float>::max();
  for (const float sign : {1.0F, -1.0F}) {
    const std::vector<float> values(64, sign * large);
    Bytes bytes(2 * values.size());
    round_momentum(values, {bytes, {0, 3}});
    for (const float kept : decoded(bytes)) {
      CHECK(kept == sign * 0x1.fep+127F);
    }
  }
}

TEST_CASE("rounded momentum: what does not fit is refused and changes nothing", "[strategies]") {
  Rng rng(7);
  Pair state(rng, 64);
  const Pair before = state;
  const std::vector<float> gradient = draw(rng, 64);
  const auto refused = [&](const OuterState& bad) {
    const Status status = outer_step(gradient, {}, bad);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Code::invalid_argument);
    CHECK(state.parameters == before.parameters);
    CHECK(state.bytes == before.bytes);
  };
  const std::span<std::byte> bytes = state.bytes;
  refused({state.parameters, {}, {bytes.first(126)}});            // one value short
  refused({state.parameters, {}, {bytes, {8, 0}}});               // a position between the pieces
  refused({state.parameters, state.momentum, {bytes}});           // two momenta
  refused({std::span(state.parameters).first(63), {}, {bytes}});  // parameters too few
}

}  // namespace of_rounded_momentum_test
