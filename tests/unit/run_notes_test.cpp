// What is allowed and seldom wanted.
#include "strategies/specification/run_notes.hpp"

#include "tests/catch.hpp"

namespace of_run_notes_test {

using namespace atl;

namespace {

RunSpec spec_of(std::uint64_t steps, std::uint64_t inner_steps, OuterOptimizerKind optimizer, double momentum, Group group = Group::all) {
  RunSpec spec;
  spec.islands.min = spec.islands.max = 2;
  spec.training.steps = steps;
  spec.strategy.inner_steps = inner_steps;
  spec.strategy.outer_optimizer = optimizer;
  spec.strategy.outer_momentum = momentum;
  spec.strategy.group = group;
  return spec;
}

}  // namespace

TEST_CASE("a short run with outer momentum is told what to set, and nobody else") {
  struct Row {
    RunSpec spec;
    bool told;
  };
  const Row rows[] = {{spec_of(600, 30, OuterOptimizerKind::nesterov, 0.9), true},
                      {spec_of(2970, 30, OuterOptimizerKind::nesterov, 0.9), true},   // 99
                      {spec_of(2971, 30, OuterOptimizerKind::nesterov, 0.9), false},  // 100, the last one short
                      {spec_of(3000, 30, OuterOptimizerKind::nesterov, 0.9), false},
                      {spec_of(600, 30, OuterOptimizerKind::heavy_ball, 0.9), true},
                      {spec_of(600, 30, OuterOptimizerKind::nesterov, 0.5), false},
                      {spec_of(600, 30, OuterOptimizerKind::nesterov, 0), false},
                      {spec_of(600, 30, OuterOptimizerKind::sgd, 0.9), false},
                      {spec_of(600, 30, OuterOptimizerKind::adopt, 0.9), false},
                      {spec_of(600, 30, OuterOptimizerKind::heavy_ball, 0.9, Group::pairs), false},
                      {spec_of(600, 30, OuterOptimizerKind::nesterov, 0.9, Group::expert), false},
                      {spec_of(600, 30, OuterOptimizerKind::nesterov, 0.9, Group::nobody), false}};
  for (const Row& row : rows) {
    INFO(row.spec.training.steps << " steps of " << row.spec.strategy.inner_steps << ", " << name_of(row.spec.strategy.outer_optimizer)
                                 << " " << row.spec.strategy.outer_momentum << ", " << name_of(row.spec.strategy.group));
    CHECK(notes_on(row.spec).size() == (row.told ? 1 : 0));
  }
  CHECK(
      notes_on(spec_of(600, 30, OuterOptimizerKind::nesterov, 0.9))[0] ==
      "outer_momentum = 0.9 pays in long runs, from some 100 rounds on, and this one synchronises 20 times: with outer_learning_rate = 1.0 "
      "and outer_momentum = 0 short runs ended at a lower loss");
  CHECK(notes_on(spec_of(20, 30, OuterOptimizerKind::nesterov, 0.95))[0].find("synchronises once") != std::string::npos);
}

TEST_CASE("trimmed-mean is told where rounds may have too few contributions for it") {
  RunSpec spec = spec_of(3000, 30, OuterOptimizerKind::sgd, 0);
  spec.strategy.aggregator = Aggregator::trimmed_mean;
  spec.islands.min = 4;
  spec.islands.max = 6;
  CHECK(notes_on(spec).empty());
  spec.islands.min = 3;
  REQUIRE(notes_on(spec).size() == 1);
  CHECK(notes_on(spec)[0] ==
        "trimmed-mean leaves nothing out where a round has fewer than 4 contributions, and islands.min = 3 allows such rounds: in these a "
        "single island can pull the result anywhere");
  spec.islands.min = 4;
  spec.strategy.quorum = 3;
  REQUIRE(notes_on(spec).size() == 1);
  CHECK(notes_on(spec)[0].find("quorum = 3 allows") != std::string::npos);
  spec.strategy.quorum = 4;
  CHECK(notes_on(spec).empty());
  spec.strategy.quorum = 3;
  spec.strategy.aggregator = Aggregator::weighted_mean;
  CHECK(notes_on(spec).empty());
}

}  // namespace of_run_notes_test
