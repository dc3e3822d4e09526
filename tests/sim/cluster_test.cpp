// Seeds of trouble, others every day. ATOLL_SIM_SEEDS: how many; ATOLL_SIM_SEED: only this one. ATOLL_SIM_TRACE=1 prints its history.
#include "tests/sim/cluster.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/day.hpp"
#include "tests/sim/stories.hpp"

namespace {

using namespace atl;
using namespace atl::sim;
using atl_test::Seeds;
using atl_test::seeds_of_the_day;

// What went wrong in a world; an exception too, so that the seed is told.
std::string failure_of(Cluster& cluster) {
  try {
    return cluster.run();
  } catch (const std::exception& e) {
    return std::string("exception: ") + e.what();
  }
}

std::string simulate(std::uint64_t seed, std::size_t& commits) {
  Cluster cluster(draw_scenario(seed));
  const std::string failure = failure_of(cluster);
  commits += cluster.checkers().commits();
  return failure;
}

// What many seeds came to.
struct Sums {
  std::uint64_t seeds = 0;
  std::size_t commits = 0;
  std::size_t met = 0;
  std::size_t tasks = 0;
  std::size_t by_groups = 0;
  std::size_t group_commits = 0;
  std::size_t late = 0;
  std::size_t on_two_levels = 0;
  std::size_t went_back = 0;  // trainers to the state that they had saved last
  std::size_t failures = 0;
  std::uint64_t events = 0;
  Duration elapsed{};
  Duration shortest = Duration::max();
  double worst_progress = 0;  // of the bound
  std::string report;
};

void add(Sums& sums, Cluster& cluster, std::uint64_t seed, const std::string& failure) {
  ++sums.seeds;
  sums.commits += cluster.checkers().commits();
  sums.met += cluster.checkers().met();
  sums.tasks += cluster.checkers().tasks_done();
  sums.by_groups += cluster.checkers().trained_by_groups();
  sums.group_commits += cluster.checkers().group_commits();
  sums.late += cluster.checkers().late();
  sums.on_two_levels += cluster.checkers().on_two_levels();
  sums.went_back += events(cluster, "trainer_goes_back");
  sums.events += cluster.timeline().planned();
  sums.elapsed += cluster.elapsed();
  sums.shortest = std::min(sums.shortest, cluster.elapsed());
  if (cluster.first_progress()) {
    sums.worst_progress = std::max(sums.worst_progress, atl::seconds(*cluster.first_progress()) / atl::seconds(cluster.progress_bound()));
  }
  if (!failure.empty()) {
    ++sums.failures;
    sums.report += "\nATOLL_SIM_SEED=" + std::to_string(seed) + ": " + failure;
  }
}

// Ten virtual minutes and more of each seed, on all cores of this machine.
Sums simulate_long(const Seeds& seeds) {
  Sums sums;
  std::mutex adding;
  std::atomic<std::uint64_t> next = seeds.first;
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back([&] {
      for (;;) {
        const std::uint64_t seed = next++;
        if (seed >= seeds.end()) {
          return;
        }
        Cluster cluster(draw_long_scenario(seed));
        const std::string failure = failure_of(cluster);
        const std::lock_guard lock(adding);
        add(sums, cluster, seed, failure);
        if (sums.failures >= 10) {
          next = seeds.end();
        }
      }
    });
  }
  threads.clear();
  return sums;
}

// These worlds one after the other.
Sums simulate_each(Scenario (*draw)(std::uint64_t), const Seeds& seeds) {
  Sums sums;
  for (std::uint64_t seed = seeds.first; seed < seeds.end() && sums.failures < 10; ++seed) {
    Cluster cluster(draw(seed));
    const std::string failure = failure_of(cluster);
    add(sums, cluster, seed, failure);
  }
  INFO(sums.report);
  REQUIRE(sums.failures == 0);
  REQUIRE(sums.seeds == seeds.count);
  return sums;
}

constexpr std::uint64_t kSmall = 2000;
Seeds a_fifth_of_seeds() { return seeds_of_the_day("ATOLL_SIM_SEEDS", kSmall, 5); }

void check_long(const Seeds& seeds) {
  const std::uint64_t count = seeds.count;
  const Sums sums = simulate_long(seeds);
  INFO(sums.report);
  REQUIRE(sums.failures == 0);
  REQUIRE(sums.seeds == count);
  CHECK(sums.shortest >= std::chrono::minutes(10));
  CHECK((count == 1 || sums.commits > 5 * count));
  WARN(sums.seeds << " seeds, " << sums.events << " events, " << static_cast<std::uint64_t>(atl::seconds(sums.elapsed) / 3600)
                  << " virtual hours, " << sums.commits << " commits, " << sums.met << " rounds in pairs, " << sums.tasks
                  << " tasks; the first commit after healing at worst at " << sums.worst_progress << " of its bound");
}

}  // namespace

TEST_CASE("large clusters in trouble for ten minutes stay safe, and go on once healed") {
  check_long(seeds_of_the_day("ATOLL_SIM_LONG_SEEDS", 300));
}

TEST_CASE("large clusters whose trouble has found bugs stay safe") {
  // What each found is in the history of these lines, and of the tree.
  for (const std::uint64_t seed : {442,  1043, 1054, 1058, 1322, 1464,  1568,  1607,  3008,  3673,  3772,  3972,  4917,  5431,
                                   8119, 8703, 8761, 8901, 9590, 10688, 11695, 12136, 12349, 13576, 15823, 16040, 16588, 18587}) {
    Cluster cluster(draw_long_scenario(seed));
    INFO("ATOLL_SIM_SEED=" << seed);
    CHECK(failure_of(cluster) == "");
  }
}

TEST_CASE("clusters whose strategy is composed freely and whose trouble has found bugs stay safe") {
  // 1502, 1525: with an overlap of a whole period, a trainer that was told to finish published a fragment before its merge.
  // 48: an island that was told to load its checkpoint while it copied the state from its peers waited for that copy for ever.
  // 4647: an island was let in by a message from before it had dropped its state, said so once, in an older epoch, and never again.
  for (const std::uint64_t seed : {48, 1502, 1525, 4647}) {
    Cluster cluster(draw_free_scenario(seed));
    INFO("ATOLL_SIM_SEED=" << seed);
    CHECK(failure_of(cluster) == "");
  }
}

TEST_CASE("small clusters whose trouble has found bugs stay safe, and go on once healed") {
  // 9808: why an island's first attempt to join had failed was said until it heard of the next one, and ended each of those at once.
  // 3131: where the exchange takes a whole period a trainer that had crashed went on from its own state, though its island had copied the
  // others'.
  for (const std::uint64_t seed : {3131, 3752, 4178, 9808}) {
    std::size_t commits = 0;
    INFO("ATOLL_SIM_SEED=" << seed);
    CHECK(simulate(seed, commits) == "");
  }
}

TEST_CASE("soak: twenty thousand large clusters", "[.soak]") { check_long({1, 20000}); }

TEST_CASE("runs of phases in trouble stay safe: nothing is made twice, and nothing that is needed is dropped") {
  const Sums sums = simulate_each(draw_phase_scenario, seeds_of_the_day("ATOLL_SIM_PHASE_SEEDS", 250));
  CHECK(sums.tasks > 3 * sums.seeds);
}

TEST_CASE(
    "runs of phases whose images are spread over islands stay safe: everybody packs its own, once, and what rests on them is of the same") {
  const Sums sums = simulate_each(draw_spread_scenario, seeds_of_the_day("ATOLL_SIM_PHASE_SEEDS", 250));
  if (sums.seeds > 1) {
    CHECK(sums.tasks > 4 * sums.seeds);
  }
}

TEST_CASE("worlds in which packed images once went wrong stay safe") {
  // 5402487: an agent woke again and again to fetch what an earlier order had missed, and could not before it knew what lay on its disk.
  for (const std::uint64_t seed : {2257, 5402487}) {
    INFO("ATOLL_SIM_SEED=" << seed);
    Cluster cluster(draw_spread_scenario(seed));
    REQUIRE(failure_of(cluster) == "");
  }
}

TEST_CASE("runs of phases whose experts are trained by groups stay safe: an expert is what its group's last round came to") {
  const Sums sums = simulate_each(draw_group_scenario, seeds_of_the_day("ATOLL_SIM_PHASE_SEEDS", 250));
  if (sums.seeds > 1) {
    CHECK(sums.tasks > 3 * sums.seeds);
    CHECK(sums.by_groups > sums.seeds / 2);
    CHECK(sums.group_commits > 2 * sums.seeds);
  }
}

TEST_CASE("clusters in trouble stay safe, and go on once healed") {
  const Seeds seeds = seeds_of_the_day("ATOLL_SIM_SEEDS", kSmall);
  std::size_t commits = 0;
  std::size_t failures = 0;
  std::string report;
  for (std::uint64_t seed = seeds.first; seed < seeds.end() && failures < 10; ++seed) {
    const std::string failure = simulate(seed, commits);
    if (!failure.empty()) {
      ++failures;
      report += "\nATOLL_SIM_SEED=" + std::to_string(seed) + ": " + failure;
    }
  }
  INFO(report);
  REQUIRE(failures == 0);
  REQUIRE(commits > seeds.count);
}

TEST_CASE("clusters whose rounds close with a quorum stay safe, and go on once healed") {
  const Sums sums = simulate_each(draw_quorum_scenario, a_fifth_of_seeds());
  REQUIRE((sums.seeds == 1 || sums.late >= sums.seeds / 10));
}

TEST_CASE("clusters whose rounds are buffers of contributions of any age stay safe, and go on once healed") {
  simulate_each(draw_buffer_scenario, a_fifth_of_seeds());
}

TEST_CASE("clusters whose rounds are buffers, and whose trouble has found bugs, stay safe, and go on once healed") {
  // 83141521: after a round in which no contribution counted those to the next one of its fragment waited for ever to be formed anew.
  // 83143602: a contribution that was postponed while a result was applied was never said as it had been formed anew.
  for (const std::uint64_t seed : {83141521, 83143602}) {
    Cluster cluster(draw_buffer_scenario(seed));
    INFO("ATOLL_SIM_SEED=" << seed);
    CHECK(failure_of(cluster) == "");
  }
}

TEST_CASE("clusters whose rounds close with a quorum, and whose trouble has found bugs, stay safe, and go on once healed") {
  // 730: nobody knew that an island which was kept out while it wrote a checkpoint had one.
  // 936: a round was planned before the earlier one of its fragment was committed, where only the ledger knew of that.
  // 1563: a stale contribution was counted of an island that only received the round, and did not say so.
  // 119: what an island had dropped was counted with its old norm, as its next contribution had as many tokens.
  // 608: a checkpoint held a contribution against a later state than its own.
  // 2261: an answer to an older order to load a checkpoint lost the rounds of a newer one, which an island had.
  // 10777, 17956: a trainer was given the result of a round that was lost, after the state had gone back to before it.
  // 10943: after a loss of rounds and a restart of the coordinator checkpoints of the rounds before were not known any more.
  // 10905, 11831, 15862: an island was asked for checkpoints that it had removed, as the coordinator had not heard of the newer ones.
  // 18760: a path that its reader had tried again, and that passed, was left alone for three minutes.
  // 19988: a checkpoint of rounds that were lost long ago was taken for news that the ledger is an older copy.
  // 3965: an island that refused a round which it was only to receive held it for begun, and its contribution went to later ones for ever.
  // 1613: an order to exchange with all members of an epoch was read with those of the one before, as a commit had told its number first.
  // 3058: the hello of an agent that was killed long ago came late, and displaced the one that had outlived it.
  // 8313659: a contribution was formed anew while its round was exchanged without it; given up, it was said as it had been, for ever.
  // 17305: an island that copied its peers' state went on offering the checkpoint of before, without the results that lead on from it.
  for (const std::uint64_t seed : {119,  375,  450,   567,   608,   730,   936,   1563,  1613,  2261,  3058,  17305,
                                   3965, 8481, 10777, 10905, 10943, 11831, 14668, 15862, 17956, 18760, 19988, 8313659}) {
    Cluster cluster(draw_quorum_scenario(seed));
    INFO("ATOLL_SIM_SEED=" << seed);
    CHECK(failure_of(cluster) == "");
  }
}

TEST_CASE("groups of experts whose trouble has found bugs stay safe, and go on once healed") {
  // 439: an island that had an epoch's number from a commit, and whose list of its members was lost, was told for ever to exchange with
  // all.
  // 225: an older copy of the ledger was taken over up to round 5 only.
  // 3789: the last round was lost and committed again; an expert was made of what an island's trainer had saved the first time.
  for (const std::uint64_t seed : {225, 439, 3789}) {
    INFO("ATOLL_SIM_SEED=" << seed);
    Cluster cluster(draw_group_scenario(seed));
    CHECK(failure_of(cluster) == "");
  }
}

TEST_CASE("clusters whose exchanges have two levels stay safe, and go on once healed") {
  const Sums sums = simulate_each(draw_two_level_scenario, a_fifth_of_seeds());
  REQUIRE((sums.seeds == 1 || sums.on_two_levels > sums.seeds));
  WARN(sums.seeds << " seeds, " << sums.commits << " commits, " << sums.on_two_levels << " of them on two levels");
}

TEST_CASE("clusters whose trainers of one's own go back after what was not finite stay safe, and go on once healed") {
  const Sums sums = simulate_each(draw_own_trainer_scenario, a_fifth_of_seeds());
  REQUIRE((sums.seeds == 1 || sums.went_back > sums.seeds));
  WARN(sums.seeds << " seeds, " << sums.commits << " commits, trainers went back " << sums.went_back << " times");
}

TEST_CASE("clusters whose strategy is composed freely stay safe, and go on once healed") {
  simulate_each(draw_free_scenario, a_fifth_of_seeds());
}
