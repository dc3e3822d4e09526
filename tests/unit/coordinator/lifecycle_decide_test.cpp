// The decisions on how a run begins, is paused and ends, as tables; and the list of runs to be looked at.
#include "coordinator/core/decide_lifecycle.hpp"
#include "coordinator/core/work_list.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_lifecycle_decide_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

const TimePoint kStart = from_unix_ms(1'700'000'000'000);

}  // namespace

TEST_CASE("the initial state: agreed once all are ready, or enough at the deadline") {
  CHECK(decide_initial({kStart, kStart + 1s, 2, 2, {}}).commit);
  CHECK(decide_initial({kStart + 1s, kStart + 1s, 2, 2, {"c"}}).commit);
  const InitialDecision lacking = decide_initial({kStart, kStart + 1s, 3, 1, {}});
  CHECK_FALSE(lacking.commit);
  CHECK(lacking.wait.text == "waits for 2 more islands (needs 3, has 1)");
  const InitialDecision unknown = decide_initial({kStart + 2s, kStart + 1s, 2, 2, {}, false});
  CHECK_FALSE(unknown.commit);
  CHECK(unknown.wait.text == "waits for an island that has the parameters that the run begins with ([model] from)");
  const InitialDecision starting = decide_initial({kStart, kStart + 1s, 2, 2, {"c"}});
  CHECK_FALSE(starting.commit);
  CHECK(starting.wait.text == "c is starting");
  CHECK(starting.wait.until == kStart + 1s);
  const InitialDecision late = decide_initial({kStart + 2s, kStart + 1s, 2, 1, {"b", "c"}});
  CHECK_FALSE(late.commit);
  CHECK(late.wait.text == "b and c are starting; the deadline has passed, but only 1 of at least 2 are ready");
  CHECK_FALSE(late.wait.until);
}

TEST_CASE("a pause waits for the checkpoints of the round after which the run stands") {
  CHECK_FALSE(decide_pause({Round(3), {}}));
  CHECK(decide_pause({Round(3), {"a", "b"}})->text == "is being paused after round 3; waits for the checkpoint of a and b");
  CHECK(decide_pause({Round(3), {"a"}, true})->text == "ends after round 3; waits for the checkpoint of a");
}

TEST_CASE("a run ends once everybody has told of its end, and somebody has") {
  CHECK_FALSE(decide_end({2, {}}));
  CHECK(decide_end({1, {"b"}})->text == "all rounds are done; waits for the last checkpoint of b");
  CHECK(decide_end({0, {}}));
}

TEST_CASE("islands on their own: who trains, who is waited for, and when nobody is") {
  using Kind = AloneDecision::Kind;
  CHECK(decide_alone({kStart, kStart + 1s, {"a"}, {"b (lost)"}, true}).kind == Kind::train);
  const AloneDecision away = decide_alone({kStart, kStart + 1s, {}, {"b (lost)"}, true});
  CHECK(away.kind == Kind::wait);
  CHECK(away.wait.text == "waits for b (lost)");
  CHECK(away.wait.until == kStart + 1s);
  CHECK(decide_alone({kStart + 1s, kStart + 1s, {}, {"b (lost)"}, true}).kind == Kind::end);
  CHECK(decide_alone({kStart, kStart + 1s, {}, {}, true}).kind == Kind::end);
  CHECK_FALSE(decide_alone({kStart + 9s, kStart + 1s, {}, {"b (lost)"}, false}).wait.until);  // nobody is done: without an end
  CHECK(decide_alone({kStart, kStart + 1s, {}, {}, false}).kind == Kind::hopeless);
}

TEST_CASE("the merge of all islands waits for those with rounds to do, as long as they get on") {
  CHECK(decide_merge({kStart, kStart + 1s, {"b"}, false})->text == "the merge of all islands waits for b");
  CHECK_FALSE(decide_merge({kStart, kStart + 1s, {"b"}, true}));
  CHECK_FALSE(decide_merge({kStart, kStart + 1s, {}, false}));
  CHECK_FALSE(decide_merge({kStart + 1s, kStart + 1s, {"b"}, false}));
}

TEST_CASE("a run in pairs without anybody: those that left last are waited for, then whoever has its state goes on") {
  CHECK(decide_own_restore({kStart, kStart + 1s, {"b"}, true, true})->until == kStart + 1s);
  CHECK_FALSE(decide_own_restore({kStart + 1s, kStart + 1s, {"b"}, true, true}));
  const std::optional<Wait> lost = decide_own_restore({kStart + 1s, kStart + 1s, {"b"}, false, true});
  REQUIRE(lost);
  CHECK_FALSE(lost->until);
  CHECK(lost->text.find("it cannot go on before one connects that has: b") != std::string::npos);
  CHECK_FALSE(decide_own_restore({kStart, kStart + 1s, {}, false, false}));  // nobody has trained: all begin
}

TEST_CASE("with too few islands the reason names those that are missed") {
  CHECK(decide_standing({{"round 2 waits", std::nullopt}, true, {"b (lost)"}}).text == "round 2 waits");
  CHECK(decide_standing({{"round 2 waits", std::nullopt}, false, {"b (lost)"}}).text == "round 2 waits: b (lost)");
  CHECK(decide_standing({{"round 2 waits", std::nullopt}, false, {}}).text == "round 2 waits");
  const std::string stops = stops_after(Round(2), false);
  CHECK(decide_standing({{"round 2 waits", std::nullopt}, true, {}, stops}).text == "is being paused after round 2; round 2 waits");
  CHECK(decide_standing({*decide_pause({Round(2), {"a"}}), true, {}, stops}).text ==
        "is being paused after round 2; waits for the checkpoint of a");
  const Wait pause{"round 2 failed 3 times", TimePoint(std::chrono::seconds(9))};
  CHECK(decide_standing({pause, true, {}, {}, "a and b are apart"}).text == "a and b are apart");
  CHECK_FALSE(decide_standing({pause, true, {}, {}, "a and b are apart"}).until);
  CHECK(decide_standing({pause, false, {"b (lost)"}, {}, "a and b are apart"}).text == "round 2 failed 3 times: b (lost)");
  CHECK(decide_standing({{}, true, {}, stops_after(Round(2), true)}).text == "ends after round 2");
}

TEST_CASE("runs are looked at in the order of their priority and submission, again when they change, and how often is counted") {
  WorkList work;
  const RunId first("r-9");
  const RunId second("r-1");
  work.begin();
  work.add(second, 0, kStart + 1s);
  work.add(first, 0, kStart);
  work.add(first, 0, kStart);
  CHECK(work.take() == first);
  work.add(first, 0, kStart);  // it changed: once more before the others
  CHECK(work.has(first, 0, kStart));
  CHECK(work.take() == first);
  CHECK(work.taken(first) == 2);
  CHECK(work.take() == second);
  CHECK_FALSE(work.take());
  work.begin();
  CHECK(work.taken(first) == 0);
  work.add(first, 1, kStart);
  work.add(second, 2, kStart + 1s);  // a higher priority goes before
  CHECK(work.take() == second);
  CHECK(work.take() == first);
}

}  // namespace of_coordinator_lifecycle_decide_test
