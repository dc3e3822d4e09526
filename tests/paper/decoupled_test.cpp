#include "strategies/decoupled_diloco.hpp"
#include "tests/catch.hpp"

using namespace atl;

TEST_CASE("decoupled-diloco is the composition that its header says") {
  const StrategySpec spec = named_strategy("decoupled-diloco").value();
  const Composition parts = compose(spec).value();
  CHECK(parts.fragments.kind == FragmentKind::balanced);
  CHECK(parts.fragments.fragments == 24);
  CHECK(parts.inner_steps == 24);
  CHECK(parts.overlap_steps == 2);
  CHECK(parts.merge_alpha == 0.0);
  CHECK(parts.quorum == 1);
  CHECK(parts.max_staleness == 2);
  CHECK(parts.anchor == Anchor::newest);
  CHECK(spec.grace == "auto");
  CHECK(parts.codec.kind == CodecKind::bf16);
  CHECK(parts.reduce_codec.kind == CodecKind::bf16);
  CHECK(parts.aggregator == Aggregator::radial_directional);
  CHECK(parts.weighting == Weighting::tokens_squared_per_step);
  CHECK(parts.outer.kind == OuterOptimizerKind::nesterov);
  CHECK(parts.adaptive_pace);
  CHECK_FALSE(parts.whole_period());
}
