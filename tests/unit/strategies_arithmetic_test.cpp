// Contribution, aggregation, outer optimisers and merge, against plain loops in double.
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/codec.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "tests/catch.hpp"
#include "tests/mean.hpp"
#include "tests/merge.hpp"
#include "tests/outer_steps.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

namespace of_strategies_arithmetic_test {

using namespace atl;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<float> draw(Rng& rng, std::size_t count, double size = 1.0) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = static_cast<float>(size * rng.normal());
  }
  return values;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

struct State {
  std::vector<float> parameters;
  std::vector<float> momentum;
  OuterState view() { return {parameters, momentum}; }
};

Bytes encoded(const CodecSettings& codec, std::span<const float> values) {
  Bytes bytes(encoded_bytes(codec, values.size()));
  REQUIRE(encode(codec, values, bytes));
  return bytes;
}

}  // namespace

TEST_CASE("contribution: outer minus local, in place, with its norm", "[strategies]") {
  Rng rng(1);
  for (const std::size_t count : {0, 1, 7, 8, 9, 1000, 4099}) {
    const auto outer = draw(rng, count);
    const auto local = draw(rng, count);
    auto arena = local;
    const auto summary = form_outer_gradient(outer, arena).value();
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(arena[i] == outer[i] - local[i]);
      squares += std::pow(static_cast<double>(arena[i]), 2);
    }
    CHECK(summary.norm == Approx(std::sqrt(squares)));
    CHECK(summarise_contribution(arena).value().norm == summary.norm);
  }
}

TEST_CASE("contribution: one that is not finite is refused, naming where", "[strategies]") {
  for (const std::size_t where : {0, 6, 8, 15, 16, 17}) {
    for (const float bad : {kNan, kInf, -kInf}) {
      const std::vector<float> outer(18, 1.0F);
      std::vector<float> local(18, 0.5F);
      local[where] = bad;
      CHECK_FALSE(summarise_contribution(local));
      const auto summary = form_outer_gradient(outer, local);
      REQUIRE_FALSE(summary);
      CHECK(summary.error().code == Code::corrupt);
      CHECK(summary.error().why.find("value " + std::to_string(where) + " ") != std::string::npos);
    }
  }
  // Two finite parameters whose difference is not.
  std::vector<float> local{-kLargest};
  CHECK_FALSE(form_outer_gradient(std::vector<float>{kLargest}, local));
  // Very large, but finite.
  std::vector<float> large(100, kLargest);
  CHECK(summarise_contribution(large).value().norm == Approx(10.0 * static_cast<double>(kLargest)));
  std::vector<float> two(2);
  CHECK(form_outer_gradient(large, two).error().code == Code::invalid_argument);
}

TEST_CASE("aggregate: weights by tokens for every subset of six members", "[strategies]") {
  const std::array<std::uint64_t, 6> tokens{2048, 0, 1, 1'000'000'007, 1ULL << 53, 2048};
  for (unsigned subset = 0; subset < 64; ++subset) {
    std::vector<std::uint64_t> members;
    long double sum = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if ((subset >> i & 1U) != 0) {
        members.push_back(tokens[i]);
        sum += static_cast<long double>(tokens[i]);
      }
    }
    const auto weights = contribution_weights(members, Weighting::tokens);
    const auto uniform = contribution_weights(members, Weighting::uniform);
    if (members.empty() || sum == 0) {
      REQUIRE_FALSE(weights);
      REQUIRE(uniform.has_value() == !members.empty());
      continue;
    }
    double total = 0;
    for (std::size_t i = 0; i < members.size(); ++i) {
      REQUIRE(static_cast<double>(weights.value()[i]) ==
              Approx(static_cast<double>(static_cast<long double>(members[i]) / sum)).epsilon(1e-7));
      REQUIRE((members[i] == 0) == (weights.value()[i] == 0.0F));
      REQUIRE(uniform.value()[i] == Approx(1.0 / static_cast<double>(members.size())));
      total += static_cast<double>(weights.value()[i]);
    }
    REQUIRE(total == Approx(1.0).epsilon(1e-6));
  }
  CHECK(contribution_weights(std::vector<std::uint64_t>{5}, Weighting::tokens).value() == std::vector<float>{1.0F});
  CHECK(contribution_weights(std::vector<std::uint64_t>{~0ULL, 2}, Weighting::tokens).error().code == Code::invalid_argument);
  CHECK(contribution_weights(std::vector<std::uint64_t>{~0ULL, 1}, Weighting::uniform).value() == std::vector<float>{0.5F, 0.5F});
}

TEST_CASE("a contribution of one token and no step is an answer that holds nothing, and has no weight") {
  const std::vector<std::uint64_t> tokens{100, 1, 1, 300};
  const std::vector<std::uint64_t> steps{1, 0, 1, 3};
  CHECK(contribution_weights(tokens, Weighting::uniform, steps).value() == std::vector<float>{1.0F / 3, 0.0F, 1.0F / 3, 1.0F / 3});
  CHECK(contribution_weights(tokens, Weighting::tokens, steps).value()[1] == 0.0F);
  CHECK(contribution_weights(tokens, Weighting::tokens_squared_per_step, steps).value()[1] == 0.0F);
  const std::vector<std::uint64_t> nothing{1, 1};
  CHECK(contribution_weights(nothing, Weighting::uniform, std::vector<std::uint64_t>{0, 0}).value() == std::vector<float>{0.5F, 0.5F});
  CHECK(contribution_weights(nothing, Weighting::tokens, std::vector<std::uint64_t>{0, 0}).value() == std::vector<float>{0.5F, 0.5F});
}

TEST_CASE("aggregate: weights by the square of tokens over steps, by hand and against long double", "[strategies]") {
  using Counts = std::vector<std::uint64_t>;
  const auto weights = [](const Counts& tokens, const Counts& steps) {
    return contribution_weights(tokens, Weighting::tokens_squared_per_step, steps);
  };
  // Twice the tokens in as many steps: four times. Twice the tokens in twice the steps: twice. As many in half the steps: twice.
  CHECK(weights({100, 200}, {10, 10}).value() == std::vector<float>{0.2F, 0.8F});
  CHECK(weights({100, 200}, {10, 20}).value() == std::vector<float>{1.0F / 3.0F, 2.0F / 3.0F});
  CHECK(weights({100, 100}, {10, 5}).value() == std::vector<float>{1.0F / 3.0F, 2.0F / 3.0F});
  // Of equal islands it is what tokens come to, and a step that nobody counted is one.
  CHECK(weights({512, 512, 512}, {7, 7, 7}).value() == contribution_weights(Counts{512, 512, 512}, Weighting::tokens).value());
  CHECK(weights({5}, {0}).value() == std::vector<float>{1.0F});
  CHECK(weights({1, 2}, {1}).error().code == Code::invalid_argument);
  CHECK_FALSE(contribution_weights(Counts{1, 2}, Weighting::tokens_squared_per_step));
  Rng rng(12);
  for (int attempt = 0; attempt < 200; ++attempt) {
    Counts tokens;
    Counts steps;
    long double sum = 0;
    for (std::uint64_t i = 0; i <= rng.below(8); ++i) {
      tokens.push_back(1 + rng.below(1ULL << (1 + rng.below(52))));
      steps.push_back(1 + rng.below(1ULL << rng.below(20)));
      sum += static_cast<long double>(tokens.back()) * static_cast<long double>(tokens.back()) / static_cast<long double>(steps.back());
    }
    const std::vector<float> found = weights(tokens, steps).value();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const long double count = static_cast<long double>(tokens[i]) * static_cast<long double>(tokens[i]);
      REQUIRE(static_cast<double>(found[i]) ==
              Approx(static_cast<double>(count / static_cast<long double>(steps[i]) / sum)).epsilon(1e-7).margin(1e-44));
    }
  }
}

TEST_CASE("aggregate: the weighted mean of every subset of six members, against double", "[strategies]") {
  Rng rng(2);
  std::vector<std::vector<float>> all;
  std::vector<std::uint64_t> tokens;
  for (std::size_t member = 0; member < 6; ++member) {
    all.push_back(draw(rng, 37));
    tokens.push_back(1 + rng.below(5000));
  }
  for (unsigned subset = 1; subset < 64; ++subset) {
    std::vector<std::span<const float>> contributions;
    std::vector<std::uint64_t> counted;
    for (std::size_t member = 0; member < 6; ++member) {
      if ((subset >> member & 1U) != 0) {
        contributions.emplace_back(all[member]);
        counted.push_back(tokens[member]);
      }
    }
    const auto weights = contribution_weights(counted, Weighting::tokens).value();
    std::vector<float> mean(37, 9.0F);
    atl_test::weighted_mean(contributions, weights, mean);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      double sum = 0;
      double total = 0;
      for (std::size_t member = 0; member < contributions.size(); ++member) {
        sum += static_cast<double>(counted[member]) * static_cast<double>(contributions[member][i]);
        total += static_cast<double>(counted[member]);
      }
      REQUIRE(static_cast<double>(mean[i]) == Approx(sum / total).margin(2e-6));
    }
    if (contributions.size() == 1) {
      REQUIRE(std::equal(mean.begin(), mean.end(), contributions[0].begin()));  // alone: exactly its own
    }
  }
}

TEST_CASE("outer optimiser: many Nesterov steps against double", "[strategies]") {
  Rng rng(3);
  const std::size_t count = 1003;
  State state{draw(rng, count), std::vector<float>(count)};
  std::vector<double> theta(state.parameters.begin(), state.parameters.end());
  std::vector<double> b(count);
  const auto eta = static_cast<double>(0.7F);
  const auto mu = static_cast<double>(0.9F);
  for (int round = 0; round < 30; ++round) {
    const auto gradient = draw(rng, count, 0.1);
    REQUIRE(nesterov_step(gradient, 0.7, 0.9, state.view()));
    for (std::size_t i = 0; i < count; ++i) {
      const auto g = static_cast<double>(gradient[i]);
      b[i] = mu * b[i] + g;
      theta[i] -= eta * (g + mu * b[i]);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    REQUIRE(static_cast<double>(state.parameters[i]) == Approx(theta[i]).margin(1e-5));
    REQUIRE(static_cast<double>(state.momentum[i]) == Approx(b[i]).margin(1e-5));
  }
}

TEST_CASE("outer optimiser: a momentum of zeros is torch's first step", "[strategies]") {
  Rng rng(4);
  const auto gradient = draw(rng, 100);
  State state{std::vector<float>(100, 1.0F), std::vector<float>(100)};
  REQUIRE(nesterov_step(gradient, 0.7, 0.9, state.view()));
  CHECK(state.momentum == gradient);
}

TEST_CASE("outer optimiser: the fused step equals decoding and stepping, bit for bit", "[strategies]") {
  Rng rng(5);
  for (const CodecSettings& codec :
       {CodecSettings{CodecKind::f32, 256, {}}, CodecSettings{CodecKind::bf16, 256, {}}, CodecSettings{CodecKind::int8, 48, {}},
        CodecSettings{CodecKind::fp4, 256, {}}, CodecSettings{CodecKind::int8, 8192, {}}}) {
    for (const OuterOptimizer& optimizer :
         {OuterOptimizer{OuterOptimizerKind::nesterov, 0.7, 0.9}, OuterOptimizer{OuterOptimizerKind::sgd, 0.5, 0.0},
          OuterOptimizer{OuterOptimizerKind::adopt, 1.0, 0.0}}) {
      for (const std::size_t count : {0, 1, 255, 4096, 10'001, 20'000}) {
        for (const std::size_t members : {1, 2, 3}) {
          std::vector<float> gradient(count);
          std::vector<Bytes> bytes;
          std::vector<EncodedTerm> terms;
          const float weight = members == 1 ? 1.0F : 1.0F / static_cast<float>(members);
          for (std::size_t member = 0; member < members; ++member) {
            bytes.push_back(encoded(codec, draw(rng, count)));
          }
          for (const Bytes& term : bytes) {
            terms.push_back({term, weight});
            REQUIRE(decode_accumulate(codec, term, weight, gradient));
          }
          State plain{draw(rng, count), draw(rng, count)};
          State fused = plain;
          REQUIRE(outer_step(gradient, optimizer, plain.view()));
          REQUIRE(outer_step(ReducedResult{codec, terms}, optimizer, fused.view()));
          REQUIRE(plain.parameters == fused.parameters);
          REQUIRE(plain.momentum == fused.momentum);
          std::vector<float> values(count);
          REQUIRE(decode_result({codec, terms}, values));
          REQUIRE(values == gradient);
        }
      }
    }
  }
}

TEST_CASE("outer optimiser: adopt is exact and leaves the momentum alone", "[strategies]") {
  const std::vector<float> given{-0.0F, 0x1.fffffep-127F, kLargest, 1.0F / 3.0F};
  State state{std::vector<float>(4, 5.0F), std::vector<float>(4, 2.0F)};
  REQUIRE(adopt_step(given, state.view()));
  CHECK(same_bits(state.parameters, given));
  CHECK(state.momentum == std::vector<float>(4, 2.0F));
  REQUIRE(adopt_step(given, OuterState{state.parameters, {}}));
  REQUIRE(adopt_step(state.parameters, state.view()));
}

TEST_CASE("outer optimiser: on any error the state is unchanged", "[strategies]") {
  Rng rng(6);
  const std::size_t count = 9000;
  State state{draw(rng, count), draw(rng, count)};
  const State before = state;
  const CodecSettings f32;
  const auto unchanged = [&](const Status& status, Code code) {
    REQUIRE_FALSE(status);
    CHECK(status.error().code == code);
    REQUIRE(same_bits(state.parameters, before.parameters));
    REQUIRE(same_bits(state.momentum, before.momentum));
  };
  const auto good = draw(rng, count);
  for (const std::size_t where : {std::size_t{0}, std::size_t{4096}, count - 1}) {
    for (const float value : {kNan, kInf, -kInf}) {
      auto bad = good;
      bad[where] = value;
      for (const OuterOptimizerKind kind : {OuterOptimizerKind::nesterov, OuterOptimizerKind::sgd, OuterOptimizerKind::adopt}) {
        const Status status = outer_step(bad, {kind, 0.7, 0.9}, state.view());
        unchanged(status, Code::corrupt);
        CHECK(status.error().why.find("value " + std::to_string(where)) != std::string::npos);
        const ByteView raw = std::as_bytes(std::span(bad));
        const ByteView fine = std::as_bytes(std::span(good));
        const std::array<EncodedTerm, 1> one{{{raw, 1.0F}}};
        unchanged(outer_step(ReducedResult{f32, one}, {kind, 0.7, 0.9}, state.view()), Code::corrupt);
        const std::array<EncodedTerm, 2> two{{{fine, 0.5F}, {raw, 0.5F}}};
        unchanged(outer_step(ReducedResult{f32, two}, {kind, 0.7, 0.9}, state.view()), Code::corrupt);
      }
    }
  }
  // Finite terms whose sum is not.
  const std::vector<float> large(count, kLargest);
  const std::array<EncodedTerm, 2> overflow{{{std::as_bytes(std::span(large)), 1.0F}, {std::as_bytes(std::span(large)), 1.0F}}};
  unchanged(outer_step(ReducedResult{f32, overflow}, {}, state.view()), Code::corrupt);
  const std::array<EncodedTerm, 1> weightless{{{std::as_bytes(std::span(good)), kNan}}};
  unchanged(outer_step(ReducedResult{f32, weightless}, {}, state.view()), Code::invalid_argument);
  // Sizes and settings.
  unchanged(outer_step(ReducedResult{f32, {}}, {}, state.view()), Code::invalid_argument);
  const std::array<EncodedTerm, 1> shorter{{{std::as_bytes(std::span(good).first(10)), 1.0F}}};
  unchanged(outer_step(ReducedResult{f32, shorter}, {}, state.view()), Code::corrupt);
  unchanged(nesterov_step(std::span(good).first(10), 0.7, 0.9, state.view()), Code::invalid_argument);
  unchanged(nesterov_step(good, 0.7, 0.9, {state.parameters, {}}), Code::invalid_argument);
  unchanged(sgd_step(good, 0.7, {state.parameters, std::span(state.momentum).first(1)}), Code::invalid_argument);
  for (const double eta : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    unchanged(nesterov_step(good, eta, 0.9, state.view()), Code::invalid_argument);
    unchanged(sgd_step(good, eta, state.view()), Code::invalid_argument);
  }
  for (const double mu : {1.0, -0.1, std::nan("")}) {
    unchanged(nesterov_step(good, 0.7, mu, state.view()), Code::invalid_argument);
  }
}

TEST_CASE("outer optimiser: very large values whose sum is finite are stepped", "[strategies]") {
  const std::vector<float> large(10, kLargest);
  const std::vector<float> opposite(10, -kLargest);
  const std::array<EncodedTerm, 2> terms{{{std::as_bytes(std::span(large)), 1.0F}, {std::as_bytes(std::span(opposite)), 1.0F}}};
  State state{std::vector<float>(10, 3.0F), std::vector<float>(10)};
  REQUIRE(outer_step(ReducedResult{{}, terms}, {}, state.view()));
  CHECK(state.parameters == std::vector<float>(10, 3.0F));
}

TEST_CASE("merge: exact at both ends, a mix between", "[strategies]") {
  Rng rng(7);
  const auto global = draw(rng, 101);
  const auto local = draw(rng, 101);
  auto merged = local;
  REQUIRE(merge(1.0, global, merged));
  CHECK(same_bits(merged, local));
  REQUIRE(merge(0.25, global, merged));
  for (std::size_t i = 0; i < merged.size(); ++i) {
    CHECK(static_cast<double>(merged[i]) ==
          Approx(0.25 * static_cast<double>(local[i]) + 0.75 * static_cast<double>(global[i])).margin(1e-6));
  }
  REQUIRE(merge(0.0, global, merged));
  CHECK(same_bits(merged, global));
  // Exact also from local parameters that have diverged, and for a zero's sign.
  std::vector<float> diverged{kNan, kInf, 1.0F};
  REQUIRE(merge(0.0, std::vector<float>{1.0F, 2.0F, -0.0F}, diverged));
  CHECK(same_bits(diverged, std::vector<float>{1.0F, 2.0F, -0.0F}));
  for (const double alpha : {-0.1, 1.1, std::nan("")}) {
    CHECK_FALSE(merge(alpha, global, merged));
  }
  CHECK_FALSE(merge(0.5, std::span(global).first(3), merged));
  CHECK(same_bits(merged, global));
}

TEST_CASE("outer optimiser: buffers become what the islands' own come to, and everything else is stepped as without them", "[strategies]") {
  Rng rng(11, 1);
  const CodecSettings f32;
  const std::size_t count = 70'000;  // more than a chunk
  const std::vector<BufferRange> buffers = {
      {0, 3, BufferShare::mean}, {100, 40'000, BufferShare::one}, {50'000, 1, BufferShare::mean}, {69'990, 10, BufferShare::one}};
  const auto share_of = [&](std::size_t i) -> const BufferRange* {
    for (const BufferRange& range : buffers) {
      if (i >= range.offset && i < range.offset + range.count) {
        return &range;
      }
    }
    return nullptr;
  };
  for (const OuterOptimizerKind kind :
       {OuterOptimizerKind::nesterov, OuterOptimizerKind::heavy_ball, OuterOptimizerKind::sgd, OuterOptimizerKind::adopt}) {
    const std::vector<float> first = draw(rng, count);
    const std::vector<float> second = draw(rng, count);
    const std::array<EncodedTerm, 2> terms{{{std::as_bytes(std::span(first)), 0.25F}, {std::as_bytes(std::span(second)), 0.75F}}};
    const State before{draw(rng, count), std::vector<float>(count)};
    State without = before;
    State with = before;
    REQUIRE(outer_step(ReducedResult{f32, terms}, {kind, 0.7, 0.9}, without.view()));
    REQUIRE(outer_step(ReducedResult{f32, terms, Aggregator::weighted_mean, buffers}, {kind, 0.7, 0.9}, with.view()));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const BufferRange* range = share_of(i);
      const float own = range != nullptr && range->share == BufferShare::one ? first[i] : 0.25F * first[i] + 0.75F * second[i];
      const float expected = range == nullptr                    ? without.parameters[i]
                             : kind == OuterOptimizerKind::adopt ? own
                                                                 : before.parameters[i] - own;
      const float momentum = range == nullptr ? without.momentum[i] : 0.0F;
      wrong += with.parameters[i] == expected && with.momentum[i] == momentum ? 0U : 1U;
    }
    INFO(static_cast<int>(kind));
    CHECK(wrong == 0);
  }
  // A pair of a group: the mean of both outer states, less the mean of what both did.
  const std::vector<float> mine = draw(rng, 8);
  const std::vector<float> theirs = draw(rng, 8);
  const std::vector<float> done = draw(rng, 8);
  const std::array<std::span<const std::byte>, 2> members{std::as_bytes(std::span(mine)), std::as_bytes(std::span(theirs))};
  const std::array<EncodedTerm, 1> sum{{{std::as_bytes(std::span(done)), 1.0F}}};
  const std::array<BufferRange, 1> last{{{6, 2, BufferShare::one}}};
  State state{mine, std::vector<float>(8)};
  REQUIRE(outer_step(ReducedResult{f32, sum, Aggregator::weighted_mean, last}, GroupParameters{f32, members, 0},
                     {OuterOptimizerKind::heavy_ball, 0.7, 0.5, 0.6}, state.view()));
  for (std::size_t i = 6; i < 8; ++i) {
    CHECK(state.parameters[i] == Approx((mine[i] + theirs[i]) / 2 - done[i]));
    CHECK(state.momentum[i] == 0.0F);
  }
  CHECK(state.momentum[5] != 0.0F);
}

}  // namespace of_strategies_arithmetic_test
