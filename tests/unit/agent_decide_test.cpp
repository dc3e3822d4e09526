// The agent's decisions, row by row.
#include <set>

#include "agent/core/decide.hpp"
#include "tests/catch.hpp"

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

TEST_CASE("decide_restart doubles the delay and gives up after the limit") {
  REQUIRE(decide_restart(1, 5, false, 1s, "a checkpoint").delay == 1s);
  REQUIRE(decide_restart(4, 5, false, 1s, "a checkpoint").delay == 8s);
  REQUIRE_FALSE(decide_restart(5, 5, false, 1s, "a checkpoint").restart);
  REQUIRE_FALSE(decide_restart(5, 5, false, 1s, "a checkpoint").why.empty());
  REQUIRE_FALSE(decide_restart(1, 5, true, 1s, "a checkpoint").restart);
}

TEST_CASE("decide_plan: every round has one publish and one merge, however the plan is cut") {
  const Schedule schedule = Schedule::make(47, 5, 1, 2).value();
  for (std::uint64_t cut = 1; cut <= schedule.rounds(); ++cut) {
    std::set<Round> published;
    std::set<Round> merged;
    Step until;
    for (Round planned; planned.value < schedule.rounds();) {
      const Round next(std::min(planned.value + cut, schedule.rounds()));
      const PlanDecision decision = decide_plan(schedule, planned, next, PlanSettings{});
      for (const PublishOrder& order : decision.publish) {
        REQUIRE(published.insert(order.round).second);
      }
      for (const MergeOrder& order : decision.merge) {
        REQUIRE(merged.insert(order.round).second);
      }
      REQUIRE(decision.until >= until);
      until = decision.until;
      planned = next;
    }
    REQUIRE(published.size() == schedule.rounds());
    REQUIRE(merged.size() == schedule.rounds());
    REQUIRE(until == Step(47));
  }
}

TEST_CASE("checkpoints are due every so many rounds, and after the last") {
  REQUIRE_FALSE(checkpoint_due(Round(0), Round(10), 5));
  REQUIRE(checkpoint_due(Round(5), Round(10), 5));
  REQUIRE_FALSE(checkpoint_due(Round(6), Round(10), 5));
  REQUIRE(checkpoint_due(Round(10), Round(10), 7));
  REQUIRE_FALSE(checkpoint_due(Round(9), Round(10), 0));
}

// F = 4, H = 8, tau = 7: rounds start at 8, 10, 12, 14, 16 … and are merged at 15, 17, 19, 21 …
TEST_CASE("decide_horizon: orders for every round that starts before the next result must be there, and some more") {
  const Schedule overlapped = Schedule::make(80, 8, 4, 7).value();
  REQUIRE(decide_horizon(overlapped, Round(0), 0) == Round(4));  // started by step 15: those of 8, 10, 12, 14
  REQUIRE(decide_horizon(overlapped, Round(0), 2) == Round(6));
  REQUIRE(decide_horizon(overlapped, Round(3), 2) == Round(9));
  const Round last(overlapped.rounds());
  REQUIRE(decide_horizon(overlapped, Round(last.value - 2), 2) == last);
  REQUIRE(decide_horizon(overlapped, last, 2) == last);
  const Schedule plain = Schedule::make(80, 8).value();
  REQUIRE(decide_horizon(plain, Round(0), 2) == Round(3));
  const Schedule many = Schedule::make(10000, 1000, 500, 999).value();
  REQUIRE(decide_horizon(many, Round(0), 2) == Round(kRoundsInFlight));
}

TEST_CASE("decide_plan: with overlap the trainer stops where a round begins that it has no order for") {
  const Schedule schedule = Schedule::make(80, 8, 4, 7).value();
  const PlanDecision first = decide_plan(schedule, Round(0), Round(2), {});
  REQUIRE(first.publish.size() == 2);
  REQUIRE(first.merge.size() == 2);
  REQUIRE(first.merge[1].step == Step(17));
  REQUIRE(first.until == Step(12));  // round 3 begins there
  // Rounds whose contributions came with a checkpoint are only merged.
  const PlanDecision resumed = decide_plan(schedule, Round(2), Round(6), {}, {Round(3), Round(4)});
  REQUIRE(resumed.publish.size() == 2);
  REQUIRE(resumed.publish[0].round == Round(5));
  REQUIRE(resumed.merge.size() == 4);
  REQUIRE(resumed.merge[0].round == Round(3));
  REQUIRE(decide_plan(schedule, Round(6), Round(schedule.rounds()), {}).until == Step(80));
}

TEST_CASE("decide_activity: whoever waits says for what") {
  for (unsigned bits = 0; bits < 1024; ++bits) {
    ActivityInput input;
    input.ended = (bits & 1U) != 0;
    input.catching_up = (bits & 2U) != 0;
    input.restoring = (bits & 4U) != 0;
    input.active = (bits & 8U) != 0;
    input.has_state = (bits & 16U) != 0;
    input.trainer_up = (bits & 32U) != 0;
    input.trainer_crashed = (bits & 64U) != 0;
    input.training = (bits & 128U) != 0;
    input.checkpointing = (bits & 256U) != 0;
    input.link = (bits & 512U) != 0;
    const Activity activity = decide_activity(input);
    REQUIRE_FALSE(activity.state.empty());
    REQUIRE((activity.state == "training" || activity.state == "exchanging" || !activity.reason.empty()));
  }
}
