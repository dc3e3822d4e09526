// The agent's link to the coordinator: when it speaks, and what it keeps until it is welcome.
#include "agent/core/session.hpp"

#include "tests/catch.hpp"

namespace of_session_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Settings settings;
  Outbox out;
  Session session{Identity{IslandId("i-a"), "a", "test", 7, "tcp://h:1", "", {}}, settings, now, out};
};

}  // namespace

TEST_CASE("a session says hello until it is welcome, and then keeps the coordinator's times") {
  Bench bench;
  CHECK(bench.session.hello_due(bench.now));
  bench.session.say_hello(bench.now, {});
  CHECK_FALSE(bench.session.hello_due(bench.now));
  CHECK(bench.session.next_deadline() == bench.now + bench.settings.hello_again);
  CHECK(bench.session.hello_due(bench.now + bench.settings.hello_again));
  CHECK_FALSE(bench.session.heartbeat_due(bench.now + 1h));

  Welcome welcome;
  welcome.heartbeat_ms = 5000;
  welcome.stall_ms = 1;
  CHECK(bench.session.welcome(welcome));
  CHECK_FALSE(bench.session.welcome(welcome));
  CHECK(bench.session.stall_after() == 1s);  // never so short that a usual pause is a failure
  bench.session.note_resend(bench.now);
  bench.session.beat(bench.now, {});
  CHECK_FALSE(bench.session.heartbeat_due(bench.now + 4999ms));
  CHECK(bench.session.heartbeat_due(bench.now + 5s));
  CHECK(bench.session.resend_due(bench.now + bench.settings.resend));

  bench.session.lose(bench.now);
  CHECK_FALSE(bench.session.welcomed());
  CHECK_FALSE(bench.session.hello_due(bench.now));
  CHECK(bench.session.hello_due(bench.now + bench.settings.hello_again));
}

TEST_CASE("events for people wait for the welcome, the newest few, and are said in their order") {
  Bench bench;
  for (int i = 0; i < 70; ++i) {
    bench.out.tell(RunId("r-1"), "info", "kind", std::to_string(i));
  }
  const agent::Ready kept = bench.out.take();
  CHECK(kept.messages.empty());
  CHECK(kept.effects.size() == 70);  // the agent's own log has all of them at once
  REQUIRE(std::holds_alternative<agent::Notice>(kept.effects.front()));
  CHECK(std::get<agent::Notice>(kept.effects.front()).text == "run r-1: 0");
  CHECK(std::get<agent::Notice>(kept.effects.front()).level == "info");
  CHECK(bench.session.welcome(Welcome{}));
  const std::vector<Message> said = bench.out.take().messages;
  REQUIRE(said.size() == 64);
  CHECK(std::get<IslandEvent>(said.front()).text == "6");
  CHECK(std::get<IslandEvent>(said.back()).text == "69");
  bench.out.tell(RunId("r-1"), "info", "kind", "at once");
  CHECK(bench.out.take().messages.size() == 1);
}

}  // namespace of_session_test
