// Schedule: which round starts when, against the definition evaluated step by step.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "strategies/schedule.hpp"
#include "tests/catch.hpp"

namespace of_strategies_schedule_test {

using namespace atl;

namespace {

// The definition, simulated: at every step, which fragments start.
std::vector<RoundPlan> by_definition(std::uint64_t total, std::uint64_t period, std::uint32_t fragments, std::uint64_t overlap,
                                     std::uint64_t first, bool publish_first) {
  std::vector<RoundPlan> plans;
  std::map<std::uint32_t, std::uint64_t> last;
  const auto add = [&](std::uint32_t fragment, std::uint64_t start, std::uint64_t apply) {
    plans.push_back({Round(plans.size() + 1), fragment, Step(start), Step(apply), Step(last[fragment])});
    last[fragment] = start;
  };
  for (std::uint64_t step = 1; step < total; ++step) {
    for (std::uint32_t fragment = 0; fragment < fragments; ++fragment) {
      const std::uint64_t shift = first + fragment * period / fragments;
      if (step >= shift && (step - shift) % period == 0 && (publish_first || step + overlap < total)) {
        add(fragment, step, std::min(step + overlap, total));
      }
    }
  }
  for (std::uint32_t fragment = 0; fragment < fragments; ++fragment) {
    add(fragment, total, total);
  }
  return plans;
}

}  // namespace

TEST_CASE("schedule: DiLoCo synchronises every H steps and at the end", "[strategies]") {
  const auto schedule = Schedule::make(250, 100).value();
  REQUIRE(schedule.rounds() == 3);
  CHECK(schedule.round_at(Round(1)).value() == RoundPlan{Round(1), 0, Step(100), Step(100), Step(0)});
  CHECK(schedule.round_at(Round(2)).value() == RoundPlan{Round(2), 0, Step(200), Step(200), Step(100)});
  CHECK(schedule.round_at(Round(3)).value() == RoundPlan{Round(3), 0, Step(250), Step(250), Step(200)});
  CHECK(Schedule::make(300, 100).value().rounds() == 3);
  CHECK(Schedule::make(7, 1).value().rounds() == 7);
  CHECK(Schedule::make(7, 100).value().rounds() == 1);
}

TEST_CASE("schedule: the example of Streaming DiLoCo, two fragments half a period apart", "[strategies]") {
  const auto schedule = Schedule::make(1000, 100, 2, 5).value();
  CHECK(schedule.rounds_starting_at(Step(50)).empty());  // no full period behind it yet
  REQUIRE(schedule.rounds_starting_at(Step(100)).size() == 1);
  CHECK(schedule.rounds_starting_at(Step(100))[0] == RoundPlan{Round(1), 0, Step(100), Step(105), Step(0)});
  CHECK(schedule.rounds_starting_at(Step(150))[0] == RoundPlan{Round(2), 1, Step(150), Step(155), Step(0)});
  CHECK(schedule.rounds_applying_at(Step(250 + 5))[0].fragment == 1);
  const auto last = schedule.rounds_starting_at(Step(1000));
  REQUIRE(last.size() == 2);
  CHECK(last[0].previous_start == Step(900));
  CHECK(last[1].previous_start == Step(950));
}

namespace {

void check_against_definition(std::uint64_t total, std::uint64_t period, std::uint32_t fragments, std::uint64_t overlap,
                              std::uint64_t offset, bool publish_first = false) {
  INFO("T " << total << ", H " << period << ", F " << fragments << ", overlap " << overlap << ", offset " << offset
            << (publish_first ? ", published first" : ""));
  const auto expected = by_definition(total, period, fragments, overlap, offset == 0 ? period : offset, publish_first);
  const auto schedule = Schedule::make(total, period, fragments, overlap, offset, publish_first).value();
  REQUIRE(schedule.rounds() == expected.size());
  std::map<std::uint32_t, Round> before;
  for (const RoundPlan& plan : expected) {
    REQUIRE(schedule.round_at(plan.round).value() == plan);
    const auto found = before.find(plan.fragment);
    REQUIRE(schedule.round_before(plan) == (found == before.end() ? std::nullopt : std::optional(found->second)));
    before[plan.fragment] = plan.round;
  }
  for (std::uint64_t step = 0; step <= total + period; ++step) {
    std::vector<RoundPlan> starting;
    std::vector<RoundPlan> applying;
    std::copy_if(expected.begin(), expected.end(), std::back_inserter(starting),
                 [&](const RoundPlan& plan) { return plan.start == Step(step); });
    std::copy_if(expected.begin(), expected.end(), std::back_inserter(applying),
                 [&](const RoundPlan& plan) { return plan.apply == Step(step); });
    REQUIRE(schedule.rounds_starting_at(Step(step)) == starting);
    REQUIRE(schedule.rounds_applying_at(Step(step)) == applying);
  }
}

}  // namespace

TEST_CASE("schedule: every small schedule equals its definition", "[strategies]") {
  for (std::uint64_t total = 1; total <= 19; ++total) {
    for (std::uint64_t period = 1; period <= 7; ++period) {
      for (std::uint32_t fragments = 1; fragments <= period + 3; ++fragments) {
        for (std::uint64_t overlap = 0; overlap <= period; ++overlap) {
          for (std::uint64_t offset = 0; offset <= period; ++offset) {
            check_against_definition(total, period, fragments, overlap, offset);
            if (overlap == period) {
              check_against_definition(total, period, fragments, overlap, offset, true);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("schedule: published tau steps before every H/F steps, results are applied there, as torchft does", "[strategies]") {
  // torchft's sync_every = 20, two fragments, fragment_sync_delay = 4: prepared after 6 and 16 inner steps, synchronised after 10 and 20.
  const auto schedule = Schedule::make(100, 20, 2, 4, 6).value();
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const RoundPlan plan = schedule.round_at(Round(round)).value();
    CHECK(plan.fragment == (round - 1) % 2);
    CHECK(plan.start == Step(10 * round - 4));
    CHECK(plan.apply == Step(10 * round));
  }
}

TEST_CASE("schedule: the layout of a model of 100 billion parameters, 36 fragments and one more at H = 30", "[strategies]") {
  const auto schedule = Schedule::make(300, 30, 37).value();
  std::map<std::uint64_t, std::set<std::uint32_t>> at;
  for (std::uint64_t step = 30; step < 60; ++step) {
    for (const RoundPlan& plan : schedule.rounds_starting_at(Step(step))) {
      at[step].insert(plan.fragment);
    }
  }
  std::size_t fragments = 0;
  for (const auto& [step, started] : at) {
    CHECK(started.size() <= 2);
    fragments += started.size();
  }
  CHECK(fragments == 37);
}

TEST_CASE("schedule: a fragment's rounds never overlap and leave no step out", "[strategies]") {
  const auto schedule = Schedule::make(10'007, 97, 13, 96).value();
  std::map<std::uint32_t, RoundPlan> last;
  for (std::uint64_t round = 1; round <= schedule.rounds(); ++round) {
    const RoundPlan plan = schedule.round_at(Round(round)).value();
    const auto before = last.find(plan.fragment);
    REQUIRE(plan.previous_start == (before == last.end() ? Step(0) : before->second.start));
    if (before != last.end()) {
      REQUIRE(before->second.apply < plan.start);
    }
    last[plan.fragment] = plan;
  }
  REQUIRE(last.size() == 13);
  for (const auto& [fragment, plan] : last) {
    CHECK(plan.start == Step(10'007));
  }
}

TEST_CASE("schedule: what cannot be is refused", "[strategies]") {
  constexpr std::uint64_t kLimit = 1ULL << 48;
  using Arguments = std::tuple<std::uint64_t, std::uint64_t, std::uint32_t, std::uint64_t>;
  for (const auto& [total, period, fragments, overlap] :
       {Arguments{0, 1, 1, 0}, Arguments{kLimit + 1, 1, 1, 0}, Arguments{10, 0, 1, 0}, Arguments{10, kLimit + 1, 1, 0},
        Arguments{10, 5, 0, 0}, Arguments{10, 5, 1, 6}, Arguments{10, 5, 1, ~0ULL}}) {
    const auto schedule = Schedule::make(total, period, fragments, overlap);
    REQUIRE_FALSE(schedule);
    CHECK(schedule.error().code == Code::invalid_argument);
  }
  CHECK(Schedule::make(10, 5, 1, 0, 6).error().code == Code::invalid_argument);
  CHECK(Schedule::make(10, 5, 1, 4, 0, true).error().code == Code::invalid_argument);
  CHECK(Schedule::make(10, 5, 1, 5, 0, true).value().merged_after(4).error().code == Code::invalid_argument);
  const auto largest = Schedule::make(kLimit, kLimit, 0xffffffffU, kLimit - 1).value();
  CHECK(largest.rounds() == 0xffffffffULL);
  CHECK(Schedule::make(kLimit, 3).value().round_at(Round(5)).value().start == Step(15));
  const auto small = Schedule::make(10, 5).value();
  CHECK_FALSE(small.round_at(Round(0)));
  CHECK_FALSE(small.round_at(Round(3)));
}

TEST_CASE("schedule: an island with a tau of its own has the same rounds and merges them in its own time") {
  const Schedule run = Schedule::make(40, 8, 4, 1).value();
  REQUIRE_FALSE(run.merged_after(9));
  for (const std::uint64_t own : {0U, 1U, 5U, 7U, 8U}) {
    const Schedule island = run.merged_after(own).value();
    REQUIRE(island.rounds() == run.rounds());
    std::vector<std::size_t> applied(run.rounds() + 1);
    for (std::uint64_t step = 0; step <= 40; ++step) {
      for (const RoundPlan& plan : island.rounds_applying_at(Step(step))) {
        REQUIRE(plan.apply == Step(step));
        ++applied[plan.round.value];
      }
    }
    for (std::uint64_t number = 1; number <= run.rounds(); ++number) {
      INFO("tau " << own << ", round " << number);
      const RoundPlan theirs = run.round_at(Round(number)).value();
      const RoundPlan plan = island.round_at(Round(number)).value();
      REQUIRE(applied[number] == 1);
      REQUIRE(plan.start == theirs.start);
      REQUIRE(plan.fragment == theirs.fragment);
      REQUIRE(plan.previous_start == theirs.previous_start);
      const bool last = plan.start == Step(40);
      REQUIRE(plan.apply == Step(last ? 40 : std::min<std::uint64_t>(plan.start.value + own, 39)));
    }
  }
}

TEST_CASE("schedule: the next round of a fragment, and how many lie between two, as counting them one by one says", "[strategies]") {
  for (const std::uint64_t total : {1, 7, 20, 41}) {
    for (const std::uint32_t fragments : {1U, 2U, 3U, 5U}) {
      const Schedule schedule = Schedule::make(total, 5, fragments, 2).value();
      const auto of = [&](std::uint64_t round) { return schedule.round_at(Round(round)).value().fragment; };
      for (std::uint64_t from = 0; from <= schedule.rounds(); ++from) {
        for (std::uint32_t fragment = 0; fragment < fragments; ++fragment) {
          std::uint64_t next = from + 1;
          while (next <= schedule.rounds() && of(next) != fragment) {
            ++next;
          }
          const std::optional<RoundPlan> found = schedule.next_of(fragment, Round(from));
          REQUIRE(found.has_value() == (next <= schedule.rounds()));
          REQUIRE((!found || *found == schedule.round_at(Round(next)).value()));
          for (std::uint64_t to = 0; to <= schedule.rounds() + 2; ++to) {
            std::uint64_t between = 0;
            for (std::uint64_t round = from + 1; round < to && round <= schedule.rounds(); ++round) {
              between += of(round) == fragment ? 1U : 0U;
            }
            INFO(total << " " << fragments << " " << fragment << " " << from << " " << to);
            REQUIRE(schedule.rounds_between(fragment, Round(from), Round(to)) == between);
          }
        }
        REQUIRE_FALSE(schedule.next_of(fragments, Round(from)));
      }
    }
  }
}

}  // namespace of_strategies_schedule_test
