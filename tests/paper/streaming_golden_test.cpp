// Streaming DiLoCo, Algorithm 2 (arXiv:2501.18512): histories of two fragments of one weight each, computed by hand.
//
// The model has weights a (fragment 0) and b (fragment 1), both 0 at first; H = 4, eight inner steps, SGD as outer optimiser with
// η = ½ and no momentum, then Nesterov. Two islands with constant gradients: an inner step adds −1 to both weights of island one
// and −3 to those of island two, so that without synchronisation θ(t) = −t and −3t. All numbers are exact in float32.
//
// Fragment 0 starts at step 4, fragment 1 at 4 + 2 = 6 (their only regular rounds: the next would start at 8, the end); at step
// 8 both are synchronised one last time without overlap.
// Mean Δ = mean over islands of (outer − local); outer <- outer − η·Δ; local <- α·local + (1 − α)·outer.
#include <array>
#include <map>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/schedule.hpp"
#include "tests/catch.hpp"
#include "tests/mean.hpp"
#include "tests/merge.hpp"

using namespace atl;

namespace {

constexpr std::size_t kIslands = 2;
constexpr std::array<float, kIslands> kSteps = {-1.0F, -3.0F};  // what one inner step adds to a weight

struct History {
  // [fragment]: the outer weight after each of its rounds.
  std::array<std::vector<float>, 2> outer;
  // [island][step]: the two weights once everything of that step is done, the merge too.
  std::array<std::vector<std::array<float, 2>>, kIslands> local;
};

// What agents and trainers do, in one loop: after a step first the merges that are due, then the contributions; at the last
// step a contribution's result is waited for and merged at once.
History train(std::uint64_t steps, std::uint64_t overlap, double alpha, const OuterOptimizer& optimizer) {
  const Schedule schedule = Schedule::make(steps, 4, 2, overlap).value();
  std::array<std::vector<float>, kIslands> weights = {std::vector<float>(2), std::vector<float>(2)};
  std::vector<float> outer(2);
  std::vector<float> momentum(2);
  History history;
  std::map<Round, float> mean_of;  // results of rounds in flight
  const auto start = [&](const RoundPlan& plan) {
    std::array<std::vector<float>, kIslands> contributions;
    std::vector<std::span<const float>> spans;
    for (std::size_t i = 0; i < kIslands; ++i) {
      contributions[i] = {weights[i][plan.fragment]};
      REQUIRE(form_outer_gradient(std::span(outer).subspan(plan.fragment, 1), contributions[i]));
      spans.emplace_back(contributions[i]);
    }
    const std::vector<float> shares = contribution_weights(std::vector<std::uint64_t>{10, 10}, Weighting::tokens).value();
    std::vector<float> mean(1);
    atl_test::weighted_mean(spans, shares, mean);
    mean_of[plan.round] = mean[0];
  };
  const auto apply = [&](const RoundPlan& plan) {
    const std::vector<float> gradient{mean_of.at(plan.round)};
    mean_of.erase(plan.round);
    const OuterState state{std::span(outer).subspan(plan.fragment, 1), std::span(momentum).subspan(plan.fragment, 1)};
    REQUIRE(outer_step(gradient, optimizer, state));
    history.outer[plan.fragment].push_back(outer[plan.fragment]);
    for (std::vector<float>& local : weights) {
      REQUIRE(merge(alpha, std::span(outer).subspan(plan.fragment, 1), std::span(local).subspan(plan.fragment, 1)));
    }
  };
  for (std::uint64_t step = 1; step <= steps; ++step) {
    for (std::size_t i = 0; i < kIslands; ++i) {
      weights[i][0] += kSteps[i];
      weights[i][1] += kSteps[i];
    }
    const auto starting = schedule.rounds_starting_at(Step(step));
    const auto applying = schedule.rounds_applying_at(Step(step));
    for (const RoundPlan& plan : applying) {
      if (plan.start < Step(step)) {
        apply(plan);
      }
    }
    for (const RoundPlan& plan : starting) {
      start(plan);
    }
    for (const RoundPlan& plan : applying) {
      if (plan.start == Step(step)) {
        apply(plan);
      }
    }
    for (std::size_t i = 0; i < kIslands; ++i) {
      history.local[i].push_back({weights[i][0], weights[i][1]});
    }
  }
  REQUIRE(mean_of.empty());
  return history;
}

constexpr OuterOptimizer kSgd{OuterOptimizerKind::sgd, 0.5, 0.0};

// The weights of an island after steps 4, 5, 6, 7 and 8.
std::vector<std::array<float, 2>> from_step_4(const History& history, std::size_t island) {
  return {history.local[island].begin() + 3, history.local[island].end()};
}

using Weights = std::vector<std::array<float, 2>>;

}  // namespace

// τ = 0.
// Step 4, fragment 0: locals −4 and −12, outer 0: Δ = 4 and 12, mean 8. a~ = 0 − ½·8 = −4.
//   merged: one −4α + (1 − α)(−4) = −4; two −12α − 4(1 − α) = −4 − 8α.
// Step 6, fragment 1: locals −6 and −18: Δ mean 12, b~ = −6; merged: one −6, two −6 − 12α.
// Step 8, both. a: one has made 4 steps since the merge: −8; two −4 − 8α − 12 = −16 − 8α. Against −4: Δ = 4 and 12 + 8α,
//   mean 8 + 4α; a~ = −4 − 4 − 2α = −8 − 2α.
//   b: one −6 − 2 = −8; two −6 − 12α − 6 = −12 − 12α. Against −6: Δ = 2 and 6 + 12α, mean 4 + 6α; b~ = −6 − 2 − 3α = −8 − 3α.
//   merged: one a −8α + (1 − α)(−8 − 2α), b −8α + (1 − α)(−8 − 3α);
//           two a α(−16 − 8α) + (1 − α)(−8 − 2α), b α(−12 − 12α) + (1 − α)(−8 − 3α).
TEST_CASE("Streaming DiLoCo Alg. 2, golden: two fragments, tau 0, alpha 0: everyone takes the outer weights") {
  const History history = train(8, 0, 0.0, kSgd);
  CHECK(history.outer[0] == std::vector<float>{-4, -8});
  CHECK(history.outer[1] == std::vector<float>{-6, -8});
  CHECK(from_step_4(history, 0) == Weights{{-4, -4}, {-5, -5}, {-6, -6}, {-7, -7}, {-8, -8}});
  CHECK(from_step_4(history, 1) == Weights{{-4, -12}, {-7, -15}, {-10, -6}, {-13, -9}, {-8, -8}});
}

TEST_CASE("Streaming DiLoCo Alg. 2, golden: two fragments, tau 0, alpha one half: the outer weight is the reference, not the mixed one") {
  const History history = train(8, 0, 0.5, kSgd);
  // a~ = −8 − 1, b~ = −8 − 1.5.
  CHECK(history.outer[0] == std::vector<float>{-4, -9});
  CHECK(history.outer[1] == std::vector<float>{-6, -9.5});
  // One: a ½(−8 − 9) = −8.5, b ½(−8 − 9.5) = −8.75. Two: after 4 a = −8, after 6 b = −12; at 8 a was −20: ½(−20 − 9) = −14.5,
  // b was −18: ½(−18 − 9.5) = −13.75.
  CHECK(from_step_4(history, 0) == Weights{{-4, -4}, {-5, -5}, {-6, -6}, {-7, -7}, {-8.5, -8.75}});
  CHECK(from_step_4(history, 1) == Weights{{-8, -12}, {-11, -15}, {-14, -12}, {-17, -15}, {-14.5, -13.75}});
}

TEST_CASE("Streaming DiLoCo Alg. 2, golden: two fragments, tau 0, alpha 1: the islands never hear of one another") {
  const History history = train(8, 0, 1.0, kSgd);
  CHECK(history.outer[0] == std::vector<float>{-4, -10});  // −8 − 2
  CHECK(history.outer[1] == std::vector<float>{-6, -11});  // −8 − 3
  CHECK(from_step_4(history, 0) == Weights{{-4, -4}, {-5, -5}, {-6, -6}, {-7, -7}, {-8, -8}});
  CHECK(from_step_4(history, 1) == Weights{{-12, -12}, {-15, -15}, {-18, -18}, {-21, -21}, {-24, -24}});
}

// τ = 1: the contributions are those of steps 4 and 6 as above, the results come one step later.
// Step 5, fragment 0: a~ = −4; locals are −5 and −15. merged: one −5α − 4(1 − α) = −4 − α; two −15α − 4(1 − α) = −4 − 11α.
// Step 7, fragment 1: b~ = −6; locals are −7 and −21. merged: one −6 − α; two −6 − 15α.
// Step 8, both, at once. a: one −4 − α − 3 = −7 − α; two −4 − 11α − 9 = −13 − 11α. Against −4: Δ = 3 + α and 9 + 11α, mean 6 + 6α;
//   a~ = −4 − 3 − 3α = −7 − 3α.
//   b: one −6 − α − 1 = −7 − α; two −6 − 15α − 3 = −9 − 15α. Against −6: Δ = 1 + α and 3 + 15α, mean 2 + 8α; b~ = −7 − 4α.
//   merged: one a α(−7 − α) + (1 − α)(−7 − 3α), b α(−7 − α) + (1 − α)(−7 − 4α);
//           two a α(−13 − 11α) + (1 − α)(−7 − 3α), b α(−9 − 15α) + (1 − α)(−7 − 4α).
TEST_CASE("Streaming DiLoCo Alg. 2, golden: two fragments, tau 1, alpha 0: the overlapped step is thrown away") {
  const History history = train(8, 1, 0.0, kSgd);
  CHECK(history.outer[0] == std::vector<float>{-4, -7});
  CHECK(history.outer[1] == std::vector<float>{-6, -7});
  CHECK(from_step_4(history, 0) == Weights{{-4, -4}, {-4, -5}, {-5, -6}, {-6, -6}, {-7, -7}});
  CHECK(from_step_4(history, 1) == Weights{{-12, -12}, {-4, -15}, {-7, -18}, {-10, -6}, {-7, -7}});
}

TEST_CASE("Streaming DiLoCo Alg. 2, golden: two fragments, tau 1, alpha one half") {
  const History history = train(8, 1, 0.5, kSgd);
  CHECK(history.outer[0] == std::vector<float>{-4, -8.5});  // −7 − 1.5
  CHECK(history.outer[1] == std::vector<float>{-6, -9});    // −7 − 2
  // One: a −4.5 at 5, −7.5 before the last merge: ½(−7.5 − 8.5) = −8; b −6.5 at 7, −7.5: ½(−7.5 − 9) = −8.25.
  CHECK(from_step_4(history, 0) == Weights{{-4, -4}, {-4.5, -5}, {-5.5, -6}, {-6.5, -6.5}, {-8, -8.25}});
  // Two: a −9.5 at 5, −18.5: ½(−18.5 − 8.5) = −13.5; b −13.5 at 7, −16.5: ½(−16.5 − 9) = −12.75.
  CHECK(from_step_4(history, 1) == Weights{{-12, -12}, {-9.5, -15}, {-12.5, -18}, {-15.5, -13.5}, {-13.5, -12.75}});
}

TEST_CASE("Streaming DiLoCo Alg. 2, golden: two fragments, tau 1, alpha 1") {
  const History history = train(8, 1, 1.0, kSgd);
  CHECK(history.outer[0] == std::vector<float>{-4, -10});  // −7 − 3: the same as with τ = 0, since nothing is merged
  CHECK(history.outer[1] == std::vector<float>{-6, -11});  // −7 − 4
  CHECK(from_step_4(history, 0) == Weights{{-4, -4}, {-5, -5}, {-6, -6}, {-7, -7}, {-8, -8}});
  CHECK(from_step_4(history, 1) == Weights{{-12, -12}, {-15, -15}, {-18, -18}, {-21, -21}, {-24, -24}});
}

// Nesterov with η = ½, μ = ½, τ = 1, α = ½: each fragment has a momentum of its own.
//   fragment 0: b = 8, step ½·(8 + ½·8) = 6, a~ = −6. Step 5: one ½(−5 − 6) = −5.5, two ½(−15 − 6) = −10.5.
//   fragment 1: b = 12, step ½·(12 + 6) = 9, b~ = −9. Step 7: one ½(−7 − 9) = −8, two ½(−21 − 9) = −15.
//   Step 8: a: locals −8.5 and −19.5 against −6: Δ = 2.5 and 13.5, mean 8; momentum ½·8 + 8 = 12, step ½·(8 + 6) = 7, a~ = −13.
//           b: locals −9 and −18 against −9: Δ = 0 and 9, mean 4.5; momentum ½·12 + 4.5 = 10.5, step ½·(4.5 + 5.25) = 4.875,
//           b~ = −13.875.
//   merged: one a ½(−8.5 − 13) = −10.75, b ½(−9 − 13.875) = −11.4375; two a ½(−19.5 − 13) = −16.25, b ½(−18 − 13.875) = −15.9375.
TEST_CASE("Streaming DiLoCo Alg. 2, golden: every fragment has its own Nesterov momentum") {
  const History history = train(8, 1, 0.5, {OuterOptimizerKind::nesterov, 0.5, 0.5});
  CHECK(history.outer[0] == std::vector<float>{-6, -13});
  CHECK(history.outer[1] == std::vector<float>{-9, -13.875});
  CHECK(from_step_4(history, 0).back() == std::array<float, 2>{-10.75F, -11.4375F});
  CHECK(from_step_4(history, 1).back() == std::array<float, 2>{-16.25F, -15.9375F});
}
