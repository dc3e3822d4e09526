// Compositions: the named ones, what is impossible, and what a round costs.
#include <functional>
#include <limits>
#include <string>

#include "strategies/composition.hpp"
#include "strategies/diloco.hpp"
#include "strategies/local.hpp"
#include "tests/catch.hpp"
#include "transport/base/shards.hpp"

namespace of_strategies_composition_test {

using namespace atl;

TEST_CASE("composition: every named strategy composes", "[strategies]") {
  REQUIRE(strategy_names().size() == 10);
  for (const std::string_view name : strategy_names()) {
    INFO(name);
    REQUIRE(strategy_problems(named_strategy(name).value()).empty());
    REQUIRE(compose(named_strategy(name).value()));
  }
  const auto unknown = named_strategy("dilocco");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().why.find("diloco, streaming-diloco, decoupled-diloco, fedbuff, eager-diloco, co2, noloco, data-parallel, local, "
                                 "decentralized-diffusion") != std::string::npos);
}

TEST_CASE("composition: diloco is the paper's", "[strategies]") {
  const auto parts = compose(named_strategy("diloco").value()).value();
  CHECK(parts.fragments.kind == FragmentKind::whole);
  CHECK(parts.group == Group::all);
  CHECK(parts.payload == PayloadKind::outer_gradient);
  CHECK(parts.codec == CodecSettings{});
  CHECK(parts.outer == OuterOptimizer{OuterOptimizerKind::nesterov, 0.7, 0.9});
  CHECK(parts.weighting == Weighting::tokens);
  CHECK(parts.merge_alpha == 0.0);
  CHECK(parts.overlap_steps == 0);
  CHECK(schedule_of(parts, 1000, 1).value().rounds() == 10);
}

TEST_CASE("composition: fedbuff is the paper's rule", "[strategies]") {
  const auto parts = compose(named_strategy("fedbuff").value()).value();
  CHECK(parts.quorum == 2);
  CHECK(parts.quorum_of == QuorumOf::any_age);
  CHECK(parts.anchor == Anchor::own);
  CHECK(parts.weighting == Weighting::uniform);
  CHECK(parts.outer == OuterOptimizer{OuterOptimizerKind::sgd, 1.0, 0.0});
  CHECK_FALSE(parts.adaptive_pace);
  StrategySpec without = named_strategy("fedbuff").value();
  without.quorum = 0;
  const auto problems = strategy_problems(without);
  REQUIRE(problems.size() == 1);
  CHECK(problems.front().field == "quorum_of");
}

TEST_CASE("composition: the baselines", "[strategies]") {
  const auto parallel = compose(named_strategy("data-parallel").value()).value();
  CHECK(parallel.inner_steps == 1);
  CHECK(parallel.payload == PayloadKind::gradient);
  CHECK(parallel.outer.kind == OuterOptimizerKind::adopt);
  CHECK(schedule_of(parallel, 1000, 1).value().rounds() == 1000);
  const auto local = compose(named_strategy("local").value()).value();
  CHECK(local.group == Group::nobody);
  CHECK(local.payload == PayloadKind::parameters);
  CHECK(local.outer.kind == OuterOptimizerKind::adopt);
}

TEST_CASE("composition: the parts of streaming, and of others not named yet", "[strategies]") {
  auto settings = named_strategy("diloco").value();
  settings.grouping = FragmentKind::strided;
  settings.inner_steps = 30;
  settings.overlap_steps = 1;
  settings.codec = CodecKind::fp4;
  settings.reduce_codec = CodecKind::bf16;
  settings.rounding = Rounding::stochastic;
  settings.merge_alpha = 0.5;
  settings.outer_learning_rate = 0.4;
  const auto parts = compose(settings).value();
  CHECK(parts.fragments == FragmentPlan{FragmentKind::strided, 0, 3});
  CHECK(parts.codec == CodecSettings{CodecKind::fp4, 256, Rounding::stochastic});
  CHECK(parts.reduce_codec == CodecSettings{CodecKind::bf16, 256, Rounding::nearest});
  CHECK(schedule_of(parts, 300, 9).value().fragments() == 9);
  CHECK(parts.outer_state == OuterStateFormat::f32);
  for (const char* name : {"diloco", "streaming-diloco", "decoupled-diloco", "eager-diloco", "co2", "noloco", "decentralized-diffusion"}) {
    INFO(name);
    settings = named_strategy(name).value();
    settings.outer_state = OuterStateFormat::bf16;
    CHECK(compose(settings).value().outer_state == OuterStateFormat::bf16);
  }
  // An outer step alone (no group), and averaging of parameters.
  auto alone = named_strategy("diloco").value();
  alone.group = Group::nobody;
  CHECK(compose(alone));
  auto averaging = named_strategy("diloco").value();
  averaging.payload = PayloadKind::parameters;
  averaging.outer_optimizer = OuterOptimizerKind::adopt;
  CHECK(compose(averaging));
}

TEST_CASE("composition: what is impossible is named by its field", "[strategies]") {
  struct Case {
    std::string_view base;
    std::function<void(StrategySpec&)> change;
    std::string field;
  };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Case> cases{
      {"diloco", [](auto& s) { s.outer_pull = 0.7; }, "outer_pull"},
      {"noloco", [](auto& s) { s.outer_optimizer = OuterOptimizerKind::nesterov; }, "outer_optimizer"},
      {"noloco", [](auto& s) { s.weighting = Weighting::tokens; }, "weighting"},
      {"noloco", [](auto& s) { s.outer_pull = 0.5; }, "outer_pull"},  // the interval of α = 0.5 is open: 0.5 to 1.5
      {"noloco", [](auto& s) { s.outer_pull = 1.5; }, "outer_pull"},
      {"noloco", [](auto& s) { s.outer_pull = 1.3, s.group_size = 3; }, "outer_pull"},  // of three: 0.433 to 1.299
      {"noloco", [](auto& s) { s.group_size = 1; }, "group_size"},
      {"diloco", [](auto& s) { s.group_size = 3; }, "group_size"},
      {"diloco", [](auto& s) { s.layers_per_fragment = 0; }, "layers_per_fragment"},
      {"diloco", [](auto& s) { s.grouping = FragmentKind::balanced; }, "fragments"},
      {"diloco", [](auto& s) { s.inner_steps = 0; }, "inner_steps"},
      {"diloco", [](auto& s) { s.overlap_steps = 101; }, "overlap_steps"},
      {"noloco", [](auto& s) { s.overlap_steps = 50, s.pace = Pace::fixed; }, "overlap_steps"},
      {"diloco", [](auto& s) { s.overlap_steps = 100, s.pace = Pace::adaptive; }, "pace"},
      {"diloco", [](auto& s) { s.eager = true; }, "eager"},
      {"eager-diloco", [](auto& s) { s.overlap_steps = 29; }, "eager"},
      {"eager-diloco", [](auto& s) { s.merge_alpha = 0.5; }, "eager"},
      {"eager-diloco", [](auto& s) { s.outer_optimizer = OuterOptimizerKind::clipped_momentum; }, "eager"},
      {"eager-diloco", [](auto& s) { s.aggregator = Aggregator::trimmed_mean; }, "eager"},
      {"diloco", [](auto& s) { s.outer_clip = 1; }, "outer_clip"},
      {"co2", [](auto& s) { s.outer_clip = -1; }, "outer_clip"},
      {"co2", [](auto& s) { s.outer_optimizer = OuterOptimizerKind::sgd, s.outer_clip = 0; }, "gap_penalty"},
      {"diloco", [](auto& s) { s.outer_optimizer = OuterOptimizerKind::sgd, s.outer_state = OuterStateFormat::bf16; }, "outer_state"},
      {"data-parallel", [](auto& s) { s.outer_state = OuterStateFormat::bf16; }, "outer_state"},
      {"data-parallel", [](auto& s) { s.aggregator = Aggregator::radial_directional; }, "aggregator"},
      {"diloco", [](auto& s) { s.codec = CodecKind::int8, s.codec_block = 100; }, "codec_block"},
      {"diloco", [](auto& s) { s.outer_learning_rate = 0; }, "outer_learning_rate"},
      {"diloco", [](auto& s) { s.outer_learning_rate = -1; }, "outer_learning_rate"},
      {"diloco", [](auto& s) { s.outer_learning_rate = kNan; }, "outer_learning_rate"},
      {"diloco", [](auto& s) { s.outer_momentum = 1; }, "outer_momentum"},
      {"diloco", [](auto& s) { s.outer_momentum = -0.1; }, "outer_momentum"},
      {"diloco", [](auto& s) { s.outer_momentum = kNan; }, "outer_momentum"},
      {"diloco", [](auto& s) { s.merge_alpha = 1.01; }, "merge_alpha"},
      {"diloco", [](auto& s) { s.merge_alpha = -0.01; }, "merge_alpha"},
      {"diloco", [](auto& s) { s.merge_alpha = kNan; }, "merge_alpha"},
      {"diloco", [](auto& s) { s.outer_optimizer = OuterOptimizerKind::adopt; }, "outer_optimizer"},
      {"diloco", [](auto& s) { s.payload = PayloadKind::parameters; }, "outer_optimizer"},
      {"data-parallel", [](auto& s) { s.inner_steps = 2; }, "inner_steps"},
      {"data-parallel", [](auto& s) { s.group = Group::nobody; }, "payload"},
      {"data-parallel", [](auto& s) { s.outer_optimizer = OuterOptimizerKind::nesterov; }, "outer_optimizer"},
      {"data-parallel", [](auto& s) { s.merge_alpha = 0.5; }, "merge_alpha"},
      {"data-parallel", [](auto& s) { s.grouping = FragmentKind::strided; }, "grouping"},
      {"local", [](auto& s) { s.codec = CodecKind::bf16; }, "codec"},
      {"local", [](auto& s) { s.reduce_codec = CodecKind::bf16; }, "reduce_codec"},
      {"local", [](auto& s) { s.merge_alpha = 0.5; }, "merge_alpha"},
  };
  for (const Case& test : cases) {
    auto settings = named_strategy(test.base).value();
    test.change(settings);
    INFO(test.base << ", " << test.field);
    const auto problems = strategy_problems(settings);
    REQUIRE(problems.size() == 1);
    CHECK(problems[0].field == test.field);
    CHECK(compose(settings).error() == Error{Code::invalid_argument, test.field + ": " + problems[0].why});
  }
  auto unstable = named_strategy("noloco").value();
  unstable.outer_pull = 1.6;
  CHECK(compose(unstable).error().why.find("0.5") != std::string::npos);  // it names the interval
  unstable.allow_unstable = true;
  CHECK(compose(unstable));
  auto threes = named_strategy("noloco").value();
  threes.group_size = 3;
  threes.outer_pull = 0.45;  // too little for two
  CHECK(compose(threes).value().group_size == 3);
  auto many = named_strategy("diloco").value();
  many.outer_momentum = 2;
  many.merge_alpha = 2;
  many.overlap_steps = 2000;
  CHECK(strategy_problems(many).size() == 3);
}

TEST_CASE("composition: every choice has the text that a run file gives it", "[strategies]") {
  CHECK(name_of(FragmentKind::whole) == "whole");
  CHECK(name_of(FragmentKind::sequential) == "sequential");
  CHECK(name_of(FragmentKind::strided) == "strided");
  CHECK(name_of(FragmentKind::balanced) == "balanced");
  CHECK(name_of(Group::all) == "all");
  CHECK(name_of(Group::pairs) == "pairs");
  CHECK(name_of(Group::nobody) == "nobody");
  CHECK(name_of(Group::expert) == "expert");
  CHECK(name_of(PayloadKind::outer_gradient) == "outer-gradient");
  CHECK(name_of(PayloadKind::gradient) == "gradient");
  CHECK(name_of(PayloadKind::parameters) == "parameters");
  CHECK(name_of(CodecKind::f32) == "f32");
  CHECK(name_of(CodecKind::bf16) == "bf16");
  CHECK(name_of(CodecKind::int8) == "int8");
  CHECK(name_of(CodecKind::fp4) == "fp4");
  CHECK(name_of(Rounding::nearest) == "nearest");
  CHECK(name_of(Rounding::stochastic) == "stochastic");
  CHECK(name_of(OuterOptimizerKind::nesterov) == "nesterov");
  CHECK(name_of(OuterOptimizerKind::heavy_ball) == "heavy-ball");
  CHECK(name_of(OuterOptimizerKind::sgd) == "sgd");
  CHECK(name_of(OuterOptimizerKind::adopt) == "adopt");
  CHECK(name_of(Weighting::tokens) == "tokens");
  CHECK(name_of(Weighting::uniform) == "uniform");
  CHECK(name_of(Pace::fixed) == "fixed");
  CHECK(name_of(Pace::adaptive) == "adaptive");
}

TEST_CASE("cost: what a member sends in one exchange", "[strategies]") {
  const CodecSettings f32{};
  const CodecSettings bf16{CodecKind::bf16, 256, Rounding::nearest};
  constexpr std::uint64_t kValues = 16 * 3 * 5 * 1000;  // divides evenly among up to six members
  CHECK(exchange_cost(kValues, 1, 0, f32, f32).value() == RoundCost{});
  CHECK(exchange_cost(kValues, 2, 1, bf16, f32).value() == RoundCost{1, 2 * kValues});
  for (const std::uint32_t members : {3U, 4U, 5U, 6U}) {
    for (std::uint32_t member = 0; member < members; ++member) {
      // (P − 1)/P · N · b/8 of contributions, and the same of the own shard reduced.
      const std::uint64_t expected = kValues * (members - 1) / members * 2 + kValues * (members - 1) / members * 4;
      CHECK(exchange_cost(kValues, members, member, bf16, f32).value() == RoundCost{2 * (members - 1), expected});
    }
  }
  CHECK_FALSE(exchange_cost(kValues, 3, 3, f32, f32));
  CHECK_FALSE(exchange_cost(kValues, 3, 0, {CodecKind::fp4, 7, {}}, f32));
}

TEST_CASE("cost: no byte is lost or counted twice where nothing divides evenly", "[strategies]") {
  const CodecSettings fp4{CodecKind::fp4, 48, Rounding::nearest};
  const CodecSettings int8{CodecKind::int8, 32, Rounding::nearest};
  for (const std::uint64_t values : {1ULL, 95ULL, 97ULL, 100'003ULL}) {
    for (const std::uint32_t members : {3U, 5U, 8U}) {
      std::uint64_t sent = 0;
      for (std::uint32_t member = 0; member < members; ++member) {
        sent += exchange_cost(values, members, member, fp4, int8).value().bytes;
      }
      std::uint64_t expected = 0;
      const auto shards = split_shards(values, members, shard_granularity(fp4, int8)).value();
      for (const Shard& shard : shards) {
        expected += (members - 1) * (encoded_bytes(fp4, shard.count) + encoded_bytes(int8, shard.count));
      }
      CHECK(sent == expected);
    }
  }
}

TEST_CASE("cost: DiLoCo sends H times fewer bytes than data-parallel, local none", "[strategies]") {
  const CodecSettings f32{};
  const auto parallel = diloco_cost(1'000'000, 600, 1, 4, 2, f32, f32).value();
  for (const std::uint64_t inner_steps : {10ULL, 30ULL, 100ULL}) {
    const auto cost = diloco_cost(1'000'000, 600, inner_steps, 4, 2, f32, f32).value();
    CHECK(parallel.bytes == cost.bytes * inner_steps);
    CHECK(parallel.messages == cost.messages * inner_steps);
  }
  CHECK(diloco_cost(1000, 250, 100, 2, 0, f32, f32).value() == RoundCost{3, 12'000});
  CHECK(kLocalCost == RoundCost{});
}

}  // namespace of_strategies_composition_test
