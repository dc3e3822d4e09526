// Stories of links and paths that come and go faster than their loss is noticed.
#include <algorithm>
#include <array>
#include <string>

#include "tests/catch.hpp"
#include "tests/day.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

// Rounds of so many inner steps; 40 take some five seconds.
Scenario rounds_of(std::uint32_t islands, std::uint32_t min, std::uint64_t steps) {
  Scenario scenario = calm(islands, min, 100'000);
  scenario.spec.strategy.inner_steps = steps;
  scenario.spec.training.steps = steps * 100'000;
  scenario.parameters = 1200;  // so that every island has a part of the result to sum
  return scenario;
}

using Links = std::vector<std::pair<std::string, std::string>>;

Links link_of(const Cluster& cluster, std::size_t island) {
  Links ways;
  const std::string own = "i" + std::to_string(island);
  std::vector<std::string> others = {kCoordinator};
  for (std::size_t i = 0; i < cluster.islands(); ++i) {
    if (i != island) {
      others.push_back("i" + std::to_string(i));
    }
  }
  for (const std::string& other : others) {
    ways.emplace_back(own, other);
    ways.emplace_back(other, own);
  }
  return ways;
}

// For so long these ways are down and up in turn. How many rounds that committed.
std::uint64_t flap(Cluster& cluster, const Links& ways, Duration whole, Duration down, Duration up) {
  const Round before = cluster.view()->committed;
  const TimePoint end = cluster.timeline().now() + whole;
  while (cluster.timeline().now() < end) {
    for (const auto& [from, to] : ways) {
      cluster.cut(from, to);
    }
    cluster.run_for(down);
    for (const auto& [from, to] : ways) {
      cluster.join(from, to);
    }
    cluster.run_for(up);
  }
  return cluster.view()->committed.value - before.value;
}

// What is lost while it goes on, of what an undisturbed run commits: in the first minute, and in the five after it.
struct Loss {
  double first = 0;
  double later = 0;
};

Loss loss_of(Cluster& cluster, const Links& ways, Duration down = 3s, Duration up = 3s) {
  const double usual = static_cast<double>(flap(cluster, {}, minutes(3), 3s, 3s)) / 3;
  const auto first = static_cast<double>(flap(cluster, ways, minutes(1), down, up));
  const auto later = static_cast<double>(flap(cluster, ways, minutes(5), down, up));
  return {1 - first / usual, 1 - later / (5 * usual)};
}

std::string told(Cluster& cluster) {
  std::string text;
  const coordinator::RunView run = *cluster.view();
  for (const coordinator::UnsteadyView& path : run.unsteady) {
    text += path.text + "; ";
  }
  return text;
}

coordinator::MembershipView membership(const coordinator::RunView& run, const std::string& name) {
  return *std::ranges::find(run.memberships, name, &coordinator::MembershipView::name);
}

}  // namespace

TEST_CASE("an island whose link is down for three of every six seconds costs the others nothing after the first minute, and is named") {
  const std::uint32_t islands = GENERATE(3U, 4U);
  const std::uint64_t steps = GENERATE(4U, 40U);
  Cluster cluster(rounds_of(islands, 2, steps));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  const Loss loss = loss_of(cluster, link_of(cluster, 1));
  INFO(islands << " islands, " << steps << " steps: lost " << 100 * loss.first << " % in the first minute, then " << 100 * loss.later
               << " %; " << told(cluster));
  INFO("path_unsteady " << events(cluster, "path_unsteady") << ", island_left " << events(cluster, "island_left"));
  CHECK(loss.later <= 0.1);
  const coordinator::MembershipView away = membership(*cluster.view(), "i1");
  CHECK(away.state == coordinator::MembershipState::absent);
  CHECK(away.reason.text.find("its link comes and goes: ") != std::string::npos);
  CHECK(told(cluster).find("the link of island i1 comes and goes: ") != std::string::npos);
  CHECK(events(cluster, "island_left") <= 2);
  CHECK(events(cluster, "path_unsteady") <= islands);
  // It takes part again once it has been steady for a while.
  const TimePoint whole = cluster.timeline().now();
  while (cluster.timeline().now() - whole < minutes(10) &&
         membership(*cluster.view(), "i1").state != coordinator::MembershipState::active) {
    cluster.run_for(1s);
  }
  INFO(seconds(cluster.timeline().now() - whole) << " s until it was back");
  CHECK(cluster.timeline().now() - whole >= 40s);
  CHECK(cluster.timeline().now() - whole <= minutes(3));
  cluster.run_for(minutes(2));
  CHECK(told(cluster).empty());
  CHECK(events(cluster, "path_steady") >= 1);
  CHECK(cluster.checkers().failure().empty());
}

TEST_CASE(
    "two islands between which data pass for three of every six seconds cost nothing after the first minute, and nobody is left out") {
  const std::uint64_t cell = GENERATE(range(0U, 12U));  // each island, each length, each way
  if (!atl_test::is_todays(cell, 3)) {
    return;
  }
  const std::uint32_t islands = cell < 6 ? 3 : 4;
  const std::uint64_t steps = cell % 2 == 0 ? 4 : 40;
  const Links ways = std::array{Links{{"i0", "i1"}, {"i1", "i0"}}, Links{{"i0", "i1"}}, Links{{"i1", "i0"}}}.at((cell + cell / 6) % 3);
  Cluster cluster(rounds_of(islands, islands, steps));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  const Loss loss = loss_of(cluster, ways);
  INFO(islands << " islands, " << steps << " steps, " << ways.size() << " ways: lost " << 100 * loss.first
               << " % in the first minute, then " << 100 * loss.later << " %; " << told(cluster));
  CHECK(loss.later <= 0.1);
  CHECK(events(cluster, "island_left") == 0);
  CHECK(events(cluster, "path_unsteady") == 1);
  CHECK(told(cluster).find("the path i0 -> i1 comes and goes: there ") != std::string::npos);
  // It is used again once it has been steady for a while.
  cluster.run_for(minutes(8));
  CHECK(told(cluster).empty());
  CHECK(events(cluster, "path_steady") == 1);
  CHECK(cluster.checkers().failure().empty());
}

TEST_CASE("pairs are drawn around a path that is deaf for three of every six seconds, and over it again once it has been steady") {
  const std::uint64_t cell = GENERATE(range(0U, 12U));
  if (!atl_test::is_todays(cell, 4)) {
    return;
  }
  const auto [islands, pace] =
      std::array{std::pair(4U, Pace::fixed), std::pair(5U, Pace::adaptive), std::pair(6U, Pace::adaptive)}.at(cell % 3);
  const std::uint64_t steps = cell < 6 ? 4 : 40;
  const Links ways = cell / 3 % 2 == 0 ? Links{{"i0", "i1"}, {"i1", "i0"}} : Links{{"i0", "i1"}};
  Scenario scenario = calm_pairs(islands, 2, 100'000);
  scenario.spec.strategy.pace = pace;
  scenario.spec.strategy.inner_steps = steps;
  scenario.spec.training.steps = steps * 100'000;
  Cluster cluster(scenario);
  std::size_t met = 0;    // over that path
  std::size_t other = 0;  // that the island took with anybody else
  const auto named = [&](std::size_t index) { return cluster.host(index).id(); };
  cluster.lie(0, [&](Message& message) {
    if (const auto* merged = std::get_if<Merged>(&message); merged != nullptr && !merged->partner.empty()) {
      ++(merged->partner == named(1) ? met : other);
    }
  });
  cluster.start();
  cluster.run_for(minutes(1));
  REQUIRE(cluster.view()->committed > Round(2));
  const double usual = static_cast<double>(flap(cluster, {}, minutes(3), 3s, 3s)) / 3;
  CHECK(met > 0);
  const double first = 1 - static_cast<double>(flap(cluster, ways, minutes(1), 3s, 3s)) / usual;
  const double second = 1 - static_cast<double>(flap(cluster, ways, minutes(1), 3s, 3s)) / usual;
  const std::size_t epochs = cluster.view()->epoch.value;
  met = 0;
  other = 0;
  const double later = 1 - static_cast<double>(flap(cluster, ways, minutes(4), 3s, 3s)) / (4 * usual);
  INFO(islands << " islands, " << steps << " steps, " << ways.size() << " ways: lost " << 100 * first << " % and " << 100 * second
               << " % in the first two minutes, then " << 100 * later << " %; met " << met << " times over the path, else " << other
               << " times; " << told(cluster));
  CHECK(second <= 0.1);
  CHECK(later <= 0.1);
  CHECK(met == 0);
  CHECK(other > 10);
  CHECK(cluster.view()->epoch.value == epochs);
  CHECK(events(cluster, "island_left") == 0);
  CHECK(told(cluster).find("comes and goes: there ") != std::string::npos);
  cluster.run_for(minutes(8));
  met = 0;
  cluster.run_for(minutes(4));
  CHECK(met > 0);
  CHECK(cluster.view()->epoch.value == epochs + 1);
  CHECK(cluster.checkers().failure().empty());
}

TEST_CASE("two islands alone go on over a path that comes and goes, as does a run that needs the island whose link it is") {
  const std::uint32_t islands = GENERATE(2U, 3U);
  Cluster cluster(rounds_of(islands, islands, 4));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  const Loss loss = loss_of(cluster, link_of(cluster, 1));
  INFO(islands << " islands: lost " << 100 * loss.first << " %, then " << 100 * loss.later << " %; " << told(cluster));
  CHECK(loss.later < 0.9);
  CHECK(told(cluster).find("comes and goes: ") != std::string::npos);
  CHECK(cluster.checkers().failure().empty());
}

TEST_CASE("an island that is lost again and again comes back once it has been steady for a while") {
  Cluster cluster(rounds_of(3, 2, 4));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  const Loss loss = loss_of(cluster, link_of(cluster, 1), 8s, 12s);
  INFO("lost " << 100 * loss.first << " % in the first minute, then " << 100 * loss.later << " %; " << told(cluster));
  CHECK(loss.later <= 0.1);
  CHECK(membership(*cluster.view(), "i1").reason.text.find("its link comes and goes: ") != std::string::npos);
  CHECK(cluster.checkers().failure().empty());
}

TEST_CASE("one outage punishes nobody: an island is back as soon as it is heard again, and no path is called unsteady") {
  const Duration outage = GENERATE(2s, 4s, 8s, 30s);
  Cluster cluster(rounds_of(3, 2, 4));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(5)));
  flap(cluster, link_of(cluster, 1), outage, outage, 0s);
  const TimePoint whole = cluster.timeline().now();
  cluster.run_for(1s);
  while (cluster.timeline().now() - whole < minutes(2) && membership(*cluster.view(), "i1").state != coordinator::MembershipState::active) {
    cluster.run_for(1s);
  }
  INFO("down for " << seconds(outage) << " s, back after " << seconds(cluster.timeline().now() - whole) << " s");
  CHECK(cluster.timeline().now() - whole <= 25s);
  CHECK(events(cluster, "path_unsteady") == 0);
  CHECK(cluster.checkers().failure().empty());
}
