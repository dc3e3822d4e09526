// Who is in a run, as an island was told: what is announced to the bulk link, and when.
#include "agent/core/membership.hpp"

#include "tests/catch.hpp"

namespace of_membership_test {

namespace {

using namespace atl;
using namespace atl::agent;

Member member(const std::string& island) { return Member{IslandId(island), island, "key-of-" + island, "tcp://" + island}; }

Invite invite() {
  Invite message;
  message.run = RunId("r-1");
  message.epoch = Epoch(1);
  message.members = {member("a"), member("b")};
  message.part = 2;
  message.share = DataShare{64, {{0, {{1, 0}}}, {50, {{2, 3}}}}, 0, 2};
  return message;
}

}  // namespace

TEST_CASE("a membership is announced when it changes, and not when it is told again") {
  Outbox out;
  Membership members(invite(), out);
  CHECK_FALSE(members.use(Epoch(1), invite().members, {}));
  CHECK(out.take().empty());
  CHECK(members.use(Epoch(2), {member("b")}, {}));
  CHECK_FALSE(members.use(Epoch(2), {member("b")}, {}));
  CHECK(members.epoch() == Epoch(2));
  CHECK_FALSE(members.includes(IslandId("a")));
  CHECK(members.islands() == std::vector<IslandId>{IslandId("b")});
  const std::vector<Effect> effects = out.take().effects;
  REQUIRE(effects.size() == 1);
  CHECK(std::get<AllowPeers>(effects.front()).epoch == Epoch(2));
  CHECK(members.lists(Epoch(2)));
  CHECK(members.advance(Epoch(3)));  // as a commit says it, before the members are told
  CHECK(members.epoch() == Epoch(3));
  CHECK_FALSE(members.lists(Epoch(3)));
  CHECK_FALSE(members.advance(Epoch(3)));
  CHECK(members.islands() == std::vector<IslandId>{IslandId("b")});
  CHECK_FALSE(members.use(Epoch(3), {member("b")}, {}));
  CHECK(members.lists(Epoch(3)));
}

TEST_CASE("readers are announced with the members, and forgotten when the offer ends") {
  Outbox out;
  Membership members(invite(), out);
  members.heed(Serve{RunId("r-1"), "key", Round(1), true, "tcp://10.0.0.5:7701"});
  CHECK(std::get<AllowPeers>(out.take().effects.front()).readers == std::vector<agent::Reader>{{"key", "tcp://10.0.0.5:7701"}});
  members.use(Epoch(2), invite().members, {});
  CHECK(std::get<AllowPeers>(out.take().effects.front()).readers == std::vector<agent::Reader>{{"key", "tcp://10.0.0.5:7701"}});
  members.forget_readers();
  CHECK(std::get<AllowPeers>(out.take().effects.front()).readers.empty());
  for (int i = 0; i < 70; ++i) {
    members.heed(Serve{RunId("r-1"), std::to_string(i), Round(1), true});
  }
  CHECK(std::get<AllowPeers>(out.take().effects.back()).readers.size() == 64);
}

TEST_CASE("an island has one part of the data, and hears when that is another") {
  Outbox out;
  Membership members(invite(), out);
  CHECK(members.part() == 2);
  CHECK_FALSE(members.take_part(2));
  CHECK(members.take_part(0));
  CHECK(members.part() == 0);
}

TEST_CASE("a share that is told anew keeps what was known of positions before it") {
  Outbox out;
  Membership members(invite(), out);
  members.deal(DataShare{64, {{60, {{3, 0}}}}, 1, 3});
  CHECK(members.share() == DataShare{64, {{0, {{1, 0}}}, {50, {{2, 3}}}, {60, {{3, 0}}}}, 1, 3});
  members.deal(DataShare{64, {{40, {{4, 0}}}}, 0, 1});  // what came from there on does not hold any more
  CHECK(members.share() == DataShare{64, {{0, {{1, 0}}}, {40, {{4, 0}}}}, 0, 1});
  for (std::uint64_t from = 41; from < 200; ++from) {
    members.deal(DataShare{64, {{from, {{5, 0}}}}, 0, 1});
  }
  CHECK(members.share().stretches.size() == 64);
  CHECK(members.share().stretches.back().from == 199);
}

}  // namespace of_membership_test
