// A simulation proves nothing until a planted bug is caught. These cores were built with ATOLL_PLANTED_BUGS: each test leaves out one
// check, and one checker has to find it, each another one.
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/checkpoint_world.hpp"
#include "tests/sim/cluster.hpp"
#include "tests/sim/engine_world.hpp"
#include "tests/sim/pair_world.hpp"
#include "transport/base/log.hpp"
#include "transport/base/planted.hpp"

namespace atl::planted {
Bug chosen = Bug::none;
}

namespace {

using atl::planted::Bug;

// The first seed whose failure says this, and what it says; empty if none of them does.
std::string found(Bug bug, const std::string& words, double flipped_bits = 0,
                  atl::sim::Scenario (*draw)(std::uint64_t) = atl::sim::draw_scenario, std::uint64_t first = 1) {
  constexpr std::uint64_t seeds = 8000;  // from `first` on: where a bug shows in few worlds, one of them is not far behind
  atl::planted::chosen = bug;
  std::string what;
  for (std::uint64_t seed = first; seed < first + seeds && what.empty(); ++seed) {
    atl::sim::Scenario scenario = draw(seed);
    scenario.flipped_bits = flipped_bits;
    atl::sim::Cluster cluster(scenario);
    const std::string failure = cluster.run();
    what = failure.find(words) == std::string::npos ? "" : "seed " + std::to_string(seed) + ": " + failure;
  }
  atl::planted::chosen = Bug::none;
  if (!what.empty()) {
    WARN(what);
  }
  return what;
}

}  // namespace

TEST_CASE("the simulator finds a coordinator that counts what was said of an earlier attempt") {
  REQUIRE_FALSE(found(Bug::stale_attempt, "round ").empty());
}

TEST_CASE("the simulator finds a coordinator that commits a round twice") {
  REQUIRE_FALSE(found(Bug::commits_again, "was committed twice").empty());
}

TEST_CASE("the simulator finds islands that go on with another result than was committed") {
  REQUIRE_FALSE(found(Bug::digest_unchecked, "that is not committed", 0.02).empty());
}

TEST_CASE("the simulator finds an agent that retains one contribution after the other") {
  REQUIRE_FALSE(found(Bug::runs_ahead, "can be under way").empty());
}

TEST_CASE("the simulator finds an agent that leaves samples out after its trainer was lost") {
  REQUIRE_FALSE(found(Bug::samples_left_out, "other samples than were trained on").empty());
}

TEST_CASE("the simulator finds a coordinator that waits and does not say for whom") {
  REQUIRE_FALSE(found(Bug::silent_wait, "without a reason").empty());
}

TEST_CASE("the simulator finds a coordinator that says everything only once") {
  REQUIRE_FALSE(found(Bug::no_resend, "no progress").empty());
}

TEST_CASE("the simulator finds a coordinator that has an island pack its images twice") {
  REQUIRE_FALSE(found(Bug::packs_twice, "packs its images as", 0, atl::sim::draw_spread_scenario).empty());
}

TEST_CASE("the simulator finds a coordinator that wakes again and again for what is done") {
  REQUIRE_FALSE(found(Bug::wakes_for_ever, "wakes again and again").empty());
}

TEST_CASE("the simulator finds a coordinator that counts what was formed against older outer parameters") {
  REQUIRE_FALSE(found(Bug::older_anchor, "round ", 0, atl::sim::draw_quorum_scenario).empty());
}

TEST_CASE("the simulator finds a trainer that writes its next gradient over parameters that nobody has read") {
  REQUIRE_FALSE(found(Bug::arena_in_use, "differs from another's with the same digest").empty());
}

TEST_CASE("the simulator finds an agent that drops what its assignment does not name") {
  REQUIRE_FALSE(found(Bug::drops_unnamed, "dropped the last copy", 0, atl::sim::draw_phase_scenario, 11001).empty());
}

TEST_CASE("the simulator finds an agent that goes on with an expert from another round than its group's last") {
  REQUIRE_FALSE(found(Bug::other_round, "saved after the last round of its group", 0, atl::sim::draw_group_scenario).empty());
}

TEST_CASE(
    "the simulator finds a pair whose decider does not wait for the promise, and a group that lost its decider and does not ask around") {
  for (const Bug bug : {Bug::no_promise, Bug::others_unasked}) {
    CAPTURE(static_cast<int>(bug));
    atl::planted::chosen = bug;
    atl::sim::PairWorldCounts counts;
    std::string wrong;
    std::uint64_t seed = 0;
    while (wrong.empty() && seed < 2000) {
      wrong = atl::sim::run_pair_world(++seed, counts);
    }
    atl::planted::chosen = Bug::none;
    CAPTURE(seed);
    CHECK(wrong.find("which went alone") != std::string::npos);
  }
}

namespace {

// The first failure of a world that has this bug, within 500 seeds.
template <typename Counts>
std::string found_in(Bug bug, std::string (*run)(std::uint64_t, Counts&)) {
  atl::planted::chosen = bug;
  atl::set_log_sink([](atl::LogLevel, std::string_view) {});
  Counts counts;
  std::string wrong;
  std::uint64_t seed = 0;
  while (wrong.empty() && seed < 500) {
    wrong = run(++seed, counts);
  }
  atl::set_log_sink({});
  atl::planted::chosen = Bug::none;
  WARN("seed " << seed << ": " << wrong);
  return wrong;
}

}  // namespace

TEST_CASE("the simulator finds a checkpoint that takes its name before all of it is on the disk") {
  CHECK(found_in(Bug::named_unsynced, atl::sim::run_checkpoint_world).find("was written and is lost") != std::string::npos);
}

TEST_CASE("the simulator finds an exchange that forgets the weights of two members") {
  CHECK(found_in(Bug::weights_forgotten, atl::sim::run_engine_world).find("is not the mean of its members' contributions") !=
        std::string::npos);
}

TEST_CASE("the simulator finds an exchange on two levels that takes the mean of the groups' means") {
  CHECK_FALSE(found(Bug::mean_of_groups, "is not the mean of its members' contributions", 0, atl::sim::draw_two_level_scenario).empty());
}

TEST_CASE("the simulator finds an island that catches up with results that it has not verified") {
  CHECK(found_in(Bug::results_unverified, atl::sim::run_engine_world).find("its outer state is another than the others'") !=
        std::string::npos);
}

TEST_CASE("the simulator finds a checkpoint into which the next round's outer state gets while it is written") {
  CHECK(found_in(Bug::snapshot_unkept, atl::sim::run_engine_world).find("loaded its checkpoint of round") != std::string::npos);
}
