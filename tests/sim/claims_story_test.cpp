// Stories of an island whose claims concern others: of files, of rounds that nobody else commits, of weights, of troubles without end.
#include <algorithm>
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

Scenario calm_alone(std::uint32_t islands, std::uint64_t rounds) {
  Scenario scenario = calm(islands, 2, rounds);
  StrategySpec strategy = named_strategy("local").value();
  strategy.inner_steps = scenario.spec.strategy.inner_steps;
  scenario.spec.strategy = strategy;
  return scenario;
}

// Of the run's last round: what of its contributions weighs.
std::vector<std::uint64_t> weights_at_end(const Cluster& cluster, Round last) {
  std::vector<std::uint64_t> tokens;
  for (const auto& [key, round] : cluster.ledger().rounds) {
    for (const ContributionFacts& each : std::get<2>(key) == last ? round.contributions : std::vector<ContributionFacts>()) {
      tokens.push_back(each.tokens);
    }
  }
  return tokens;
}

}  // namespace

TEST_CASE("who says that its checkpoint is another file than that of most is left out, whoever says it first") {
  for (const std::size_t liar : {0, 1, 2, 3}) {
    INFO(liar);
    Cluster cluster(calm(4, 2, 40));
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(5), minutes(2)));
    cluster.lie(liar, [](Message& message) {
      if (auto* told = std::get_if<Checkpointed>(&message)) {
        told->file = invented();
      }
    });
    finish(cluster);
    const std::string how = cluster.view()->reason.text;
    INFO(how);
    CHECK(how.find("i" + std::to_string(liar) + " was away from round") != std::string::npos);
    for (std::size_t i = 0; i < 4; ++i) {
      if (i != liar) {
        CHECK(how.find("i" + std::to_string(i) + " was away") == std::string::npos);
        CHECK(cluster.host(i).steps() == 160);
      }
    }
  }
}

TEST_CASE("of two islands whose checkpoints are different files nobody can tell who is wrong: it is said, and both stay") {
  for (const std::size_t liar : {0, 1}) {
    INFO(liar);
    Cluster cluster(calm(2, 1, 20));
    cluster.lie(liar, [](Message& message) {
      if (auto* told = std::get_if<Checkpointed>(&message)) {
        told->file = invented();
      }
    });
    cluster.start();
    finish(cluster);
    CHECK(events(cluster, "state_differs") >= 1);
    CHECK(events(cluster, "island_left") == 0);
    CHECK(events(cluster, "island_quarantined") == 0);
  }
}

TEST_CASE("an island that joins two whose checkpoints are said to be different files comes in with the one that is there") {
  for (const std::size_t liar : {0, 1}) {
    INFO(liar);
    Scenario scenario = calm(3, 1, 60);
    Cluster cluster(scenario);
    cluster.cut("i2", kCoordinator);
    cluster.lie(liar, [](Message& message) {
      if (auto* told = std::get_if<Checkpointed>(&message)) {
        told->file = invented();
      }
    });
    cluster.start();
    REQUIRE(cluster.run_until_committed(Round(6), minutes(2)));
    cluster.join("i2", kCoordinator);
    finish(cluster);
    INFO(cluster.view()->reason.text);
    CHECK(events(cluster, "island_joined") >= 1);
    CHECK(cluster.host(2).steps() > 0);
  }
}

TEST_CASE("in pairs an island comes in from another one, where the one that says it is furthest serves nothing") {
  Cluster cluster(calm_pairs(4, 2, 60));
  cluster.cut("i3", kCoordinator);
  cluster.lie(0, [](Message& message) {
    if (auto* told = std::get_if<Checkpointed>(&message)) {
      told->round = Round(60);
    }
  });
  cluster.start();
  cluster.run_for(10s);
  cluster.join("i3", kCoordinator);
  finish(cluster);
  INFO(cluster.view()->reason.text);
  CHECK(events(cluster, "island_joined") >= 1);
  CHECK(cluster.host(3).steps() > 0);
}

TEST_CASE("a run that one island may serve is not stopped by one that claims a later round while others go on with it") {
  for (const std::uint64_t claimed : {40, 12}) {
    for (const std::uint64_t epoch : {3, 1000}) {
      INFO(claimed << " " << epoch);
      Cluster cluster(calm(4, 1, 40));
      cluster.start();
      REQUIRE(cluster.run_until_committed(Round(9), minutes(2)));
      cluster.lie(3, [=, run = cluster.run_id()](Message& message) {
        if (auto* hello = std::get_if<Hello>(&message)) {
          hello->runs = {
              HeldRun{run, Epoch(epoch), true, Round(claimed), invented(), {HeldCheckpoint{Round(claimed), invented(), Epoch(epoch)}}}};
        }
      });
      cluster.host(3).crash();
      cluster.run_for(8s);
      cluster.host(3).start();
      finish(cluster);
      CHECK(events(cluster, "ledger_behind") == 0);
      CHECK(events(cluster, "ledger_restored") == 0);
      for (const std::size_t i : {0, 1, 2}) {
        CHECK(cluster.host(i).steps() == 160);
      }
    }
  }
}

TEST_CASE("in the merge of all islands' models no island has more weight than its steps can hold, nor a say about others' sizes") {
  for (const int kind : {0, 1}) {
    INFO(kind);
    Cluster cluster(calm_pairs(4, 2, 40));
    cluster.lie(2, [=](Message& message) {
      if (auto* ready = std::get_if<Ready>(&message); ready != nullptr && ready->round == Round(41)) {
        ready->facts.tokens = kind == 0 ? kMaxAmount : ready->facts.tokens;
        ready->facts.norm = kind == 1 ? 1e-9 : ready->facts.norm;
      }
    });
    cluster.start();
    finish(cluster);
    const std::vector<std::uint64_t> weights = weights_at_end(cluster, Round(41));
    REQUIRE(weights.size() == 4);
    for (const std::uint64_t weight : weights) {
      CHECK(weight < 100'000);
    }
    CHECK(events(cluster, "contribution_rejected") == (kind == 0 ? 1 : 0));
    CHECK(events(cluster, "round_retried") == 0);
  }
}

TEST_CASE("in the merge of all islands' models an island with the tokens of the whole run counts beside those that came late") {
  Cluster cluster(calm_pairs(4, 2, 40));
  for (const std::size_t late : {1U, 2U, 3U}) {
    cluster.lie(late, [](Message& message) {
      if (auto* ready = std::get_if<Ready>(&message); ready != nullptr && ready->round == Round(41)) {
        ready->facts.tokens = 1;
      }
    });
  }
  cluster.start();
  finish(cluster);
  const std::vector<std::uint64_t> weights = weights_at_end(cluster, Round(41));
  REQUIRE(weights.size() == 4);
  CHECK(std::ranges::max(weights) > 1000);
  CHECK(events(cluster, "contribution_rejected") == 0);
}

TEST_CASE("where islands keep states of their own, a claim of a later round that holds up a pause is named, and goes with its island") {
  for (const bool pairs : {false, true}) {
    for (const int kind : {0, 1, 2}) {
      INFO(pairs << " " << kind);
      Cluster cluster(pairs ? calm_pairs(4, 2, 400) : calm_alone(4, 400));
      cluster.lie(2, [=](Message& message) {
        if (auto* ready = std::get_if<Ready>(&message); ready != nullptr && kind == 0) {
          ready->round = Round(400);
        } else if (auto* merged = std::get_if<Merged>(&message); merged != nullptr && kind == 1) {
          merged->round = Round(400);
        } else if (auto* told = std::get_if<Checkpointed>(&message); told != nullptr && kind == 2) {
          told->round = Round(400);
        }
      });
      cluster.start();
      cluster.run_for(10s);
      REQUIRE(cluster.pause());
      cluster.run_for(5s);
      CHECK((events(cluster, "pause_awaited") >= 1 || kind == 2));
      cluster.revoke(2);
      const bool paused = cluster.run_until_state(RunState::paused, minutes(2));
      INFO(cluster.view()->reason.text);
      REQUIRE(paused);
      for (const std::size_t i : {0, 1, 3}) {
        CHECK(cluster.host(i).steps() < 800);  // of 1,600
      }
    }
  }
}

TEST_CASE("an island alone is done with its run at the last round, and not whenever it says so") {
  Cluster cluster(calm_alone(3, 40));
  bool lies = true;
  cluster.lie(2, [&lies](Message& message) {
    if (const auto* ready = std::get_if<Ready>(&message); ready != nullptr && lies) {
      const RunId run = ready->run;
      message = RunEnded{run, Round(0), Digest{}, std::nullopt};
      lies = false;
    }
  });
  cluster.start();
  cluster.run_for(5s);
  CHECK_FALSE(lies);
  CHECK(events(cluster, "island_ended") == 0);
  finish(cluster);
  CHECK(events(cluster, "island_ended") == 3);
}

TEST_CASE("an island that once named an assignment of the largest number is told of its tasks and heard, once it names those that it has") {
  Scenario scenario = calm(2, 1);
  RunSpec& spec = scenario.spec;
  spec.strategy = {};
  spec.strategy.name = "decentralized-diffusion";
  spec.strategy.group = Group::expert;
  spec.diffusion.experts = 3;
  spec.diffusion.router_steps = 20;
  spec.diffusion.save_every = 0;
  spec.training.steps = 40;
  spec.training.batch = 1;
  spec.rounds = 4;
  Cluster cluster(scenario);
  int said = 0;
  cluster.lie(1, [&said](Message& message) {
    if (auto* report = std::get_if<AssignmentReport>(&message); report != nullptr && ++said <= 2) {
      report->number = kMaxCount;
    }
  });
  cluster.start();
  finish(cluster);
  CHECK(said > 2);
  CHECK(cluster.host(1).steps() > 0);
}
