// The coordinator's core and islands that come to a run under way: attempts that fail, and orders that are renewed; and what their steps
// tell of a grace that was stated.
#include <algorithm>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/coordinator_core_bench.hpp"

namespace of_coordinator_joiners_test {

using namespace atl_test;

TEST_CASE("why an island could not take over the state ends the attempt that it was said of, and no later one") {
  Bench bench;
  bench.join("a");
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(1, 2, 100), "", "").has_value());
  const auto run_state = [&] { return bench.core.run(bench.now, bench.run)->state; };
  for (int i = 0; i < 100 && run_state() == RunState::queued; ++i) {  // a second island might come
    bench.now += 1s;
    bench.core.step(bench.now, IslandId("a"), 1, Heartbeat{1, {}});
    bench.core.tick(bench.now);
  }
  const auto epoch = [&] { return bench.core.run(bench.now, bench.run)->epoch; };
  atl::Ready ready;
  ready.run = bench.run;
  ready.epoch = epoch();
  bench.core.step(bench.now, IslandId("a"), 1, ready);
  bench.core.step(bench.now, IslandId("a"), 1, Checkpointed{bench.run, Round(0), Digest{}, digest(7), 1, {}});
  REQUIRE(run_state() == RunState::running);
  bench.join("b");
  const auto state = [&] {
    const std::vector<MembershipView> memberships = bench.core.run(bench.now, bench.run)->memberships;
    return std::ranges::find(memberships, IslandId("b"), &MembershipView::island)->state;
  };
  const auto say = [&](std::uint64_t entry) {
    const Error error{Code::unavailable, "the trainer ended"};
    bench.core.step(bench.now, IslandId("b"), 1, CaughtUp{bench.run, epoch(), Round(0), Digest{}, error, entry});
  };
  IslandReport report;
  report.run = bench.run;
  const auto invited = [&] {
    for (int i = 0; i < 200; ++i) {
      bench.take();
      if (const std::vector<Invite> invites = bench.sent<Invite>("b"); !invites.empty()) {
        return invites.back().entry;
      }
      bench.now += 1s;
      for (const char* name : {"a", "b"}) {
        bench.core.step(bench.now, IslandId(name), 1, Heartbeat{1, {report}});
      }
      bench.core.tick(bench.now);
    }
    return std::uint64_t(0);
  };
  const std::uint64_t first = invited();
  REQUIRE(first != 0);
  say(first);
  CHECK(state() == MembershipState::absent);
  const std::uint64_t second = invited();
  REQUIRE(second > first);
  say(first);  // again, before it has heard of the second
  CHECK(state() == MembershipState::joining);
  say(second);
  CHECK(state() == MembershipState::absent);
  REQUIRE(invited() > second);
  say(0);  // an agent that does not know of entries
  CHECK(state() == MembershipState::absent);
}

TEST_CASE("the sources of a joiner are told where it can be dialled, and its new address once it has another") {
  Bench bench;
  bench.join("a");
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(1, 2, 100), "", "").has_value());
  IslandReport report;
  report.run = bench.run;
  const auto pass = [&](std::uint64_t instance_of_b) {
    bench.now += 1s;
    bench.core.step(bench.now, IslandId("a"), 1, Heartbeat{1, {report}});
    if (instance_of_b > 0) {
      bench.core.step(bench.now, IslandId("b"), instance_of_b, Heartbeat{instance_of_b, {report}});
    }
    bench.core.tick(bench.now);
  };
  for (int i = 0; i < 100 && bench.core.run(bench.now, bench.run)->state == RunState::queued; ++i) {
    pass(0);
  }
  atl::Ready ready;
  ready.run = bench.run;
  ready.epoch = bench.core.run(bench.now, bench.run)->epoch;
  bench.core.step(bench.now, IslandId("a"), 1, ready);
  bench.core.admit(bench.now, IslandId("b"), "b", "key-b");
  bench.take();
  const auto told = [&](std::uint64_t boot, const std::string& address) {
    Hello hello;
    hello.name = "b";
    hello.boot = boot;
    hello.bulk_address = address;
    bench.core.step(bench.now, IslandId("b"), boot, hello);
    for (int i = 0; i < 60; ++i) {
      pass(boot);
      bench.core.step(bench.now, IslandId("a"), 1, Checkpointed{bench.run, Round(0), Digest{}, digest(7), 1, {}});
      bench.take();
      for (const Serve& serve : bench.sent<Serve>("a")) {
        if (serve.reader_key == "key-b" && serve.reader_address == address) {
          return true;
        }
      }
    }
    return false;
  };
  CHECK(told(1, "tcp://10.0.0.5:7701"));
  CHECK(told(2, "tcp://10.0.0.6:7701"));
}

TEST_CASE("whose trainer has another model than the run is told so once, asked three times, and then out until its agent is started anew") {
  Bench bench;
  bench.join("a");
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(1, 2, 100), "", "").has_value());
  const auto view = [&] { return *bench.core.run(bench.now, bench.run); };
  IslandReport report;
  report.run = bench.run;
  const auto pass = [&](std::uint64_t instance_of_b) {
    bench.now += 1s;
    bench.core.step(bench.now, IslandId("a"), 1, Heartbeat{1, {report}});
    if (instance_of_b > 0) {
      bench.core.step(bench.now, IslandId("b"), instance_of_b, Heartbeat{1, {report}});
    }
    bench.core.tick(bench.now);
  };
  for (int i = 0; i < 100 && view().state == RunState::queued; ++i) {  // a second island might come
    pass(0);
  }
  atl::Ready ready;
  ready.run = bench.run;
  ready.epoch = view().epoch;
  bench.core.step(bench.now, IslandId("a"), 1, ready);
  bench.core.step(bench.now, IslandId("a"), 1, Checkpointed{bench.run, Round(0), Digest{}, digest(7), 1, {}});
  REQUIRE(view().state == RunState::running);
  bench.join("b");
  const auto membership = [&] {
    const std::vector<MembershipView> memberships = view().memberships;
    return *std::ranges::find(memberships, IslandId("b"), &MembershipView::island);
  };
  const auto invited = [&](std::uint64_t instance) {
    for (int i = 0; i < 60; ++i) {
      bench.take();
      if (const std::vector<Invite> invites = bench.sent<Invite>("b", instance); !invites.empty()) {
        return invites.back().entry;
      }
      pass(instance);
    }
    return std::uint64_t(0);
  };
  const Error other{Code::invalid_argument, "the parameters are not those of run r: another model"};
  const Error between{Code::unauthorized, "no source is left"};  // does not make it another model's the less
  for (const Error& error : {other, between, other, other}) {
    const std::uint64_t entry = invited(1);
    REQUIRE(entry != 0);
    bench.core.step(bench.now, IslandId("b"), 1, CaughtUp{bench.run, view().epoch, Round(0), Digest{}, error, entry});
  }
  bench.take();
  CHECK(bench.told("catch_up_failed") == 2);
  CHECK(bench.told("island_failed") == 1);
  CHECK(membership().state == MembershipState::refused);
  CHECK(membership().reason.text.find(other.why) != std::string::npos);
  CHECK(invited(1) == 0);
  CHECK(view().state == RunState::running);  // one island is enough for it
  // With a new agent, whose trainer may be another, it is asked again.
  bench.hello("b", 2);
  for (int i = 0; i < 5; ++i) {  // the first is silent
    pass(0);
  }
  CHECK(invited(2) != 0);
}

TEST_CASE("a joiner that comes to its round when hundreds have followed is told of a newer one") {
  Bench bench;
  bench.join("a");
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(1, 2, 10'000), "", "").has_value());
  const auto from = [&](const char* name, auto message) { bench.core.step(bench.now, IslandId(name), 1, message); };
  IslandReport report;
  report.run = bench.run;
  std::vector<CatchUp> orders;
  const auto pass = [&](bool joiner) {
    bench.now += milliseconds(100);
    from("a", Heartbeat{1, {report}});
    if (joiner) {
      from("b", Heartbeat{1, {report}});
    }
    bench.core.tick(bench.now);
    bench.take();
    for (const CatchUp& order : bench.sent<CatchUp>("b")) {
      orders.push_back(order);
    }
  };
  for (int i = 0; i < 1000 && bench.core.run(bench.now, bench.run)->state == RunState::queued; ++i) {  // a second island might come
    pass(false);
  }
  atl::Ready ready;
  ready.run = bench.run;
  ready.epoch = bench.core.run(bench.now, bench.run)->epoch;
  ready.digest = digest(0);
  ready.facts.tokens = 100;
  from("a", ready);
  from("a", Checkpointed{bench.run, Round(0), digest(0), digest(7), 1, {}});
  const auto train = [&](std::uint64_t first, std::uint64_t last, bool joiner) {
    for (std::uint64_t round = first; round <= last; ++round) {
      ready.epoch = bench.core.run(bench.now, bench.run)->epoch;
      ready.round = Round(round);
      ready.digest = digest(round - 1);
      from("a", ready);
      from("a", Exchanged{bench.run, ready.epoch, Round(round), Attempt(1), digest(round), 0, 0, 0});
      from("a", Merged{bench.run, Round(round), Step(round * 10), 0, 0, 0});
      if (round % 10 == 0) {
        from("a", Checkpointed{bench.run, Round(round), digest(round), digest(7), 1, {}});
      }
      pass(joiner);
      REQUIRE(bench.core.run(bench.now, bench.run)->committed == Round(round));
    }
  };
  train(1, 5, false);
  bench.join("b");
  for (int i = 0; i < 100 && orders.empty(); ++i) {
    from("a", Checkpointed{bench.run, Round(0), digest(0), digest(7), 1, {}});
    pass(true);
  }
  REQUIRE_FALSE(orders.empty());
  const CatchUp first = orders.back();
  train(first.committed.value + 1, first.committed.value + 300, true);
  orders.clear();
  from("b", CaughtUp{bench.run, first.epoch, first.committed, first.digest, {}, 0});
  for (int i = 0; i < 20; ++i) {
    pass(true);
  }
  REQUIRE_FALSE(orders.empty());
  CHECK(orders.back().committed.value == first.committed.value + 300);
}

TEST_CASE("a stated grace that is longer than the overlap hides is told once, with the numbers, when the islands' steps are known") {
  for (const bool too_long : {true, false}) {
    Bench bench;
    bench.join("a");
    bench.join("b");
    RunSpec spec = spec_for(1, 2, 100);
    spec.strategy = named_strategy("decoupled-diloco").value();
    spec.strategy.quorum = 1;
    spec.strategy.overlap_steps = 2;
    spec.strategy.grace = too_long ? "5s" : "1s";
    spec.training.batch = 10;
    spec.training.sequence_length = 100;
    REQUIRE(bench.core.submit(bench.now, bench.run, spec, "", "").has_value());
    IslandReport report;
    report.run = bench.run;
    for (int i = 0; i < 20; ++i) {
      bench.now += 1s;
      report.tokens_per_second = i < 10 ? 0 : 1000;  // a second a step
      bench.core.step(bench.now, IslandId("a"), 1, Heartbeat{1, {report}});
      report.tokens_per_second /= 2;
      bench.core.step(bench.now, IslandId("b"), 1, Heartbeat{1, {report}});
      bench.core.tick(bench.now);
      bench.take();
      for (const char* name : {"a", "b"}) {
        for (const Invite& invite : bench.sent<Invite>(name)) {
          atl::Ready ready;
          ready.run = bench.run;
          ready.epoch = invite.epoch;
          bench.core.step(bench.now, IslandId(name), 1, ready);
        }
      }
    }
    CHECK(bench.told("grace_too_long") == (too_long ? 1 : 0));
  }
}

}  // namespace of_coordinator_joiners_test
