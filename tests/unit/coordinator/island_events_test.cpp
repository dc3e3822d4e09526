// What islands tell for people stays in the ledger: one island cannot fill it.
#include <algorithm>

#include "coordinator/core/core.hpp"
#include "tests/catch.hpp"

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

}  // namespace of_coordinator_island_events_test
