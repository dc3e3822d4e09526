// What islands tell for people stays in the ledger: one island cannot fill it.
#include <algorithm>

#include "coordinator/core/core.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator_core_bench.hpp"

namespace of_coordinator_island_events_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};

  explicit Bench(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      core.admit(now, IslandId(name), name, "key-" + name);
      Hello hello;
      hello.name = name;
      hello.boot = 1;
      hello.bulk_address = "tcp://" + name + ":4401";
      core.step(now, IslandId(name), 1, hello);
    }
    (void)core.take_ready();
  }
  // The texts of the events that are to be kept of what the island tells now.
  std::vector<std::string> tell(const std::string& name, const std::string& text, int times = 1) {
    for (int i = 0; i < times; ++i) {
      core.step(now, IslandId(name), 1, IslandEvent{{}, "warning", "trainer_crashed", text});
    }
    std::vector<std::string> kept;
    for (const Record& record : core.take_ready().records) {
      if (const auto* event = std::get_if<EventRecord>(&record); event != nullptr && event->kind == "trainer_crashed") {
        kept.push_back(event->text);
      }
    }
    return kept;
  }
};

}  // namespace

TEST_CASE("an island that tells events without end has a bounded number kept, and the next one says how many were not") {
  Bench bench({"a", "b"});
  const std::size_t kept = bench.tell("a", "crashed", 10'000).size();
  CHECK(kept >= 10);
  CHECK(kept <= 60);
  CHECK(bench.tell("a", "crashed again").empty());
  CHECK(bench.tell("b", "has its own share") == std::vector<std::string>{"has its own share"});
  bench.now += 61s;
  const std::vector<std::string> later = bench.tell("a", "crashed at last");
  REQUIRE(later.size() == 1);
  CHECK(later.front().find("crashed at last (and " + std::to_string(10'001 - kept) + " more") == 0);
}

TEST_CASE("what an island tells is kept in pieces of bounded length") {
  Bench bench({"a"});
  const std::vector<std::string> kept = bench.tell("a", std::string(1'000'000, 'x'), 100);
  std::size_t bytes = 0;
  for (const std::string& text : kept) {
    bytes += text.size();
  }
  CHECK(bytes > 0);
  CHECK(bytes < 200'000);
}

TEST_CASE("a path that is said to be broken and whole again without end has a bounded number of it kept") {
  Bench bench({"a", "b"});
  for (int i = 0; i < 10'000; ++i) {
    bench.core.step(bench.now, IslandId("a"), 1, PathReport{IslandId("b"), i % 2 == 1, "nothing came"});
    bench.core.step(bench.now, IslandId("a"), 1,
                    Ways{{PeerWay{IslandId("b"), Way{.relay = i % 2 == 1 ? "" : "relay-" + std::to_string(i)}}}});
  }
  const auto records = bench.core.take_ready().records;
  const auto kept = std::ranges::count_if(records, [](const Record& record) {
    const auto* event = std::get_if<EventRecord>(&record);
    return event != nullptr && event->kind.starts_with("path_");
  });
  CHECK(kept >= 10);
  CHECK(kept <= 60);
}

TEST_CASE("checkpoints that an island says without end it could not write, or has copied, have a bounded number of it kept") {
  atl_test::Bench bench;
  bench.join("a");
  bench.join("b");
  RunSpec spec = atl_test::spec_for(2, 2, 20);
  spec.checkpoint.copy = "s3://bucket/run";
  REQUIRE(bench.core.submit(bench.now, bench.run, spec, "", "file"));
  bench.now += 2s;
  bench.core.tick(bench.now);
  bench.take();
  REQUIRE(bench.told("run_started") == 1);
  for (std::uint64_t i = 1; i <= 10'000; ++i) {
    const IslandId liar(i % 2 == 1 ? "a" : "b");
    bench.core.step(bench.now, liar, 1, Checkpointed{bench.run, Round(i), {}, {}, 0, Error{Code::io, "the disk is full"}});
    bench.core.step(bench.now, liar, 1, Copied{bench.run, Round(i), {}, i, i, 1, "s3://bucket/run", std::nullopt});
    bench.core.step(bench.now, liar, 1, Copied{bench.run, Round(i), {}, 0, 0, 1, "s3://bucket/run", Error{Code::io, "no"}});
  }
  bench.take();
  CHECK(bench.told("checkpoint_failed") >= 5);
  CHECK(bench.told("checkpoint_failed") + bench.told("checkpoint_copied") + bench.told("checkpoint_not_copied") <= 120);
}

}  // namespace of_coordinator_island_events_test
