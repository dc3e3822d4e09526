// The machines that the coordinator's core is made of, each by itself: islands, guards, parts of the data, the lineage.
#include <algorithm>
#include <cstring>

#include "coordinator/core/data_parts.hpp"
#include "coordinator/core/guards.hpp"
#include "coordinator/core/islands.hpp"
#include "coordinator/core/lineage.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_machines_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

const TimePoint kStart = from_unix_ms(1'700'000'000'000);

Digest digest(std::uint64_t value) {
  Digest d;
  std::memcpy(d.bytes.data(), &value, sizeof value);
  return d;
}

Hello hello(std::uint64_t boot) {
  Hello message;
  message.boot = boot;
  message.version = "1";
  return message;
}

template <typename M>
std::size_t count(const coordinator::Ready& ready) {
  return static_cast<std::size_t>(
      std::ranges::count_if(ready.messages, [](const Outgoing& out) { return std::holds_alternative<M>(out.message); }));
}

}  // namespace

TEST_CASE("islands: a second instance takes the place of one that says nothing, and not of one that speaks") {
  Outbox out(kStart, 2s);
  Islands islands(Settings{});
  const IslandId a("a");
  islands.admit(a, "anna", "key", out);
  REQUIRE(islands.greet(a, 1, hello(1), out).has_value());
  CHECK(islands.alive(a));
  CHECK_FALSE(islands.greet(a, 1, hello(1), out));  // said again: nothing new
  CHECK_FALSE(islands.greet(a, 2, hello(2), out));  // the first is asked
  CHECK_FALSE(islands.successor(*islands.find(a), out));
  REQUIRE(out.wake() == kStart + 2s);
  SECTION("it speaks") {
    out.advance_to(kStart + 1s);
    CHECK(islands.hears(a, 1, Heartbeat{1, {}}, out));
    out.advance_to(kStart + 3s);
    CHECK_FALSE(islands.successor(*islands.find(a), out));
    CHECK(count<Refused>(out.take()) == 1);
  }
  SECTION("it is silent") {
    out.advance_to(kStart + 2s);
    const std::optional<Probe> successor = islands.successor(*islands.find(a), out);
    REQUIRE(successor);
    islands.lost(a);
    const std::optional<Arrival> arrival = islands.succeed(a, *successor, out);
    REQUIRE(arrival);
    CHECK(arrival->new_boot);
    CHECK(islands.at(a).boot == 2);
    (void)out.take();
    CHECK_FALSE(islands.hears(a, 1, Heartbeat{1, {}}, out));  // the old one is not heard any more, and told so
    const atl::coordinator::Ready told = out.take();
    REQUIRE(told.messages.size() == 1);
    CHECK(told.messages[0].boot == 1);
    REQUIRE(std::holds_alternative<Refused>(told.messages[0].message));
    CHECK(std::get<Refused>(told.messages[0].message).error.code == Code::conflict);
    CHECK(std::get<Refused>(told.messages[0].message).error.why.find("took this one's place while it was silent") != std::string::npos);
    CHECK(islands.hears(a, 2, Heartbeat{2, {}}, out));
    CHECK_FALSE(islands.hears(a, 3, Heartbeat{3, {}}, out));  // nobody knows whose this is
    CHECK(out.take().messages.empty());
  }
}

TEST_CASE("islands: silence, drain and leaving") {
  Outbox out(kStart, 2s);
  Islands islands(Settings{});
  const IslandId a("a");
  CHECK(islands.drain(a, "sleep", out).error().code == Code::not_found);
  islands.admit(a, "anna", "key", out);
  CHECK(islands.drain(a, "sleep", out).error().code == Code::conflict);
  REQUIRE(islands.greet(a, 1, hello(1), out));
  REQUIRE(islands.drain(a, "sleep", out).ok());
  REQUIRE(islands.drain(a, "sleep", out).ok());
  CHECK(count<Drain>(out.take()) == 1);
  CHECK(islands.stays(a));
  islands.leave(a, Leave{"sleep", true}, out);
  CHECK_FALSE(islands.stays(a));
  CHECK(islands.at(a).departure.contributes);
  islands.contributed(a);
  CHECK_FALSE(islands.at(a).departure.contributes);
  out.advance_to(kStart + 5s);
  CHECK_FALSE(islands.silence(*islands.find(a), out));
  out.advance_to(kStart + 5s + 1ms);
  CHECK(islands.silence(*islands.find(a), out).has_value());
  islands.lost(a);
  CHECK_FALSE(islands.alive(a));
  islands.revoke(a);
  CHECK(islands.find(a) == nullptr);
  CHECK(islands.name_of(a) == "anna");
}

TEST_CASE("islands: what is held of a run follows what is told of it") {
  Outbox out(kStart, 2s);
  Islands islands(Settings{});
  const IslandId a("a");
  const RunId run("r-1");
  CHECK_FALSE(islands.held(a, run).live);  // nobody is there
  islands.admit(a, "anna", "key", out);
  islands.live(a, run, HeldCheckpoint{Round(3), digest(3)});
  CHECK(islands.held(a, run).committed == Round(3));
  for (std::uint64_t round = 1; round <= 20; ++round) {
    islands.keeps(a, run, HeldCheckpoint{Round(round), digest(round)});
  }
  islands.keeps(a, run, HeldCheckpoint{Round(20), digest(21)});  // written anew
  REQUIRE(islands.held(a, run).checkpoints.size() == 16);
  CHECK(islands.held(a, run).checkpoints.back() == HeldCheckpoint{Round(20), digest(21)});
  islands.keeps_not(a, run, Round(20));
  CHECK(islands.held(a, run).checkpoints.back().round == Round(19));
  islands.not_live(a, run);
  CHECK_FALSE(islands.held(a, run).live);
}

TEST_CASE("guards: enough offences are a quarantine, ten good rounds in a row are forgiveness, and an operator pardons") {
  Guards guards;
  guards.set(10, 2);
  const IslandId a("a");
  CHECK_FALSE(guards.offend(a, "one"));
  for (int round = 0; round < 9; ++round) {
    CHECK_FALSE(guards.accepted(a, true));
  }
  CHECK_FALSE(guards.accepted(a, false));  // not while it takes no part
  CHECK(guards.accepted(a, true));
  CHECK(guards.offences(a) == 0);
  CHECK_FALSE(guards.offend(a, "two"));
  const std::optional<std::string> cause = guards.offend(a, "three");
  REQUIRE(cause);
  CHECK(*cause == "quarantined after 2 rejections, the last one: three");
  CHECK(guards.quarantined(a));
  CHECK(guards.pardon(a));
  CHECK_FALSE(guards.pardon(a));
  CHECK_FALSE(guards.quarantined(a));
  guards.set(10, 0);
  for (int offence = 0; offence < 5; ++offence) {
    CHECK_FALSE(guards.offend(a, "never"));
  }
}

TEST_CASE("parts of the data: whose they are, how far they are, and what does not count") {
  Outbox out(kStart, 2s);
  DataParts data;
  data.belong_to(RunId("r-1"), 64, 10);
  CHECK(data.part_of(IslandId("a"), std::nullopt, out) == 0);
  CHECK(data.part_of(IslandId("b"), 0, out) == 1);  // that is another's
  CHECK(data.part_of(IslandId("b"), std::nullopt, out) == 1);
  CHECK(data.part_of(IslandId("c"), 7, out) == 7);
  CHECK(data.count() == 8);
  CHECK_FALSE(data.begun());
  data.count_in(DataRange{0, 0, 40}, 100, out);
  CHECK(data.begun());
  CHECK(data.stale(0, DataRange{0, 40, 50}).empty());
  CHECK_FALSE(data.stale(0, DataRange{0, 39, 50}).empty());  // counted already
  CHECK_FALSE(data.stale(1, DataRange{0, 40, 50}).empty());  // another's part
  CHECK(data.stale(1, DataRange{}).empty());
  const std::vector<DataRange> then = data.snapshot();
  data.count_in(DataRange{0, 40, 70}, 0, out);
  data.count_in(DataRange{1, 0, 10}, 0, out);
  CHECK(data.position(0, &then) == 40);
  CHECK(data.position(1, &then) == 0);
  CHECK(data.position(0, nullptr) == 70);
  RoundRecord last;
  last.round = Round(2);
  last.contributions = {{.data = {0, 40, 70}}, {.data = {1, 0, 10}}};
  CHECK(data.history({{Round(2), &last}}, Round(2)).at(Round(2)) == std::vector<DataRange>{{0, 0, 70}, {1, 0, 10}, {7, 0, 0}});
  data.return_to(then, out);
  CHECK(data.position(0) == 40);
  CHECK(data.position(1) == 0);
}

TEST_CASE("the lineage: what is committed, from what a run can go on, and what is lost") {
  Lineage lineage;
  CHECK_FALSE(lineage.initialised());
  lineage.commit(Committed{Round(0), Attempt(0), digest(100), true, {IslandId("a")}});
  CHECK(lineage.initialised());
  for (std::uint64_t round = 1; round <= 100; ++round) {
    lineage.commit(Committed{Round(round), Attempt(1), digest(100 + round), round % 10 == 0, {IslandId("a")}, {}, {{0, 0, round}}});
  }
  CHECK(lineage.next() == Round(101));
  CHECK(lineage.confirms(Round(99), digest(199)));
  CHECK_FALSE(lineage.confirms(Round(99), digest(198)));
  CHECK(lineage.confirms(Round(10), digest(110)));  // a checkpoint's
  CHECK_FALSE(lineage.digest_of(Round(11)));        // long past
  CHECK(lineage.on_history(digest(190)));
  CHECK(lineage.recent(Round(90)) != nullptr);
  CHECK(lineage.recent(Round(80)) == nullptr);
  CHECK(lineage.parts_after(Round(100)) == nullptr);  // the newest: as the data are now
  HeldRun held;
  held.live = true;
  held.committed = Round(99);
  held.digest = digest(199);
  CHECK(lineage.verified(IslandId("a"), held));  // it took part in round 100 and has its result
  CHECK_FALSE(lineage.verified(IslandId("b"), held));
  const std::vector<IslandId> members = {IslandId("a"), IslandId("b"), IslandId("c")};
  CHECK(lineage.tell_file(Round(90), IslandId("a"), digest(1)));
  CHECK(lineage.other_files(Round(90), members).islands.empty());
  CHECK(lineage.tell_file(Round(90), IslandId("b"), digest(2)));
  CHECK_FALSE(lineage.tell_file(Round(90), IslandId("b"), digest(2)));
  CHECK(lineage.other_files(Round(90), members).islands == std::vector{IslandId("b")});
  CHECK_FALSE(lineage.other_files(Round(90), members).known);  // one word against another
  CHECK(lineage.tell_file(Round(90), IslandId("c"), digest(2)));
  CHECK(lineage.other_files(Round(90), members).islands == std::vector{IslandId("a")});
  CHECK(lineage.other_files(Round(90), members).known);
  CHECK(lineage.roll_back(Round(90)) == std::vector<DataRange>{{0, 0, 90}});
  CHECK(lineage.committed() == Round(90));
  CHECK(lineage.digest() == digest(190));
  CHECK(lineage.number() == 1);
  CHECK_FALSE(lineage.digest_of(Round(91)));
  lineage.adopt(KnownRound{Round(95), digest(7)}, {});
  CHECK(lineage.number() == 2);
  CHECK(lineage.confirms(Round(95), digest(7)));
  RunRecord record;
  lineage.write_to(record);
  Lineage other;
  other.recover(record);
  CHECK(other.committed() == Round(95));
  lineage.start_over();
  CHECK(lineage.number() == 3);
  CHECK_FALSE(lineage.initialised());
  CHECK(lineage.committed() == Round(0));
}

TEST_CASE("lineage: a checkpoint of rounds that were lost tells of no newer ledger, and one of which the epoch is not known may") {
  RunRecord record;
  record.epoch = Epoch(11);
  record.lineage = 1;
  Lineage lineage;
  lineage.recover(record);
  CHECK(lineage.lost_before(HeldCheckpoint{Round(14), digest(14), Epoch(5)}));
  CHECK_FALSE(lineage.lost_before(HeldCheckpoint{Round(14), digest(14), Epoch(11)}));
  CHECK_FALSE(lineage.lost_before(HeldCheckpoint{Round(14), digest(14), Epoch(0)}));
  lineage.start_over();
  CHECK(lineage.lost_before(HeldCheckpoint{Round(14), digest(14), Epoch(5)}));
  // Of a run that has lost nothing every checkpoint is of its history.
  record.lineage = 0;
  Lineage first;
  first.recover(record);
  CHECK_FALSE(first.lost_before(HeldCheckpoint{Round(14), digest(14), Epoch(5)}));
}

}  // namespace of_coordinator_machines_test
