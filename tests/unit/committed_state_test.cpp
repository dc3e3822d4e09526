// The outer state of a run on an island, and its checkpoints, as the agent's core knows them.
#include "agent/core/committed_state.hpp"

#include "agent/core/checkpoints.hpp"
#include "agent/core/rules/rule_settings.hpp"
#include "tests/catch.hpp"

namespace of_committed_state_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

RunTerms terms(const std::string& strategy = "diloco") {
  RunSpec spec;
  spec.name = "run";
  spec.strategy = named_strategy(strategy).value();
  spec.training.steps = 40;
  spec.rounds = 10;
  return RunTerms(RunId("r-1"), spec, compose(spec.strategy).value());
}

Digest digest(int number) {
  Digest value;
  value.bytes[0] = std::byte{static_cast<unsigned char>(number)};
  return value;
}

}  // namespace

TEST_CASE("from the seed: the trainer is asked once, and the state is held when it is agreed on") {
  const RunTerms run = terms();
  CommittedState outer(run, settings_of_rule(run).state, StartFrom::scratch, Epoch(1), 0);
  CHECK(outer.ask_initial());
  CHECK_FALSE(outer.ask_initial());
  outer.forget_asking();
  CHECK(outer.ask_initial());
  CHECK(outer.form_initial(digest(1)));
  CHECK_FALSE(outer.held());
  outer.agree(digest(1));
  CHECK(outer.is(Round(0), digest(1)));
  CHECK_FALSE(outer.initial());
  CHECK_FALSE(outer.form_initial(digest(2)));
  outer.advance(Round(1), digest(2), 12);
  CHECK(outer.counted() == 12);
  outer.advance(Round(2), digest(3), 7);
  CHECK(outer.counted() == 12);
}

TEST_CASE("from peers: the data are counted from where the copied state is, or where an island with rounds of its own was") {
  for (const std::string strategy : {"diloco", "noloco"}) {
    const RunTerms run = terms(strategy);
    CommittedState outer(run, settings_of_rule(run).state, StartFrom::peers, Epoch(1), 5);
    CatchUp order;
    order.epoch = Epoch(2);
    order.committed = Round(3);
    order.digest = digest(3);
    order.position = 30;
    CHECK(outer.needs(order));
    outer.catch_up(order);
    CHECK(outer.coming());
    CHECK_FALSE(outer.needs(order));
    order.committed = Round(4);
    CHECK(outer.needs(order));
    outer.caught_up(Round(3), digest(3), Epoch(2), 0);
    CHECK(outer.is(Round(3), digest(3)));
    CHECK(outer.since() == Epoch(2));
    CHECK(outer.counted() == (strategy == "diloco" ? 30 : 5));
    CHECK_FALSE(outer.coming());
  }
}

TEST_CASE("an island that was assigned another part while it copied the state counts that part from its own beginning") {
  const RunTerms run = terms();
  CommittedState outer(run, settings_of_rule(run).state, StartFrom::peers, Epoch(1), 1);
  CatchUp order;
  order.epoch = Epoch(6);
  order.committed = Round(1);
  order.part = 2;
  order.position = 1;
  outer.catch_up(order);
  Invite other;
  other.epoch = Epoch(7);
  other.from = StartFrom::peers;
  other.committed = Round(1);
  other.part = 5;
  other.position = 0;
  outer.assign(other, false);
  outer.caught_up(Round(1), digest(1), Epoch(7), 5);
  CHECK(outer.counted() == 0);
}

TEST_CASE("a state that was lost is said to be lost until another is assigned") {
  const RunTerms run = terms();
  CommittedState outer(run, settings_of_rule(run).state, StartFrom::scratch, Epoch(1), 0);
  outer.agree(digest(1));
  outer.lose(Epoch(2), Error{Code::unavailable, "gone"});
  CHECK_FALSE(outer.held());
  CHECK(outer.from() == StartFrom::peers);
  REQUIRE(outer.said());
  CHECK(outer.said()->error->why == "gone");
  outer.join(false);
  CHECK(outer.said());  // joining again, nobody has heard
  outer.join(true);
  CHECK_FALSE(outer.said());
}

TEST_CASE("while an island is offered one checkpoint lies ready, and older ones are no use to a joiner") {
  const RunTerms run = terms();
  Outbox out;
  Checkpoints checkpoints(run, settings_of_rule(run).copy_own_checkpoints, out);
  const TimePoint now = from_unix_ms(1'700'000'000'000);
  checkpoints.offer(Round(4), now);
  CHECK(std::get<KeepResults>(out.take().effects.front()).keep);
  checkpoints.offer(Round(5), now);  // renewed: what it needs is that of the beginning
  CHECK(out.take().effects.empty());

  CheckpointWritten written;
  written.run = run.id;
  written.round = Round(3);
  checkpoints.on(written, std::nullopt, now);
  CHECK(out.take().messages.empty());
  CHECK_FALSE(checkpoints.serves(Round(4), digest(4), false));
  checkpoints.on(written, Round(3), now);  // a pause after that round needs it
  CHECK(out.take().messages.size() == 1);
  CHECK(checkpoints.serves(Round(4), digest(4), false));
  CHECK_FALSE(checkpoints.serves(Round(4), digest(4), true));
  written.round = Round(4);
  written.digest = digest(4);
  checkpoints.on(written, std::nullopt, now);
  CHECK(checkpoints.serves(Round(4), digest(4), true));

  out.take();
  checkpoints.expire(now + 1h);
  CHECK_FALSE(std::get<KeepResults>(out.take().effects.front()).keep);
  CHECK_FALSE(checkpoints.end_offer());
}

TEST_CASE("a checkpoint is not written twice at once, and one that somebody reads is kept for a while") {
  const RunTerms run = terms();
  Outbox out;
  Checkpoints checkpoints(run, settings_of_rule(run).copy_own_checkpoints, out);
  const TimePoint now = from_unix_ms(1'700'000'000'000);
  checkpoints.keep_for_reader(Round(1), now);
  WriteCheckpoint order;
  order.run = run.id;
  order.round = Round(6);
  checkpoints.write(order, now);
  checkpoints.write(order, now);
  const std::vector<Effect> effects = out.take().effects;
  REQUIRE(effects.size() == 1);
  CHECK(std::get<WriteCheckpoint>(effects.front()).needed == std::set<Round>{Round(1)});
  CHECK(checkpoints.writing());
  checkpoints.on(CheckpointFailed{run.id, Round(6), Error{Code::io, "full"}});
  CHECK_FALSE(checkpoints.writing());
  out.take();
  checkpoints.write(order, now + 1h);
  CHECK(std::get<WriteCheckpoint>(out.take().effects.front()).needed.empty());
}

TEST_CASE("the coordinator counts the data of a state that all share, and the island those of its own") {
  Invite invite;
  invite.from = StartFrom::memory;
  invite.committed = Round(2);
  invite.digest = digest(2);
  invite.position = 20;
  for (const std::string strategy : {"diloco", "noloco"}) {
    const bool shared = strategy == "diloco";
    const RunTerms run = terms(strategy);
    CommittedState outer(run, settings_of_rule(run).state, StartFrom::scratch, Epoch(1), 0);
    outer.agree(digest(0));
    outer.assign(invite, true);
    CHECK(outer.counted() == 0);  // it has not that round's state yet
    outer.advance(Round(2), digest(2), 16);
    outer.assign(invite, true);
    CHECK(outer.counted() == (shared ? 20 : 16));
    outer.count(24);
    outer.count_own(18);
    CHECK(outer.counted() == (shared ? 24 : 18));
    CHECK(outer.suits(Round(2), digest(2)));
    CHECK(outer.suits(Round(3), digest(3)) == !shared);
    CHECK(outer.waits() == shared);
  }
}

TEST_CASE("why the state could not be taken over is said until the coordinator tries anew") {
  const RunTerms run = terms("diloco");
  CommittedState outer(run, settings_of_rule(run).state, StartFrom::peers, Epoch(1), 0, 4);
  outer.lose(Epoch(1), Error{Code::unavailable, "the trainer ended"});
  REQUIRE(outer.said());
  CHECK(outer.said()->entry == 4);
  outer.enter(4);  // the invitation, repeated
  outer.join(false);
  CHECK(outer.said());
  outer.enter(9);
  outer.join(false);
  CHECK_FALSE(outer.said());
  outer.lose(Epoch(1), Error{Code::unavailable, "the trainer ended"});
  CHECK(outer.said()->entry == 9);
}

TEST_CASE("what came of an older order to catch up is no answer to the newest") {
  const RunTerms run = terms("diloco");
  CommittedState outer(run, settings_of_rule(run).state, StartFrom::peers, Epoch(1), 0);
  CatchUp order;
  order.epoch = Epoch(2);
  order.committed = Round(6);
  CHECK(outer.catch_up(order, 3).number == 3);
  CHECK(outer.awaits(3));
  order.epoch = Epoch(3);
  REQUIRE(outer.needs(order));
  CHECK(outer.catch_up(order, 4).number == 4);
  CHECK_FALSE(outer.awaits(3));  // the engine is to do it once more: what it was given meanwhile would be dropped
  CHECK(outer.awaits(4));
  outer.caught_up(Round(6), digest(6), Epoch(3), 0);
  CHECK_FALSE(outer.awaits(4));
}

}  // namespace of_committed_state_test
