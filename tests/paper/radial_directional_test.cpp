// The radial-directional mean of Decoupled DiLoCo (arXiv:2604.21428) as strategies/aggregate.hpp has it: by hand, its limits, against its
// definition in double, and in pieces. The paper's text was not read: the equation is that of notes of others, which agree.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

using Vectors = std::vector<std::vector<float>>;

double norm_of(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

std::vector<EncodedTerm> terms_of(const Vectors& contributions, const std::vector<float>& weights) {
  std::vector<EncodedTerm> terms;
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    terms.push_back({std::as_bytes(std::span(contributions[i])), weights[i], norm_of(contributions[i])});
  }
  return terms;
}

std::vector<float> values_of(std::span<const EncodedTerm> terms, std::size_t count, std::span<const BufferRange> buffers = {}) {
  std::vector<float> values(count);
  REQUIRE(decode_result({CodecSettings{}, terms, Aggregator::radial_directional, buffers}, values));
  return values;
}

// As the members of a group of two come to it: each has all contributions.
std::vector<float> radial(const Vectors& contributions, const std::vector<float>& weights) {
  return values_of(terms_of(contributions, weights), contributions.front().size());
}

// As more than two come to it: the owners of shards sum pieces, in any order, and everybody has one sum and its length.
std::vector<float> radial_in_shards(const Vectors& contributions, const std::vector<float>& weights, std::size_t piece) {
  const std::vector<EncodedTerm> terms = terms_of(contributions, weights);
  std::vector<float> sum(contributions.front().size());
  std::vector<float> scratch;
  for (std::size_t end = sum.size(); end > 0;) {
    const std::size_t first = (end - 1) / piece * piece;
    aggregate(Aggregator::radial_directional, CodecSettings{}, terms, first, std::span(sum).subspan(first, end - first), scratch);
    end = first;
  }
  const std::vector<EncodedTerm> one{{std::as_bytes(std::span(sum)), 1.0F, radial_length(terms)}};
  return values_of(one, sum.size());
}

std::vector<double> by_definition(const Vectors& contributions, const std::vector<float>& weights) {
  std::vector<double> direction(contributions.front().size());
  double length = 0;
  double total = 0;
  for (std::size_t k = 0; k < contributions.size(); ++k) {
    const auto weight = static_cast<double>(weights[k]);
    const double norm = norm_of(contributions[k]);
    length += weight * norm;
    total += weight;
    for (std::size_t i = 0; i < direction.size() && norm > 0; ++i) {
      direction[i] += weight * static_cast<double>(contributions[k][i]) / norm;
    }
  }
  double squares = 0;
  for (const double value : direction) {
    squares += value * value;
  }
  for (double& value : direction) {
    value *= length / total / std::sqrt(squares);
  }
  return direction;
}

std::vector<float> uniform(std::size_t members) { return std::vector<float>(members, 1.0F / static_cast<float>(members)); }

std::vector<float> drawn(Rng& rng, std::size_t count, double size = 1.0) {
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return static_cast<float>(size * rng.normal()); });
  return values;
}

void check_near(const std::vector<float>& values, const std::vector<double>& expected, double relative) {
  REQUIRE(values.size() == expected.size());
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(static_cast<double>(values[i]) - expected[i]));
  }
  CHECK(worst <= relative * largest);
}

}  // namespace

TEST_CASE("RDA: by hand") {
  // Two at a right angle, of lengths 3 and 4: length 3.5, direction (1, 1)/√2.
  const auto corner = radial({{3, 0}, {0, 4}}, uniform(2));
  CHECK(corner[0] == Approx(3.5 / std::sqrt(2.0)));
  CHECK(corner[1] == Approx(3.5 / std::sqrt(2.0)));
  // Weights 3/4 and 1/4: length 3/4·1 + 1/4·5 = 2, direction (3, 1)/√10.
  const auto weighted = radial({{1, 0}, {0, 5}}, {0.75F, 0.25F});
  CHECK(weighted[0] == Approx(2 * 3 / std::sqrt(10.0)));
  CHECK(weighted[1] == Approx(2 * 1 / std::sqrt(10.0)));
  // One direction: the mean of the lengths, which is the mean itself.
  const auto same = radial({{1, 2, 2}, {2, 4, 4}}, uniform(2));
  CHECK(same[0] == Approx(1.5));
  CHECK(same[2] == Approx(3));
}

TEST_CASE("RDA: contributions of one length come to that length, however many they are and wherever they point") {
  Rng rng(1);
  for (std::size_t members = 2; members <= 64; members *= 2) {
    Vectors contributions;
    for (std::size_t k = 0; k < members; ++k) {
      contributions.push_back(drawn(rng, 10'000));
      const double norm = norm_of(contributions.back());
      std::ranges::transform(contributions.back(), contributions.back().begin(),
                             [&](float value) { return static_cast<float>(7.0 * static_cast<double>(value) / norm); });
    }
    INFO(members << " members");
    CHECK(norm_of(radial(contributions, uniform(members))) == Approx(7.0).epsilon(1e-5));
    // The mean of those that are nearly at right angles is shorter by the root of their number: what RDA is for.
    std::vector<float> mean(10'000);
    std::vector<float> scratch;
    aggregate(Aggregator::weighted_mean, CodecSettings{}, terms_of(contributions, uniform(members)), 0, mean, scratch);
    CHECK(norm_of(mean) == Approx(7.0 / std::sqrt(static_cast<double>(members))).epsilon(0.1));
  }
}

TEST_CASE("RDA: a single contribution is taken as it is, bit for bit") {
  Rng rng(2);
  const std::vector<float> only = drawn(rng, 1000);
  const std::vector<EncodedTerm> terms{{std::as_bytes(std::span(only)), 1.0F}};  // the engine says no norm where nobody else contributes
  CHECK(values_of(terms, only.size()) == only);
}

TEST_CASE("RDA: directions that cancel leave the mean") {
  Rng rng(3);
  const std::vector<float> one = drawn(rng, 100);
  std::vector<float> other = one;
  std::ranges::transform(other, other.begin(), [](float value) { return -value; });
  CHECK(radial({one, other}, uniform(2)) == std::vector<float>(100, 0.0F));
  // Of one length and nearly opposite: what the weighted mean is, which is short.
  other[0] += 1e-4F * other[0];
  const auto nearly = radial({one, other}, uniform(2));
  for (std::size_t i = 0; i < nearly.size(); ++i) {
    CHECK(static_cast<double>(nearly[i]) == Approx((static_cast<double>(one[i]) + static_cast<double>(other[i])) / 2).margin(1e-4));
  }
  CHECK(norm_of(nearly) < 1e-2 * norm_of(one));
}

TEST_CASE("RDA: a contribution of norm zero has no direction, and shortens the others'") {
  const auto half = radial({{3, 4}, {0, 0}}, uniform(2));
  CHECK(half[0] == Approx(1.5));
  CHECK(half[1] == Approx(2));
  CHECK(radial({{0, 0}, {0, 0}}, uniform(2)) == std::vector<float>{0, 0});
}

TEST_CASE("RDA: against its definition in double, and the same bits whole and in shards") {
  Rng rng(4);
  for (std::size_t members = 2; members <= 9; ++members) {
    const std::size_t count = 1 + rng.below(20'000);
    Vectors contributions;
    std::vector<float> weights;
    for (std::size_t k = 0; k < members; ++k) {
      contributions.push_back(drawn(rng, count, std::pow(10.0, rng.uniform() * 6 - 3)));
      weights.push_back(static_cast<float>(0.1 + rng.uniform()));
    }
    INFO(members << " members, " << count << " values");
    const auto whole = radial(contributions, weights);
    check_near(whole, by_definition(contributions, weights), 1e-5);
    CHECK(radial_in_shards(contributions, weights, 512) == whole);
    CHECK(radial_in_shards(contributions, weights, 4096 * 3) == whole);
  }
}

TEST_CASE("RDA: the outer step moves by it, with every optimiser, and buffers are the weighted mean and count for no norm") {
  Rng rng(5);
  const std::size_t count = 9000;
  Vectors contributions{drawn(rng, count), drawn(rng, count, 5), drawn(rng, count, 0.2)};
  const std::vector<float> weights{0.5F, 0.25F, 0.25F};
  const std::vector<BufferRange> buffers = {{5, 3, BufferShare::mean}, {4090, 100, BufferShare::mean}, {8000, 7, BufferShare::one}};
  const auto is_buffer = [&](std::size_t i) {
    return std::ranges::any_of(buffers, [&](const BufferRange& range) { return i >= range.offset && i < range.offset + range.count; });
  };
  Vectors trained = contributions;  // with zeros for buffers
  std::vector<EncodedTerm> terms;
  for (std::size_t k = 0; k < contributions.size(); ++k) {
    for (std::size_t i = 0; i < count; ++i) {
      if (is_buffer(i)) {
        contributions[k][i] *= 1000.0F;
        trained[k][i] = 0.0F;
      }
    }
    const auto norm = encoded_norm(CodecSettings{}, std::as_bytes(std::span(contributions[k])), count, buffers);
    CHECK(norm.value() == Approx(norm_of(trained[k])).epsilon(1e-12));
    terms.push_back({std::as_bytes(std::span(contributions[k])), weights[k], norm.value()});
  }
  const std::vector<double> expected = by_definition(trained, weights);
  for (const OuterOptimizerKind kind : {OuterOptimizerKind::nesterov, OuterOptimizerKind::heavy_ball, OuterOptimizerKind::sgd}) {
    std::vector<float> parameters(count, 1.0F);
    std::vector<float> momentum(count);
    const OuterOptimizer optimizer{kind, 0.5, 0.9};
    REQUIRE(outer_step(ReducedResult{CodecSettings{}, terms, Aggregator::radial_directional, buffers}, optimizer, {parameters, momentum}));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      double mean = 0;
      for (std::size_t k = 0; k < contributions.size(); ++k) {
        mean += static_cast<double>(weights[k]) * static_cast<double>(contributions[k][i]);
      }
      const double step = kind == OuterOptimizerKind::nesterov ? 0.5 * 1.9 * expected[i] : 0.5 * expected[i];
      const double one = static_cast<double>(contributions[0][i]);
      const double moved = !is_buffer(i) ? step : i >= 8000 ? one : mean;
      wrong += std::abs(static_cast<double>(parameters[i]) - (1.0 - moved)) <= 1e-5 * (1.0 + std::abs(moved)) ? 0U : 1U;
    }
    INFO(static_cast<int>(kind));
    CHECK(wrong == 0);
  }
}

TEST_CASE("RDA: with a codec that rounds the norm is that of what is decoded, and the result has the mean of these lengths") {
  Rng rng(6);
  for (const CodecKind kind : {CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const CodecSettings codec{kind, 64, Rounding::nearest};
    std::vector<Bytes> encoded;
    std::vector<EncodedTerm> terms;
    double length = 0;
    for (int k = 0; k < 3; ++k) {
      encoded.emplace_back(encoded_bytes(codec, 6400));
      REQUIRE(encode(codec, drawn(rng, 6400, k + 1.0), encoded.back()));
    }
    for (const Bytes& bytes : encoded) {
      std::vector<float> decoded(6400);
      REQUIRE(decode(codec, bytes, decoded));
      const double norm = encoded_norm(codec, bytes, 6400).value();
      CHECK(norm == Approx(norm_of(decoded)).epsilon(1e-12));
      length += norm / 3;
      terms.push_back({bytes, 1.0F / 3.0F, norm});
    }
    std::vector<float> result(6400);
    REQUIRE(decode_result({codec, terms, Aggregator::radial_directional}, result));
    INFO(name_of(kind));
    CHECK(norm_of(result) == Approx(length).epsilon(1e-5));
  }
}

TEST_CASE("RDA: a norm that is smaller than a value is a lie, and nothing overflows for it") {
  const std::vector<float> values{3, 0, -4};
  const auto bytes = std::as_bytes(std::span(values));
  CHECK(check_norm(CodecSettings{}, bytes, 3, 5.0));
  CHECK(check_norm(CodecSettings{}, bytes.first(8), 2, 5.0));
  CHECK(check_norm(CodecSettings{}, bytes, 3, 3.9).error().code == Code::corrupt);
  CHECK_FALSE(check_norm(CodecSettings{}, bytes, 3, std::nan("")));
  CHECK_FALSE(check_norm(CodecSettings{}, bytes, 3, -1.0));
  CHECK_FALSE(check_norm(CodecSettings{}, bytes, 3, std::numeric_limits<double>::infinity()));
  // Where it was not looked at, the step says so and leaves the state as it was.
  const std::vector<float> large{1e30F, 0, 0};
  const std::vector<EncodedTerm> terms{{bytes, 0.5F, 1e30}, {std::as_bytes(std::span(large)), 0.5F, 1e-30}};
  std::vector<float> parameters{1, 2, 3};
  std::vector<float> momentum(3);
  const Status stepped =
      outer_step(ReducedResult{CodecSettings{}, terms, Aggregator::radial_directional}, OuterOptimizer{}, {parameters, momentum});
  CHECK_FALSE(stepped);
  CHECK(parameters == std::vector<float>{1, 2, 3});
}
