// The agent's decisions, row by row.
#include <set>

#include "agent/core/decide.hpp"
#include "tests/catch.hpp"

namespace of_agent_decide_test {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

TEST_CASE("decide_restart doubles the delay and gives up after the limit") {
  REQUIRE(decide_restart(1, 1, 5, false, 1s, "a checkpoint").delay == 1s);
  REQUIRE(decide_restart(4, 1, 5, false, 1s, "a checkpoint").delay == 8s);
  REQUIRE_FALSE(decide_restart(5, 1, 5, false, 1s, "a checkpoint").restart);
  REQUIRE_FALSE(decide_restart(5, 1, 5, false, 1s, "a checkpoint").why.empty());
  REQUIRE_FALSE(decide_restart(1, 1, 5, true, 1s, "a checkpoint").restart);
  REQUIRE(decide_restart(3, 2, 5, false, 1s, "a checkpoint").restart);
  REQUIRE(decide_restart(3, 3, 5, false, 1s, "a checkpoint").why == "it ended 3 times with the same words");
}

TEST_CASE("a trainer that ran out of memory comes back once, whatever the figures that it gives") {
  const std::string once = "CUDA out of memory. Tried to allocate 2.00 GiB, 1.10 GiB is free";
  const std::string again = "CUDA out of memory. Tried to allocate 4.00 GiB, 1.25 GiB is free";
  REQUIRE(ends_alike(once, again));
  REQUIRE(ends_alike("no such column", "no such column"));
  REQUIRE_FALSE(ends_alike("no such column", once));
  REQUIRE_FALSE(ends_alike("no such column", "no such row"));
  REQUIRE_FALSE(ends_alike("", ""));  // killed: nobody knows of what
  REQUIRE(ran_out_of_memory(once));
  REQUIRE_FALSE(ran_out_of_memory("no such column"));
  REQUIRE(decide_restart(1, 1, 5, false, 1s, "a checkpoint", true).restart);
  REQUIRE_FALSE(decide_restart(2, 2, 5, false, 1s, "a checkpoint", true).restart);
  REQUIRE(decide_restart(2, 2, 5, false, 1s, "a checkpoint", true).why == "it ran out of memory 2 times");
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
TEST_CASE("decide_whole_plan: every round one publish and one merge, a merge only with the publish before it, and in the order of rounds") {
  for (std::uint64_t total = 1; total <= 30; ++total) {
    for (std::uint64_t period = 1; period <= 6; ++period) {
      for (std::uint32_t fragments = 1; fragments <= 7; ++fragments) {
        const Schedule schedule = Schedule::make(total, period, fragments, period, 0, true).value();
        WholePlanInput input;
        input.until = Round(schedule.rounds());
        std::vector<MergeOrder> merges;
        std::set<Round> published;
        while (input.planned < input.until) {
          const WholePlan plan = decide_whole_plan(schedule, input, {});
          INFO("T " << total << ", H " << period << ", F " << fragments << ", planned " << input.planned.value);
          REQUIRE(plan.newest > input.planned);  // as soon as all that were published are formed
          for (const PublishOrder& order : plan.orders.publish) {
            REQUIRE(published.insert(order.round).second);
            REQUIRE(order.step == schedule.round_at(order.round).value().start);
            const std::optional<Round> before = schedule.round_before(schedule.round_at(order.round).value());
            REQUIRE((!before || input.formed.contains(*before)));
          }
          for (const MergeOrder& order : plan.orders.merge) {
            merges.push_back(order);
            Round next = order.round.next();
            while (next <= input.until && schedule.round_at(next).value().fragment != order.fragment) {
              next = next.next();
            }
            REQUIRE((next > input.until || published.contains(next)));
          }
          REQUIRE((plan.newest == input.until || plan.orders.until == schedule.round_at(plan.newest.next()).value().start));
          input.planned = plan.newest;
          input.in_hand = published;
          input.formed = published;
        }
        REQUIRE(merges.size() == schedule.rounds());
        for (std::size_t i = 0; i < merges.size(); ++i) {
          REQUIRE(merges[i].round == Round(i + 1));
        }
      }
    }
  }
}

TEST_CASE("decide_whole_plan: a fragment is not published again before it is formed, and whoever was loaded merges only what came since") {
  const Schedule schedule = Schedule::make(50, 10, 1, 10, 0, true).value();  // rounds at 10, 20, 30, 40 and 50
  WholePlanInput input{Round(0), Round(0), Round(0), Round(2), {}, {}};
  WholePlan plan = decide_whole_plan(schedule, input, {});
  CHECK(plan.newest == Round(1));
  CHECK(plan.orders.until == Step(20));
  CHECK(plan.orders.merge.empty());
  input.planned = plan.newest;
  input.in_hand = {Round(1)};
  CHECK(decide_whole_plan(schedule, input, {}).newest == Round(1));  // published, and still being formed
  input.formed = {Round(1)};
  plan = decide_whole_plan(schedule, input, {});
  CHECK(plan.newest == Round(2));
  CHECK(plan.orders.publish.front().round == Round(2));
  CHECK(plan.orders.merge.front().round == Round(1));
  CHECK(plan.orders.until == Step(30));
  // It went on from a checkpoint of round 2, whose contribution to round 3 came with it.
  input = {Round(2), Round(2), Round(2), Round(4), {Round(3)}, {Round(3)}};
  plan = decide_whole_plan(schedule, input, {});
  REQUIRE(plan.orders.publish.size() == 1);
  CHECK(plan.orders.publish.front().round == Round(4));
  REQUIRE(plan.orders.merge.size() == 1);
  CHECK(plan.orders.merge.front().round == Round(3));
}

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

}  // namespace of_agent_decide_test
