// Stories of an island that lies to the coordinator.
#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using coordinator::RunState;
using std::chrono::minutes;
using namespace std::chrono_literals;

namespace {

Digest invented() {
  Digest digest;
  digest.bytes.fill(std::byte{0x5a});
  return digest;
}

// Its hellos say that it holds this round of the run, in memory and on its disk.
std::function<void(Message&)> claiming(const RunId& run, Round round, Epoch epoch) {
  return [=](Message& message) {
    if (auto* hello = std::get_if<Hello>(&message)) {
      hello->runs = {HeldRun{run, epoch, true, round, invented(), {HeldCheckpoint{round, invented(), epoch}}}};
    }
  };
}

}  // namespace

TEST_CASE("a run that has not begun is not completed, nor stopped, by one island that says it holds rounds of it") {
  for (const std::uint64_t claimed : {8, 3, 1}) {  // the last one, and any other
    for (const bool first : {true, false}) {
      INFO(claimed << " " << first);
      Cluster cluster(calm(4, 3));
      cluster.lie(3, claiming(cluster.run_id(), Round(claimed), Epoch(7)));
      cluster.start();
      if (first) {
        for (const std::string island : {"i0", "i1", "i2"}) {
          cluster.cut(island, kCoordinator);
        }
        cluster.run_for(60s);
        REQUIRE(cluster.view()->state == RunState::queued);
        for (const std::string island : {"i0", "i1", "i2"}) {
          cluster.join(island, kCoordinator);
        }
      }
      finish(cluster);
      CHECK(events(cluster, "ledger_behind") == 0);
      CHECK(events(cluster, "ledger_restored") == 0);
      CHECK(cluster.ledger().runs.begin()->second.committed == Round(8));
      for (const std::size_t i : {0, 1, 2}) {
        CHECK(cluster.host(i).steps() == 32);
      }
    }
  }
}

TEST_CASE("a run that goes on is not stopped, nor set to another round, by one island that says it holds a later one") {
  for (const std::uint64_t claimed : {40, 12}) {
    for (const std::uint64_t epoch : {1, 3, 1000}) {
      INFO(claimed << " " << epoch);
      Cluster cluster(calm(4, 2, 40));
      cluster.start();
      REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));
      cluster.lie(3, claiming(cluster.run_id(), Round(claimed), Epoch(epoch)));
      cluster.host(3).crash();
      cluster.run_for(8s);
      cluster.host(3).start();
      finish(cluster);
      CHECK(events(cluster, "ledger_behind") == 0);
      CHECK(events(cluster, "ledger_restored") == 0);
      CHECK(events(cluster, "rolled_back") == 0);
      for (const std::size_t i : {0, 1, 2}) {
        CHECK(cluster.host(i).steps() == 160);
      }
    }
  }
}

TEST_CASE("under an older copy of the ledger the run goes on from what enough islands hold, whatever one of them claims") {
  const bool restored = GENERATE(true, false);   // as a backup, or copied over the newer one by hand
  const bool begun = GENERATE(true, false);      // by the older ledger
  for (const std::uint64_t claimed : {40, 0}) {  // 0: the one after the newest
    INFO(restored << " " << begun << " " << claimed);
    Cluster cluster(calm(4, 2, 40));
    cluster.start();
    // It takes no part in what the ledger does not know: how far its part of the data is, it would lie about, too.
    if (begun) {
      REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
      cluster.host(3).crash();
      cluster.run_for(8s);
    } else {
      cluster.cut("i3", kCoordinator);
      REQUIRE(cluster.run_until_state(RunState::queued, minutes(1)));
    }
    const LedgerCopy backup = cluster.copy_ledger();
    const Round known = cluster.ledger().runs.begin()->second.committed;
    REQUIRE(cluster.run_until_committed(Round(known.value + 6), minutes(2)));
    cluster.run_for(300ms);
    cluster.crash_coordinator();
    cluster.run_for(2s);
    const Round newest = cluster.ledger().runs.begin()->second.committed;
    cluster.lie(3, claiming(cluster.run_id(), claimed > 0 ? Round(claimed) : newest.next(), Epoch(50)));
    if (begun) {
      cluster.host(3).start();
    } else {
      cluster.join("i3", kCoordinator);
    }
    cluster.start_coordinator_from(backup, restored);
    finish(cluster);
    CHECK(events(cluster, "ledger_restored") == 1);
    CHECK(events(cluster, "rolled_back") == 0);
    CHECK(cluster.ledger().runs.begin()->second.committed == Round(40));
    for (const std::size_t i : {0, 1, 2}) {
      CHECK(cluster.host(i).steps() == 160);  // no island did a step twice
    }
  }
}

TEST_CASE("a contribution whose values are beyond the norm that was said is summed by nobody, and its island is named") {
  Cluster cluster(calm(4, 2, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));
  cluster.lie(2, [](Message& message) {
    if (auto* ready = std::get_if<Ready>(&message)) {
      ready->facts.norm /= ready->facts.norm > 10 ? 1000 : 1;
    }
  });
  cluster.host(2).explode_next_contribution();
  finish(cluster);
  const std::string how = cluster.view()->reason.text;
  INFO(how);
  CHECK(events(cluster, "round_retried") >= 3);
  CHECK(how.find("i2 was away from round") != std::string::npos);
  for (const std::string honest : {"i0", "i1", "i3"}) {
    CHECK(how.find(honest + " was away") == std::string::npos);
  }
}

TEST_CASE("a contribution that claims more tokens than a round's steps can hold does not count, and its island is out after three") {
  for (const std::uint64_t claimed : {std::uint64_t{1} << 47U, std::uint64_t{1'000'000}}) {
    INFO(claimed);
    Cluster cluster(calm(4, 2, 20));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
    cluster.lie(2, [=](Message& message) {
      if (auto* ready = std::get_if<Ready>(&message)) {
        ready->facts.tokens = claimed;
      }
    });
    finish(cluster);
    CHECK(events(cluster, "contribution_rejected") == 3);
    CHECK(events(cluster, "island_quarantined") == 1);
    CHECK(cluster.host(0).steps() == 80);
  }
}

TEST_CASE("a contribution of another fragment than its round costs its island its place, and not the others their run") {
  Cluster cluster(calm(3, 2, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  cluster.lie(2, [](Message& message) {
    if (auto* ready = std::get_if<Ready>(&message)) {
      ready->facts.fragment = 3;
    }
  });
  finish(cluster);
  const std::string how = cluster.view()->reason.text;
  INFO(how);
  CHECK(how.find("i2 was away from round") != std::string::npos);
  CHECK(how.find("is of fragment 3, and the round is of fragment 0") != std::string::npos);
  CHECK(cluster.host(0).steps() == 80);
  CHECK(cluster.host(1).steps() == 80);
}

TEST_CASE("who fails and accuses nobody, or another where most have finished, is left out itself") {
  for (const bool accuses : {false, true}) {
    INFO(accuses);
    Cluster cluster(calm(4, 2, 20));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
    const IslandId other = accuses ? cluster.host(3).id() : IslandId();
    cluster.lie(1, [=](Message& message) {
      if (const auto* done = std::get_if<Exchanged>(&message)) {
        const Exchanged said = *done;
        message = ExchangeFailed{said.run, said.epoch, said.round, said.attempt, other, Error{Code::internal, "it does not fit"}};
      }
    });
    finish(cluster);
    const std::string how = cluster.view()->reason.text;
    INFO(how);
    CHECK(how.find("i1 was away from round") != std::string::npos);
    for (const std::string honest : {"i0", "i2", "i3"}) {
      CHECK(how.find(honest + " was away") == std::string::npos);
    }
  }
}

TEST_CASE("the initial state is the one that most islands have, whoever is first") {
  for (const std::size_t deviant : {0, 1, 2, 3}) {
    INFO(deviant);
    Cluster cluster(calm(4, 2, 20));
    cluster.host(deviant).set_other_initial(true);
    cluster.start();
    finish(cluster);
    CHECK(events(cluster, "island_joined") == 1);
  }
}

TEST_CASE("an epoch near the largest number in a hello does not bring a run's epochs to their end") {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t claimed : {kLargest - 1, kLargest, kMaxCount}) {
    for (const bool queued : {true, false}) {
      INFO(claimed << " " << queued);
      Cluster cluster(calm(3, 2, 20));
      const auto lie = [run = cluster.run_id(), claimed](Message& message) {
        if (auto* hello = std::get_if<Hello>(&message)) {
          hello->runs.resize(1);
          hello->runs.front().run = run;
          hello->runs.front().epoch = Epoch(claimed);
        }
      };
      if (queued) {
        cluster.lie(2, lie);
      }
      cluster.start();
      REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
      cluster.lie(2, lie);
      cluster.crash_coordinator();
      cluster.run_for(1s);
      cluster.start_coordinator();
      finish(cluster);
      CHECK(cluster.ledger().runs.begin()->second.epoch < Epoch(100));
    }
  }
}

TEST_CASE("a trainer that publishes another fragment than it is asked for leaves the run, which goes on") {
  Cluster cluster(calm(4, 2, 20));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  cluster.host(1).misname_fragments();
  finish(cluster);
  CHECK(events(cluster, "island_failed") == 1);
  CHECK(events(cluster, "round_retried") == 0);
  for (const std::size_t i : {0, 2, 3}) {
    CHECK(cluster.host(i).steps() == 80);
  }
}

TEST_CASE(
    "an island that says hello with ever other addresses, or as ever other agents, costs the others a bounded number of dials and epochs") {
  const bool member = GENERATE(true, false);
  const bool boots = GENERATE(false, true);  // each hello is of another agent that has outlived the one before
  INFO(member << " " << boots);
  Scenario scenario = calm(3, 2, 400);
  scenario.spec.islands.max = member ? 3 : 2;
  Cluster cluster(scenario);
  std::optional<Hello> first;
  std::uint64_t said = 0;
  cluster.lie(2, [&](Message& message) {
    if (const auto* hello = std::get_if<Hello>(&message)) {
      first = first.value_or(*hello);
      first->place = "here";
      message = *first;
    } else if (first && said > 0) {
      Hello again = *first;
      again.bulk_address = "sim://moved-" + std::to_string(++said);
      again.boot += boots ? said : 0;
      message = again;
    }
  });
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(4), minutes(2)));
  const std::size_t moved = events(cluster, "island_moved");
  const std::size_t epochs = events(cluster, "membership");
  const std::size_t came = events(cluster, "island_connected");
  const std::uint64_t before = cluster.view()->committed.value;
  said = 1;
  cluster.run_for(60s);
  CHECK(said > 40);
  CHECK(events(cluster, "island_moved") - moved <= 12);
  CHECK(events(cluster, "island_connected") - came <= 12);
  CHECK(events(cluster, "membership") - epochs <= 3 * 12);
  CHECK(events(cluster, "island_restless") >= 1);
  CHECK(cluster.view()->committed.value > before);
}

namespace {

Scenario with_many_sums(std::uint32_t islands, std::uint32_t min, std::uint64_t rounds) {
  Scenario scenario = calm(islands, min, rounds);
  scenario.parameters = 1200;  // so that every island has a part of the result to sum
  return scenario;
}

// The last island gives something else to these than to the others and to itself, from round 5 on. What became of the run is looked at by
// the caller.
void deceive(Cluster& cluster, const std::vector<std::size_t>& deceived) {
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  for (const std::size_t i : deceived) {
    cluster.host(i).deceive_by(cluster.host(cluster.islands() - 1).id());
  }
}

// Who was kept out by the end.
std::vector<std::string> quarantined(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const auto& [key, membership] : cluster.ledger().memberships) {
    if (membership.cause.starts_with("quarantined")) {
      names.push_back(name_of(key.second));
    }
  }
  return names;
}

}  // namespace

TEST_CASE("an island that gives several others another sum than it says is named, and they are not") {
  for (const std::uint32_t islands : {3U, 5U}) {
    INFO(islands);
    Cluster cluster(with_many_sums(islands, 1, 40));
    deceive(cluster, islands == 3 ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{0, 1, 2});
    finish(cluster);
    CHECK(quarantined(cluster) == std::vector{"i" + std::to_string(islands - 1)});
    CHECK(cluster.ledger().runs.begin()->second.committed == Round(40));
  }
}

TEST_CASE("an island that deceives one other, so that nobody can tell which of the two it is: neither is kept out, and it is said") {
  for (const std::uint32_t islands : {3U, 5U}) {
    INFO(islands);
    Cluster cluster(with_many_sums(islands, 1, 40));
    deceive(cluster, {0});
    finish(cluster);
    CHECK(quarantined(cluster).empty());
    CHECK(events(cluster, "island_quarantined") == 0);
    CHECK(events(cluster, "result_disputed") >= 1);
    CHECK(events(cluster, "result_disputed") <= 4);  // what the two sum is not used for a while, longer each time
    for (std::size_t i = 0; i < islands; ++i) {
      CHECK(cluster.host(i).steps() >= 80);  // whoever differs catches up, and takes part again
    }
  }
}

TEST_CASE("an island that deceives one other and then another one is named by both") {
  Cluster cluster(with_many_sums(3, 1, 200));
  deceive(cluster, {0});
  REQUIRE(cluster.run_until_committed(Round(30), minutes(5)));
  cluster.host(0).deceive_by(IslandId());
  cluster.host(1).deceive_by(cluster.host(2).id());
  finish(cluster);
  CHECK(quarantined(cluster) != std::vector<std::string>{"i0"});
  CHECK(quarantined(cluster) != std::vector<std::string>{"i1"});
  CHECK(events(cluster, "result_disputed") >= 2);
}

TEST_CASE("of two islands that hold different results nobody can tell who is wrong: it is said, and neither is kept out for good") {
  for (const std::uint32_t min : {1U, 2U}) {
    INFO(min);
    Cluster cluster(with_many_sums(2, min, 60));
    deceive(cluster, {0});
    if (min == 1) {
      finish(cluster);  // alone, with the one that differs out of one epoch after another
      CHECK(events(cluster, "island_joined") >= 1);
    } else {
      cluster.run_for(minutes(5));
      CHECK_FALSE(coordinator::has_ended(cluster.view()->state));
      CHECK(cluster.view()->reason.text.find("the islands' results differ") != std::string::npos);
    }
    CHECK(cluster.checkers().failure() == "");
    CHECK(events(cluster, "island_quarantined") == 0);
    CHECK(quarantined(cluster).empty());
    CHECK(events(cluster, "result_disputed") >= 1);
  }
}

TEST_CASE("an island whose memory changes what several others gave is named itself") {
  Cluster cluster(with_many_sums(5, 1, 40));
  cluster.start();
  REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
  for (std::size_t i = 1; i < 5; ++i) {
    cluster.host(0).deceive_by(cluster.host(i).id());
  }
  finish(cluster);
  CHECK(quarantined(cluster) == std::vector<std::string>{"i0"});
}

namespace {

// Nine islands in three groups and three columns: i8 has i2 and i5 beside it in its group, i6 and i7 in its column; i0 and i3 get from i6
// what i6 gets from it, i1 and i4 from i7.
Scenario on_two_levels() {
  Scenario scenario = with_many_sums(9, 1, 40);
  scenario.one_level_members = 3;
  return scenario;
}

// Results differed, and only these two were named for it.
bool only_these(const Cluster& cluster, const std::string& giver, const std::string& reader) {
  const std::vector<std::string>& disputes = cluster.ledger().disputes;
  return !disputes.empty() && std::ranges::all_of(disputes, [&](const std::string& text) {
    return text.starts_with("what " + giver + " gave to round ") && text.find(" is another at " + reader + " than ") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("on two levels an island that gives another in its group or its column something else is named with it, and nobody is kept out") {
  for (const std::size_t deceived : {2U, 6U}) {
    INFO("i" << deceived);
    Cluster cluster(on_two_levels());
    deceive(cluster, {deceived});
    finish(cluster);
    CHECK(quarantined(cluster).empty());
    CHECK(events(cluster, "island_quarantined") == 0);
    CHECK(only_these(cluster, "i8", "i" + std::to_string(deceived)));
    CHECK(events(cluster, "result_disputed") <= 4);
    CHECK(cluster.ledger().runs.begin()->second.committed == Round(40));
  }
}

TEST_CASE("on two levels an island that deceives all whom it gives something sums nothing any more, and they go on") {
  Cluster cluster(on_two_levels());
  deceive(cluster, {2, 5, 6, 7});
  finish(cluster);
  for (const std::string& name : quarantined(cluster)) {
    CHECK(name == "i8");
  }
  for (const std::string& text : cluster.ledger().disputes) {
    CHECK(text.starts_with("what i8 gave to round "));
  }
  CHECK(events(cluster, "result_disputed") >= 4);
  CHECK(events(cluster, "result_disputed") <= 16);
  CHECK(cluster.ledger().runs.begin()->second.committed == Round(40));
}
