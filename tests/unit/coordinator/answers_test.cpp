// Answers in a round of many islands: one that decides nothing has the run looked at soon, the one that decides at once.
#include <algorithm>

#include "tests/catch.hpp"
#include "tests/unit/coordinator_core_bench.hpp"

namespace of_coordinator_answers_test {

namespace {

using namespace atl_test;

struct ManyIslands : Bench {
  std::vector<std::string> names;
  Epoch epoch;

  ManyIslands(std::size_t count, const RunSpec& spec) {
    for (std::size_t i = 0; i < count; ++i) {
      names.push_back("i" + std::to_string(100 + i));
      join(names.back());
    }
    REQUIRE(core.submit(now, run, spec, "", "").has_value());
    atl::Ready initial;
    initial.run = run;
    initial.epoch = Epoch(1);
    initial.facts.tokens = 100;
    for (const std::string& name : names) {
      core.step(now, IslandId(name), 1, initial);
    }
    epoch = core.run(now, run)->epoch;
    take();
  }
  void ready(std::size_t i) {
    atl::Ready message;
    message.run = run;
    message.epoch = epoch;
    message.round = Round(1);
    message.facts.tokens = 100;
    core.step(now, IslandId(names[i]), 1, message);
  }
  void exchanged(std::size_t i) { core.step(now, IslandId(names[i]), 1, Exchanged{run, epoch, Round(1), Attempt(1), digest(1), 0, 0, 0}); }
  [[nodiscard]] std::string reason() const { return core.run(now, run)->reason.text; }
  [[nodiscard]] bool planned() {
    take();
    return !sent<Exchange>(names.front()).empty();
  }
};

}  // namespace

TEST_CASE("an answer of an island while many others are awaited has the run looked at within a tenth of a second, the last at once") {
  ManyIslands bench(64, spec_for(64, 64, 10));
  bench.ready(0);
  const std::string first = bench.reason();
  CHECK(first.find("round 1 waits for") != std::string::npos);
  bench.now += milliseconds(5);
  bench.ready(1);
  bench.ready(2);
  CHECK(bench.reason() == first);
  REQUIRE(bench.core.next_deadline().has_value());
  CHECK(*bench.core.next_deadline() <= bench.now + milliseconds(100));
  bench.now = *bench.core.next_deadline();
  bench.core.tick(bench.now);
  CHECK(bench.reason() != first);
  for (std::size_t i = 3; i < 63; ++i) {
    bench.ready(i);
  }
  CHECK(bench.reason().find("round 1 waits for i163") != std::string::npos);  // the last few are looked at one by one
  CHECK_FALSE(bench.planned());
  bench.ready(63);
  REQUIRE(bench.planned());
  for (std::size_t i = 0; i < 63; ++i) {
    bench.exchanged(i);
  }
  bench.take();
  CHECK(bench.sent<Commit>(bench.names.front()).empty());
  bench.exchanged(63);
  bench.take();
  CHECK(bench.sent<Commit>(bench.names.front()).size() == 1);
}

TEST_CASE("a failure in an attempt of many islands is looked at at once, and so is what they say after it") {
  ManyIslands bench(64, spec_for(64, 64, 10));
  for (std::size_t i = 0; i < 64; ++i) {
    bench.ready(i);
  }
  REQUIRE(bench.planned());
  bench.exchanged(0);
  bench.core.step(bench.now, IslandId(bench.names[1]), 1,
                  ExchangeFailed{bench.run, bench.epoch, Round(1), Attempt(1), IslandId(bench.names[2]), Error{Code::unavailable, "lost"}});
  bench.now += 1s;
  for (std::size_t i = 2; i < 64; ++i) {
    bench.exchanged(i);
  }
  bench.take();
  CHECK(bench.told("round_retried") == 1);
}

TEST_CASE("a quorum of many islands: the contribution with which it is there is looked at at once") {
  RunSpec spec = spec_for(2, 64, 10);
  spec.strategy = named_strategy("decoupled-diloco").value();
  spec.strategy.inner_steps = 10;
  spec.strategy.quorum = 32;
  spec.strategy.grace = "0s";
  spec.strategy.pace = Pace::fixed;
  ManyIslands bench(64, spec);
  for (std::size_t i = 0; i < 31; ++i) {
    bench.ready(i);
  }
  CHECK_FALSE(bench.planned());
  bench.ready(31);
  CHECK(bench.planned());
}

}  // namespace of_coordinator_answers_test
