// What an island keeps of runs that are over, and what a coordinator says of them.
#include "agent/core/retention.hpp"

#include <algorithm>

#include "coordinator/core/core.hpp"
#include "tests/catch.hpp"

namespace of_retention_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

const RunId kRun("r-1");
constexpr std::uint64_t kDay = 24 * 3600;

StoredCheckpoint checkpoint(std::uint64_t epoch, std::uint64_t round) {
  StoredCheckpoint value;
  value.epoch = Epoch(epoch);
  value.round = Round(round);
  return value;
}

Keep keep_of(const RunOver& over, const std::vector<StoredCheckpoint>& checkpoints, const Settings& settings = {}, bool in_hand = false,
             bool read = false) {
  return decide_keep({over, checkpoints, in_hand, read, settings}).keep;
}

}  // namespace

TEST_CASE("of a run that ended the newest checkpoint is kept for as long as the owner says") {
  const std::vector<StoredCheckpoint> two = {checkpoint(2, 90), checkpoint(2, 100)};
  const auto ended = [](std::uint64_t seconds) { return RunOver{kRun, false, seconds, Epoch(2), Round(100)}; };
  CHECK(keep_of(ended(60), two) == Keep::all);
  CHECK(keep_of(ended(kDay), two) == Keep::newest);
  CHECK(keep_of(ended(kDay), {checkpoint(2, 100)}) == Keep::all);
  CHECK(keep_of(ended(30 * kDay - 1), two) == Keep::newest);
  CHECK(keep_of(ended(30 * kDay), two) == Keep::nothing);
  Settings settings;
  settings.keep_ended = 24h;
  CHECK(keep_of(ended(kDay), two, settings) == Keep::nothing);
  settings.keep_ended = 0h;
  CHECK(keep_of(ended(0), two, settings) == Keep::nothing);
  settings.keep_ended.reset();
  CHECK(keep_of(ended(1'000 * kDay), two, settings) == Keep::all);
}

TEST_CASE("what is in hand, is being read, or is further on than the coordinator knows is kept") {
  const std::vector<StoredCheckpoint> here = {checkpoint(2, 90), checkpoint(2, 100)};
  for (const bool removed : {false, true}) {
    const RunOver over{kRun, removed, 100 * kDay, Epoch(2), Round(100)};
    CHECK(keep_of(over, here) == Keep::nothing);
    CHECK(keep_of(over, here, {}, true) == Keep::all);
    CHECK(keep_of(over, here, {}, false, true) == (removed ? Keep::nothing : Keep::all));
    CHECK(keep_of(over, {checkpoint(2, 100), checkpoint(2, 101)}) == Keep::all);
    CHECK(keep_of(over, {checkpoint(3, 50), checkpoint(2, 100)}) == Keep::all);
    CHECK(keep_of(over, {checkpoint(1, 200)}) == Keep::nothing);  // of rounds that were lost
    CHECK(keep_of(over, {}) == Keep::nothing);                    // a run of phases
  }
  Settings settings;
  settings.keep_removed = true;
  const RunOver removed{kRun, true, 100 * kDay, Epoch(2), Round(100)};
  CHECK(keep_of(removed, here, settings) == Keep::all);
  CHECK(decide_keep({removed, here, false, false, settings}).kept_by_owner);
}

TEST_CASE("an age of any size does not wrap") {
  for (const std::uint64_t seconds : {std::uint64_t{1} << 40U, ~std::uint64_t{0}}) {
    CHECK(keep_of({kRun, false, seconds, Epoch(2), Round(100)}, {checkpoint(2, 100)}) == Keep::nothing);
  }
}

namespace {

using coordinator::RunState;

// A coordinator that knows two ended runs and one that goes on, of island a.
coordinator::Core core_with(TimePoint now, std::vector<coordinator::RemovedRecord> removed = {}) {
  coordinator::Recovered recovered;
  RunSpec spec;
  spec.name = "run";
  spec.islands.min = 1;
  spec.islands.max = 2;
  spec.strategy.inner_steps = 10;
  spec.training.steps = 1000;
  spec.rounds = 100;
  for (const auto& [id, state] :
       std::map<std::string, RunState>{{"r-1", RunState::completed}, {"r-2", RunState::cancelled}, {"r-3", RunState::paused}}) {
    coordinator::RunRecord run;
    run.id = RunId(id);
    run.name = "run " + id;
    run.spec = to_json(spec);
    run.state = state;
    run.epoch = Epoch(4);
    run.initialised = true;
    run.committed = Round(100);
    run.submitted = now - 100h;
    run.ended = now - 48h;
    recovered.runs.push_back(run);
    recovered.memberships.push_back({RunId(id), IslandId("i-a"), 0, coordinator::MembershipState::ended, "", {}, 0, Epoch(0)});
  }
  recovered.removed = std::move(removed);
  coordinator::Core core({}, recovered, now);
  core.admit(now, IslandId("i-a"), "a", "key-a");
  Hello hello;
  hello.name = "a";
  hello.boot = 1;
  core.step(now, IslandId("i-a"), 1, hello);
  (void)core.take_ready();
  return core;
}

std::vector<RunOver> said(coordinator::Ready ready) {
  std::vector<RunOver> runs;
  for (const coordinator::Outgoing& out : ready.messages) {
    if (const auto* over = std::get_if<Over>(&out.message)) {
      runs.insert(runs.end(), over->runs.begin(), over->runs.end());
    }
  }
  return runs;
}

}  // namespace

TEST_CASE("a coordinator names the runs that are over, and no run that it does not know") {
  const TimePoint now = from_unix_ms(1'700'000'000'000);
  coordinator::Core core = core_with(now, {{RunId("r-9"), "old", now - 1h, Epoch(7), Round(50)}});
  core.step(now, IslandId("i-a"), 1, Holds{{RunId("r-1"), RunId("r-3"), RunId("r-9"), RunId("r-unknown")}});
  CHECK(said(core.take_ready()) ==
        std::vector<RunOver>{{RunId("r-1"), false, 48 * 3600, Epoch(4), Round(100)}, {RunId("r-9"), true, 3600, Epoch(7), Round(50)}});
}

TEST_CASE("only a run that has ended is removed, once, and the record comes before the word") {
  const TimePoint now = from_unix_ms(1'700'000'000'000);
  coordinator::Core core = core_with(now);
  CHECK(core.remove(now, RunId("r-3")).error().code == Code::conflict);
  const Result<coordinator::Removal> rehearsed = core.remove(now, RunId("r-1"), true);
  REQUIRE(rehearsed);
  REQUIRE(rehearsed->islands.size() == 1);
  CHECK(rehearsed->islands.front().connected);
  CHECK(core.run(now, RunId("r-1")));
  CHECK(said(core.take_ready()).empty());
  REQUIRE(core.remove(now, RunId("r-1")));
  CHECK_FALSE(core.run(now, RunId("r-1")));
  coordinator::Ready ready = core.take_ready();
  CHECK(std::ranges::any_of(ready.records, [](const auto& record) { return std::holds_alternative<coordinator::RemovedRecord>(record); }));
  CHECK(said(std::move(ready)) == std::vector<RunOver>{{RunId("r-1"), true, 0, Epoch(4), Round(100)}});
  CHECK(core.remove(now, RunId("r-1")).error().code == Code::not_found);
  core.step(now, IslandId("i-a"), 1, Holds{{RunId("r-1")}});
  CHECK(said(core.take_ready()).size() == 1);
}

TEST_CASE("a run that is submitted again under the id of a removed one is not removed any more") {
  const TimePoint now = from_unix_ms(1'700'000'000'000);
  coordinator::Core core = core_with(now, {{RunId("r-9"), "old", now - 1h, Epoch(7), Round(50)}});
  RunSpec spec;
  spec.name = "again";
  spec.islands.min = 1;
  spec.islands.max = 2;
  spec.rounds = 5;
  spec.strategy.group = Group::all;
  REQUIRE(core.submit(now, RunId("r-9"), spec, "", "file"));
  const coordinator::Ready ready = core.take_ready();
  const auto lifted = std::ranges::find_if(ready.records, [](const auto& record) {
    const auto* removed = std::get_if<coordinator::RemovedRecord>(&record);
    return removed != nullptr && removed->lifted;
  });
  CHECK(lifted != ready.records.end());
  core.step(now, IslandId("i-a"), 1, Holds{{RunId("r-9")}});
  CHECK(said(core.take_ready()).empty());
}

}  // namespace of_retention_test
