// From whom an operator fetches a run's model: every connected island that has a checkpoint, for some may be out of its reach.
#include <algorithm>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/coordinator_core_bench.hpp"

namespace of_export_sources_test {

using namespace atl_test;

namespace {

// Two islands that have begun.
Bench two_islands() {
  Bench bench;
  for (const char* name : {"a", "b"}) {
    bench.join(name);
  }
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(2, 2, 100), "", "").has_value());
  const auto view = [&] { return *bench.core.run(bench.now, bench.run); };
  for (int i = 0; i < 20 && view().state == RunState::queued; ++i) {
    bench.now += 1s;
    for (const char* name : {"a", "b"}) {
      bench.core.step(bench.now, IslandId(name), 1, Heartbeat{1, {}});
    }
    bench.core.tick(bench.now);
  }
  atl::Ready ready;
  ready.run = bench.run;
  ready.epoch = view().epoch;
  for (const char* name : {"a", "b"}) {
    bench.core.step(bench.now, IslandId(name), 1, ready);
  }
  REQUIRE(view().initialised);
  bench.take();
  return bench;
}

void write_checkpoint(Bench& bench, const std::string& island, std::uint64_t file = 7) {
  bench.core.step(bench.now, IslandId(island), 1, Checkpointed{bench.run, Round(0), Digest{}, digest(file), 10, {}});
  bench.take();
}

}  // namespace

TEST_CASE("all connected islands that have the newest checkpoint are named to a reader, and each is told to serve") {
  Bench bench = two_islands();
  CHECK(bench.core.serve(bench.now, bench.run, "reader").error().code == Code::unavailable);
  write_checkpoint(bench, "b");
  const auto one = bench.core.serve(bench.now, bench.run, "reader");
  REQUIRE(one);
  REQUIRE(one->size() == 1);
  CHECK(one->front().island.name == "b");
  write_checkpoint(bench, "a");
  const auto both = bench.core.serve(bench.now, bench.run, "reader");
  REQUIRE(both);
  REQUIRE(both->size() == 2);
  for (const ExportSource& source : *both) {
    CHECK(source.round == Round(0));
    CHECK(source.file == digest(7));
    CHECK(source.file_bytes == 10);
  }
  bench.take();
  for (const char* name : {"a", "b"}) {
    const std::vector<Serve> told = bench.sent<Serve>(name);
    REQUIRE_FALSE(told.empty());
    CHECK(told.back().reader_key == "reader");
    CHECK(told.back().allowed);
    CHECK(told.back().reader_address.empty());  // an operator dials
  }
  // The island that is asked for alone is the only one.
  const auto alone = bench.core.serve(bench.now, bench.run, "reader", IslandId("a"));
  REQUIRE(alone);
  REQUIRE(alone->size() == 1);
  CHECK(alone->front().island.name == "a");
  bench.take();
  CHECK(bench.sent<Serve>("b").empty());
}

}  // namespace of_export_sources_test
