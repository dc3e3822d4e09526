// The open rounds of a run, its lifecycle, and its tasks: each machine by itself.
#include <algorithm>
#include <cstring>

#include "coordinator/core/lifecycle.hpp"
#include "coordinator/core/open_rounds.hpp"
#include "coordinator/core/tasks.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_rounds_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

const TimePoint kStart = from_unix_ms(1'700'000'000'000);
const IslandId a("a");
const IslandId b("b");

Digest digest(std::uint64_t value) {
  Digest d;
  std::memcpy(d.bytes.data(), &value, sizeof value);
  return d;
}

Contribution contribution(std::uint64_t tokens) { return Contribution{.facts = {.tokens = tokens, .norm = 1}}; }

Exchanged exchanged(Attempt attempt, std::uint64_t result) {
  Exchanged message;
  message.attempt = attempt;
  message.digest = digest(result);
  return message;
}

}  // namespace

TEST_CASE("an open round: contributions are kept over attempts, and stale reports are told apart") {
  Outbox out(kStart, 2s);
  OpenRound round;
  CHECK(round.answer_of(a) == Answer::none);
  round.contribute(a, contribution(10), kStart + 1s);
  round.contribute(b, contribution(20), kStart + 2s);
  CHECK(round.first_answer() == kStart + 1s);
  round.plan_attempt({a, b}, out);
  CHECK(round.attempt() == Attempt(1));
  CHECK(each_of(round.plan().contributions, &ContributionFacts::tokens) == std::vector<std::uint64_t>{10, 20});
  CHECK(round.accepts(a) == OpenRound::Acceptance::no);
  CHECK(round.exchanged(a, exchanged(Attempt(1), 5), kStart) == OpenRound::Report::counted);
  CHECK(round.exchanged(a, exchanged(Attempt(0), 5), kStart) == OpenRound::Report::stale);
  CHECK(round.exchanged(a, exchanged(Attempt(2), 5), kStart) == OpenRound::Report::ignored);
  CHECK(round.holds_result(a, digest(5)));
  CHECK_FALSE(round.holds_result(a, digest(6)));
  CHECK(round.silent_and_due(out).empty());
  out.advance_to(kStart + 2s);
  CHECK(round.silent_and_due(out) == std::vector<IslandId>{b});
  ExchangeFailed failure;
  failure.attempt = Attempt(1);
  failure.accused = a;
  CHECK(round.failed(b, failure, "b: no link", kStart + 3s) == OpenRound::Report::counted);
  AttemptInput input;
  round.describe(input);
  REQUIRE(input.members.size() == 2);
  CHECK(input.members[0].done == digest(5));
  CHECK(input.members[1].accused == a);
  AttemptDecision decision;
  decision.why = "b failed";
  decision.blame = {{a, 1}};
  CHECK(round.blame(decision, kStart + 3s) == "b failed (b: no link)");
  round.give_up();
  CHECK(round.exchanged(a, exchanged(Attempt(1), 5), kStart) == OpenRound::Report::stale);
  CHECK(round.accepts(a) == OpenRound::Acceptance::yes);
  round.reject(b, "too large");
  CHECK(round.answer_of(b) == Answer::withdrawn);
  round.plan_attempt({a, b}, out);
  CHECK(round.attempt() == Attempt(2));
  CHECK(each_of(round.plan().contributions, &ContributionFacts::tokens) == std::vector<std::uint64_t>{10, 0});
  CHECK_FALSE(round.holds_result(a, digest(5)));  // of the attempt before
  round.start_anew();
  CHECK(round.attempt() == Attempt(2));
  CHECK(round.contributions().empty());
}

TEST_CASE("what an island is told of an attempt does not grow with the islands where it is the same for all") {
  const auto order = [](std::size_t islands, bool equal) {
    Outbox out(kStart, 2s);
    OpenRound round;
    std::vector<IslandId> members;
    for (std::size_t i = 0; i < islands; ++i) {
      members.emplace_back("an island with a name of the usual length " + std::to_string(i));
      round.contribute(members.back(), contribution(equal ? 10 : 10 + i), kStart);
    }
    round.plan_attempt(members, out);
    return round.exchange_of(members, false);
  };
  CHECK(encode(order(500, true))->size() == encode(order(5, true))->size());
  const Exchange unequal = order(3, false);
  CHECK(unequal.members.empty());
  CHECK(unequal.terms.tokens == std::vector<std::uint64_t>{10, 11, 12});
  CHECK(unequal.terms.norms.empty());
}

TEST_CASE("an attempt of fewer than all members of the epoch names its own") {
  Outbox out(kStart, 2s);
  OpenRound round;
  round.contribute(a, contribution(10), kStart);
  round.contribute(b, contribution(10), kStart);
  round.plan_attempt({a, b}, out);
  const Exchange order = round.exchange_of({a, b, IslandId("c")}, true);
  CHECK(order.members == std::vector<IslandId>{a, b});
  CHECK(order.terms.tokens == std::vector<std::uint64_t>{10});
  CHECK(order.terms.norms == std::vector<double>{1});
}

TEST_CASE("an open round that a former coordinator planned: who did not hear of it starts it anew, who has its result does not") {
  Outbox out(kStart, 2s);
  RoundRecord record;
  record.attempt = Attempt(3);
  record.members = {a, b};
  record.contributions = {{.tokens = 10}, {}};
  OpenRound round;
  round.recover(record, true, out);
  CHECK(round.recovered());
  CHECK(round.answer_of(b) == Answer::withdrawn);
  CHECK(round.accepts(a) == OpenRound::Acceptance::restarts);
  CHECK(round.accepts(IslandId("c")) == OpenRound::Acceptance::no);
  CHECK(round.exchanged(a, exchanged(Attempt(3), 5), kStart) == OpenRound::Report::counted);
  CHECK(round.accepts(a) == OpenRound::Acceptance::no);
  out.advance_to(kStart + 1min);
  CHECK(round.silent_and_due(out).empty());  // nobody is told of it again: they may have given it up
}

TEST_CASE("open rounds: who leaves is forgotten in all of them") {
  Outbox out(kStart, 2s);
  OpenRounds rounds;
  rounds.open(Round(1)).contribute(a, contribution(1), kStart);
  rounds.open(Round(1)).contribute(b, contribution(1), kStart);
  rounds.open(Round(2)).contribute(a, contribution(1), kStart);
  rounds.at(Round(1)).plan_attempt({a, b}, out);
  CHECK(rounds.any_exchanging());
  CHECK(rounds.newest_of(a) == Round(2));
  CHECK_FALSE(rounds.newest_of(IslandId("c")));
  CHECK(rounds.forget(a) == std::vector<Round>{Round(1)});
  CHECK_FALSE(rounds.newest_of(a));
  CHECK(rounds.close(Round(1)).attempt() == Attempt(1));
  CHECK(rounds.find(Round(1)) == nullptr);
  CHECK_FALSE(rounds.anybody_ready());
}

TEST_CASE("the lifecycle of a run: every transition that is allowed, and no other") {
  using enum RunState;
  const std::vector<std::pair<RunState, std::vector<RunState>>> table = {
      {queued, {starting, running, interrupted, paused, completed, failed, cancelled}},
      {starting, {queued, running, interrupted, paused, completed, failed, cancelled}},
      {running, {queued, interrupted, paused, completed, failed, cancelled}},
      {interrupted, {queued, starting, running, paused, completed, failed, cancelled}},
      {paused, {queued, interrupted, completed, failed, cancelled}},
      {completed, {}},
      {failed, {queued, interrupted}},
      {cancelled, {queued, interrupted}},
  };
  for (const auto& [from, followers] : table) {
    for (const RunState to : {queued, starting, running, interrupted, paused, completed, failed, cancelled}) {
      INFO(to_string(from) << " → " << to_string(to));
      CHECK(may_follow(from, to) == (from == to || std::ranges::find(followers, to) != followers.end()));
    }
  }
}

TEST_CASE("the lifecycle of a run: reasons stand since they changed, and are told once") {
  Lifecycle life;
  life.submit(kStart);
  life.become(RunState::queued, "waits for islands", kStart);
  CHECK_FALSE(life.tells(kStart + 1s, 2s));
  CHECK(life.tells_at(2s) == kStart + 2s);
  CHECK(life.tells(kStart + 2s, 2s));
  CHECK_FALSE(life.tells(kStart + 3s, 2s));
  life.wait("waits for islands", kStart + 4s, kStart + 9s);
  CHECK(life.reason().since == kStart);
  CHECK(life.reason().until == kStart + 9s);
  life.become(RunState::running, "trains", kStart + 5s);
  life.pause_after(Round(3));
  CHECK(life.pausing());
  life.pause("paused after round 3", kStart + 6s);
  CHECK_FALSE(life.pausing());
  CHECK(life.idle());
  CHECK_FALSE(life.over());
  life.resume(RunState::interrupted, kStart + 7s);
  life.blame(Error{Code::internal, "first"});
  life.blame(Error{Code::internal, "second"});
  CHECK(life.first_error()->why == "first");
  life.end(RunState::failed, "first", life.first_error(), kStart + 8s);
  RunRecord record;
  life.write_to(record);
  Lifecycle other;
  other.recover(record);
  CHECK(other.over());
  CHECK(other.ended() == kStart + 8s);
  CHECK(other.error()->why == "first");
}

TEST_CASE("a task: what it is continued from, and who does it, over losses") {
  Outbox out(kStart, 2s);
  Task task;
  task.plan(RunId("r-1"), TaskPlan{"experts/0", "experts", {"clustering"}}, out);
  CHECK(task.waiting());
  task.start(a, out);
  CHECK(task.running());
  task.save(Content{digest(1), 10, {}}, 100, out);
  task.copy();
  task.save(Content{digest(2), 10, {}}, 200, out);
  task.wait_again(out);
  CHECK(task.record().island.empty());
  task.settle(true, true, out);
  CHECK(task.record().checkpoint == digest(2));
  task.settle(false, true, out);
  CHECK(task.record().checkpoint == digest(1));
  CHECK(task.record().checkpoint_step == 100);
  task.settle(false, false, out);
  CHECK(task.record().checkpoint.empty());
  task.start(b, out);
  task.form_group(RunId("g-1"), out);
  task.join(a, {}, out);
  CHECK(task.has_member(a));
  task.join(IslandId("c"), {a}, out);  // in the place of one that is gone
  CHECK_FALSE(task.has_member(a));
  CHECK(task.missing_since(kStart) == kStart);
  CHECK(task.missing_since(kStart + 1s) == kStart);
  task.found();
  CHECK(task.missing_since(kStart + 2s) == kStart + 2s);
  task.dissolve_group(out);
  CHECK(task.record().group.empty());
  AssignmentReport done;
  done.result.digest = digest(9);
  task.start(a, out);
  task.finish(done, out);
  CHECK(task.done());
  CHECK(task.kept() == digest(9));
  task.lose_result(out);
  CHECK(task.waiting());
  CHECK(task.record().result.empty());
}

TEST_CASE("an assignment is told until it is answered, and reports from before it do not count") {
  Outbox out(kStart, 2s);
  IslandAssignment told;
  Assignment order;
  order.task = "router";
  CHECK(told.tell(order, {}, out));
  const std::uint64_t number = told.whole("{}").number;
  CHECK_FALSE(told.tell(order, {}, out));  // the same
  CHECK_FALSE(told.answered());
  AssignmentReport report;
  report.task = "router";
  report.number = number - 1;
  report.held = {Content{digest(1), 5, {}}};
  CHECK(told.take(report));
  CHECK_FALSE(told.counts(report));
  report.number = number;
  CHECK(told.take(report));
  CHECK(told.counts(report));
  CHECK(told.answered());
  CHECK(told.repeats(report));
  CHECK(told.keeps(digest(1)));
  order.drop = {Content{digest(1), 5, {}}};
  CHECK(told.tell(order, {}, out));
  CHECK_FALSE(told.keeps(digest(1)));
  CHECK(told.holds(digest(1)));
  report.number = number - 1;
  CHECK_FALSE(told.take(report));  // it comes late
}

TEST_CASE("what a run of phases waits for: its progress first, then what it lacks") {
  CHECK(decide_phases_wait({.working = {}, .done = 0, .tasks = 5, .members = 1, .min = 2, .lacks = {}}).text ==
        "waits for islands: 1 of at least 2");
  CHECK(decide_phases_wait({.working = {"router on a"}, .done = 2, .tasks = 5, .members = 2, .min = 2, .lacks = {}}).text ==
        "2 of 5 tasks are done; router on a");
  const Wait both =
      decide_phases_wait({.working = {"router on a"}, .done = 2, .tasks = 5, .members = 2, .min = 2, .lacks = Wait{"waits for b", kStart}});
  CHECK(both.text == "2 of 5 tasks are done; router on a; waits for b");
  CHECK(both.until == kStart);
}

}  // namespace of_coordinator_rounds_test
