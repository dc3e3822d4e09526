// The agent's core by itself: who may read from the island, and when.
#include <algorithm>

#include "agent/core/core.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  agent::Core core{agent::Identity{IslandId("i-a"), "a", "test", 1, "tcp://h:1", "", {}}, agent::Settings{}, {}, now};
  std::vector<Effect> effects;
  std::vector<Message> messages;

  void feed(const Event& event) {
    core.step(now, event);
    take();
  }
  void say(const Message& message) { feed(FromCoordinator{message}); }
  void take() {
    agent::Ready ready = core.take_ready();
    effects = std::move(ready.effects);
    messages = std::move(ready.messages);
  }
  template <typename E>
  [[nodiscard]] std::optional<E> newest() const {
    for (auto effect = effects.rbegin(); effect != effects.rend(); ++effect) {
      if (const auto* found = std::get_if<E>(&*effect)) {
        return *found;
      }
    }
    return std::nullopt;
  }
};

RunSpec spec() {
  RunSpec spec;
  spec.name = "run";
  spec.strategy.inner_steps = 4;
  spec.training.steps = 40;
  spec.rounds = 10;
  return spec;
}

}  // namespace

TEST_CASE("a reader is let in when the coordinator says so, and shut out when it takes that back") {
  Bench bench;
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  Invite invite;
  invite.run = RunId("r-1");
  invite.spec = to_json(spec());
  invite.epoch = Epoch(1);
  bench.say(invite);
  bench.say(Serve{RunId("r-1"), "key-of-b", Round(0), true});
  bench.say(Serve{RunId("r-1"), "key-of-c", Round(0), true});
  REQUIRE(bench.newest<AllowPeers>());
  CHECK(bench.newest<AllowPeers>()->readers == std::vector<std::string>{"key-of-b", "key-of-c"});
  bench.say(Serve{RunId("r-1"), "key-of-b", Round(0), false});
  REQUIRE(bench.newest<AllowPeers>());
  CHECK(bench.newest<AllowPeers>()->readers == std::vector<std::string>{"key-of-c"});
}

TEST_CASE("asked to leave without a run it goes at once, in a run it says so until it is released, or its time is up") {
  Bench free;
  free.feed(agent::LinkUp{});
  free.say(Welcome{});
  free.say(Drain{"drained by an operator"});
  CHECK(free.newest<agent::Exit>());

  Bench bench;
  bench.feed(agent::LinkUp{});
  bench.say(Welcome{});
  Invite invite;
  invite.run = RunId("r-1");
  invite.spec = to_json(spec());
  invite.epoch = Epoch(1);
  bench.say(invite);
  bench.say(Drain{"drained by an operator"});
  CHECK_FALSE(bench.newest<agent::Exit>());
  CHECK(std::any_of(bench.messages.begin(), bench.messages.end(), [](const Message& m) { return std::holds_alternative<Leave>(m); }));
  bench.now += 61s;
  bench.core.tick(bench.now);
  bench.take();
  CHECK(bench.newest<agent::Exit>());
}
