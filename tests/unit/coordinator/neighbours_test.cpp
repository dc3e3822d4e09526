// Islands that are connected try the paths between them before they share a run: who is told of whom, and what follows from what they say.
#include <algorithm>
#include <tuple>

#include "coordinator/core/core.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/catch.hpp"

namespace of_coordinator_neighbours_test {

namespace {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  Core core{Settings{}, Recovered{}, now};
  coordinator::Ready last;

  void join(const std::string& name, std::uint64_t boot = 1) { join_at(name, "tcp://" + name + ":4401", boot); }
  void join_at(const std::string& name, const std::string& address, std::uint64_t boot = 1) {
    core.admit(now, IslandId(name), name, "key-" + name);
    Hello message;
    message.name = name;
    message.boot = boot;
    message.bulk_address = address;
    say(name, message, boot);
  }
  void say(const std::string& name, const Message& message, std::uint64_t boot = 1) {
    core.step(now, IslandId(name), boot, message);
    last = core.take_ready();
  }
  // Whom the island was told of in the last step; nothing: of nobody new.
  std::optional<std::vector<std::string>> told(const std::string& island) {
    std::optional<std::vector<std::string>> names;
    for (const Outgoing& out : last.messages) {
      if (const auto* neighbours = std::get_if<Neighbours>(&out.message); neighbours != nullptr && out.island == IslandId(island)) {
        names.emplace();
        for (const Member& member : neighbours->islands) {
          names->push_back(member.name + " at " + member.bulk_address);
        }
      }
    }
    return names;
  }
  std::vector<PathView> paths_to(const std::string& island) {
    const std::vector<IslandView> views = core.islands(now);
    return std::ranges::find(views, island, &IslandView::name)->paths;
  }
};

RunSpec spec_for_two() {
  RunSpec spec;
  spec.name = "run";
  spec.islands.min = 2;
  spec.islands.max = 2;
  spec.strategy.inner_steps = 10;
  spec.training.steps = 100;
  spec.rounds = 10;
  return spec;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("neighbours: the address that the coordinator sees is one more at which an island may be reached") {
  Bench bench;
  bench.join("a");
  const auto seen = [&](const std::string& host, const std::string& said) {
    bench.core.admit(bench.now, IslandId("b"), "b", "key-b");
    bench.core.see(IslandId("b"), host);
    bench.join_at("b", said);
    const auto told = bench.told("a");
    bench.core.revoke(bench.now, IslandId("b"), "enough");
    bench.last = bench.core.take_ready();
    return told.value().at(0);
  };
  CHECK(seen("203.0.113.2", "tcp://192.168.1.2:4401") == "b at tcp://192.168.1.2:4401 tcp://203.0.113.2:4401");
  CHECK(seen("2001:db8::2", "tcp://192.168.1.2:4401") == "b at tcp://192.168.1.2:4401 tcp://[2001:db8::2]:4401");
  CHECK(seen("192.168.1.2", "tcp://192.168.1.2:4401") == "b at tcp://192.168.1.2:4401");
  CHECK(seen("192.168.1.2", "tcp://b:7000 tcp://192.168.1.2:4401") == "b at tcp://b:7000 tcp://192.168.1.2:4401");
  CHECK(seen("127.0.0.1", "tcp://192.168.1.2:4401") == "b at tcp://192.168.1.2:4401");
  CHECK(seen("203.0.113.2", "tcp://127.0.0.1:4401") == "b at tcp://127.0.0.1:4401");
  CHECK(seen("not a host", "tcp://192.168.1.2:4401") == "b at tcp://192.168.1.2:4401");
  CHECK(seen("203.0.113.2", "sim://b") == "b at sim://b");
  CHECK(seen("203.0.113.2", "") == "b at ");
}

TEST_CASE("neighbours: everybody is told of who comes, and of who goes") {
  Bench bench;
  bench.join("a");
  CHECK(bench.told("a") == Names{});
  bench.join("b");
  CHECK(bench.told("a") == Names{"b at tcp://b:4401"});
  CHECK(bench.told("b") == Names{"a at tcp://a:4401"});
  bench.join("b");  // said again: it may not have heard
  CHECK_FALSE(bench.told("a"));
  CHECK(bench.told("b") == Names{"a at tcp://a:4401"});
  bench.core.revoke(bench.now, IslandId("b"), "enough");
  bench.last = bench.core.take_ready();
  CHECK(bench.told("a") == Names{});
}

TEST_CASE("neighbours: of more than thirty-two islands nobody is told of anybody, until one goes") {
  Bench bench;
  for (int i = 0; i < 32; ++i) {
    bench.join("i" + std::to_string(i));
  }
  CHECK(bench.told("i0").value().size() == 31);
  bench.join("one-more");
  CHECK(bench.told("i0") == Names{});
  bench.join("and-another");
  CHECK_FALSE(bench.told("i0"));
  bench.core.revoke(bench.now, IslandId("and-another"), "enough");
  bench.core.revoke(bench.now, IslandId("one-more"), "enough");
  bench.last = bench.core.take_ready();
  CHECK(bench.told("i0").value().size() == 31);
}

TEST_CASE("neighbours: two that cannot reach each other are named before a run is submitted, and not once data pass") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  CHECK(bench.paths_to("a").empty());
  bench.say("a", PathReport{IslandId("b"), false, "there is no connection"});
  bench.say("b", PathReport{IslandId("a"), true, ""});
  const StartView start = bench.core.rehearse_start(bench.now, spec_for_two());
  CHECK(start.enough);
  REQUIRE(start.apart.size() == 1);
  CHECK(
      start.apart[0] ==
      "islands a and b cannot exchange data: there is no connection. One of them has to reach the other: "
      "open tcp://a:4401 of a for b, or open tcp://b:4401 of b for a; or start the coordinator with --relay PORT, or with the ticket of a "
      "relay that both can dial (atoll relay), or an island that both can dial with --relay PORT");
  REQUIRE(bench.paths_to("a").size() == 1);
  CHECK_FALSE(bench.paths_to("a")[0].passes);
  CHECK(bench.paths_to("a")[0].why == "there is no connection");
  REQUIRE(bench.paths_to("b").size() == 1);
  CHECK(bench.paths_to("b")[0].passes);

  bench.say("a", PathReport{IslandId("b"), true, ""});
  bench.now += 4s;
  bench.say("a", Heartbeat{1, {}});
  bench.say("b", Heartbeat{1, {}});
  bench.now += 2s;  // what was broken is trusted after a while
  CHECK(bench.core.rehearse_start(bench.now, spec_for_two()).apart.empty());
  REQUIRE(bench.paths_to("a").size() == 1);
  CHECK(bench.paths_to("a")[0].passes);
}

TEST_CASE("neighbours: by which relay two exchange is an event, told once of the two, and known until one says otherwise or is lost") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  const auto told = [&] {
    std::vector<std::string> texts;
    for (const Record& record : bench.last.records) {
      if (const auto* event = std::get_if<EventRecord>(&record);
          event != nullptr && (event->kind == "path_way" || event->kind == "path_address")) {
        texts.push_back(event->text);
      }
    }
    return texts;
  };
  bench.say("a", PathReport{IslandId("b"), true, ""});
  bench.say("a", Ways{{{IslandId("b"), {}}}});
  CHECK(told().empty());
  CHECK(bench.paths_to("a").at(0).way == Way{});
  bench.say("a", Ways{{{IslandId("b"), {"frankfurt"}}, {IslandId("nobody"), {"frankfurt"}}, {IslandId("a"), {"x"}}}});
  CHECK(told() == std::vector<std::string>{"data between islands a and b go over relay frankfurt"});
  bench.say("b", Ways{{{IslandId("a"), {"frankfurt"}}}});
  CHECK(told().empty());
  CHECK(bench.paths_to("a").at(0).way == Way{"frankfurt"});
  bench.say("b", Ways{{{IslandId("a"), {}}}});
  CHECK(told() == std::vector<std::string>{"data between islands a and b go directly"});
  // Which of the other's addresses answers: told once it is another one than before.
  bench.say("b", PathReport{IslandId("a"), true, ""});
  bench.say("b", Ways{{{IslandId("a"), {"", false, NotPunched::not_tried, "tcp://192.168.1.2:4401"}}}});
  CHECK(told().empty());
  bench.say("b", Ways{{{IslandId("a"), {"", false, NotPunched::not_tried, "tcp://203.0.113.2:4401"}}}});
  CHECK(told() == std::vector<std::string>{"island b reaches island a at tcp://203.0.113.2:4401, no longer at tcp://192.168.1.2:4401"});
  CHECK(bench.paths_to("b").at(0).way->address == "tcp://203.0.113.2:4401");
  bench.say("b", Ways{{{IslandId("a"), {"", false, NotPunched::not_tried, "\x1b[31m"}}}});
  CHECK(bench.paths_to("b").at(0).way->address.empty());
  bench.say("b", Ways{{{IslandId("a"), {}}}});
  bench.say("a", Ways{});
  CHECK_FALSE(bench.paths_to("a").at(0).way);
}

TEST_CASE("neighbours: a punched hole is an event, told once of the two, and a relay's says why no hole is punched") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  const auto told = [&] {
    std::string texts;
    for (const Record& record : bench.last.records) {
      if (const auto* event = std::get_if<EventRecord>(&record); event != nullptr && event->kind == "path_way") {
        texts += event->text + "\n";
      }
    }
    return texts;
  };
  const auto says = [&](const char* island, const char* peer, const Way& way) {
    bench.say(island, Ways{{{IslandId(peer), way}}});
    return told();
  };
  bench.say("a", PathReport{IslandId("b"), true, ""});
  const Way punched{"", true, NotPunched::not_tried};
  CHECK(says("a", "b", punched) == "data between islands a and b go through a hole that both punched into their routers\n");
  CHECK(says("b", "a", punched).empty());
  CHECK(bench.paths_to("a").at(0).way == punched);
  const std::string over = "data between islands a and b go over relay frankfurt; no hole is punched: ";
  const std::string symmetric = " gives each connection another port (a symmetric NAT)\n";
  CHECK(says("a", "b", {"frankfurt", false, NotPunched::own_router}) == over + "the router of island a" + symmetric);
  CHECK(says("b", "a", {"frankfurt", false, NotPunched::peers_router}).empty());
  (void)says("a", "b", punched);
  (void)says("b", "a", punched);
  CHECK(says("b", "a", {"frankfurt", false, NotPunched::own_router}) == over + "the router of island b" + symmetric);
  (void)says("a", "b", punched);
  (void)says("b", "a", punched);
  CHECK(says("b", "a", {"frankfurt", false, NotPunched::switched_off}) == over + "island b was started with --no-hole-punching\n");
}

TEST_CASE("neighbours: why two take no better way is told of what both of their routers do") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  const auto why = [&](const Way& of_a, const Way& of_b) {
    bench.say("a", Ways{{{IslandId("b"), of_a}}});
    bench.say("b", Ways{{{IslandId("a"), of_b}}});
    bench.say("a", PathReport{IslandId("b"), true, ""});
    return bench.paths_to("a").at(0).why_indirect;
  };
  const auto relay = [](NotPunched not_punched) { return Way{"frankfurt", false, not_punched}; };
  const std::string neither = "neither can dial the other";
  CHECK(why({}, {}).empty());
  CHECK(why({"", true}, {"", true}) == neither);
  CHECK(why(relay(NotPunched::not_tried), relay(NotPunched::not_tried)) == neither);
  CHECK(why(relay(NotPunched::own_router), relay(NotPunched::own_router)) ==
        neither + ", and both routers give each connection another port (symmetric NATs)");
  const std::string of_b = neither + ", and the router of island b gives each connection another port (a symmetric NAT)";
  CHECK(why(relay(NotPunched::peers_router), relay(NotPunched::own_router)) == of_b);
  CHECK(why(relay(NotPunched::not_tried), relay(NotPunched::own_router)) == of_b);
  CHECK(why(relay(NotPunched::not_tried), relay(NotPunched::switched_off)) ==
        neither + ", and island b was started with --no-hole-punching");
  CHECK(why(relay(NotPunched::nothing_came), relay(NotPunched::nothing_came)) ==
        neither + ", and both dialled at the same moment, and the router of one of them let nothing in");
}

TEST_CASE(
    "neighbours: who says a private address is told the public one that the coordinator sees, and who says its own machine's is told so") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  const auto islands = [&](const std::string& a, const std::string& seen_a, const std::string& b, const std::string& seen_b) {
    for (const auto& [name, address, seen] : {std::tuple("a", a, seen_a), std::tuple("b", b, seen_b)}) {
      bench.core.see(IslandId(name), seen);
      bench.join_at(name, address);
    }
    bench.say("a", PathReport{IslandId("b"), false, "there is no connection"});
    bench.say("b", PathReport{IslandId("a"), true, ""});
    const StartView start = bench.core.rehearse_start(bench.now, spec_for_two());
    REQUIRE(start.apart.size() == 1);
    const std::string remedy = start.apart[0].substr(start.apart[0].find("other: ") + 7);
    return remedy.substr(0, remedy.find("; or start the coordinator with --relay"));
  };
  const auto behind_router = [](const std::string& name, const std::string& seen) {
    return "tcp://192.168.1.10:4401 is an address of " + name + "'s own network: let its router pass port 4401 of " + seen +
           ", which the coordinator sees, on to it (at another port there: start its agent with --advertise " + seen + ":PORT)";
  };
  const std::string own_machine = "a says that it is reached at tcp://127.0.0.1:4401, which only its own machine can: start its agent with";
  CHECK(islands("tcp://192.168.1.10:4401", "203.0.113.7", "tcp://192.168.1.10:4401", "198.51.100.9") ==
        behind_router("a", "203.0.113.7") + ", or " + behind_router("b", "198.51.100.9"));
  CHECK(islands("tcp://192.168.1.10:4401", "192.168.1.10", "tcp://192.168.1.11:4401", "192.168.1.11") ==
        "open tcp://192.168.1.10:4401 of a for b, or open tcp://192.168.1.11:4401 of b for a");
  CHECK(islands("tcp://127.0.0.1:4401", "127.0.0.1", "tcp://[2001:db8::2]:4402", "2001:db8::2") ==
        own_machine + " --advertise and the address at which b can dial it, or open tcp://[2001:db8::2]:4402 of b for a");
  CHECK(islands("tcp://127.0.0.1:4401", "203.0.113.7", "tcp://b.example.org:4402", "198.51.100.9") ==
        own_machine +
            "out that --bind or --advertise, for the coordinator sees it at 203.0.113.7, or open tcp://b.example.org:4402 of b for a");
}

TEST_CASE("neighbours: a run that cannot begin because its two islands cannot reach each other is interrupted, and starts when they can") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  const auto report = [&](bool whole) {
    bench.say("a", PathReport{IslandId("b"), whole, whole ? "" : "there is no connection"});
    bench.say("b", PathReport{IslandId("a"), true, ""});
  };
  report(false);
  REQUIRE(bench.core.submit(bench.now, RunId("r-1"), spec_for_two(), "", "file"));
  const auto after = [&](std::chrono::seconds time) {
    for (const TimePoint end = bench.now + time; bench.now < end; bench.now += 1s) {
      IslandReport starts;
      starts.run = RunId("r-1");
      bench.say("a", Heartbeat{1, {starts}});
      bench.say("b", Heartbeat{1, {starts}});
      bench.core.tick(bench.now);
    }
    return bench.core.runs(bench.now).front();
  };
  const RunView begun = after(30s);
  CHECK(begun.state == RunState::starting);
  CHECK(begun.reason.text.find("islands a and b cannot exchange data: there is no connection") == 0);
  CHECK_FALSE(begun.reason.until);
  report(false);
  const RunView stands = after(35s);
  CHECK(stands.state == RunState::interrupted);
  CHECK(stands.reason.text.find("islands a and b cannot exchange data: there is no connection") != std::string::npos);
  CHECK_FALSE(stands.reason.until);
  report(true);
  CHECK(after(30s).state == RunState::starting);
}

TEST_CASE("neighbours: what was found of an island's paths is forgotten when it is another process") {
  Bench bench;
  bench.join("a");
  bench.join("b");
  bench.say("a", PathReport{IslandId("b"), true, ""});
  bench.say("b", PathReport{IslandId("a"), false, "there is no connection"});
  bench.core.revoke(bench.now, IslandId("b"), "enough");
  bench.join("b", 2);
  CHECK(bench.paths_to("a").empty());
  CHECK(bench.paths_to("b").empty());
  CHECK(bench.core.rehearse_start(bench.now, spec_for_two()).apart.empty());
}

TEST_CASE("neighbours: every path is measured when it is asked for, and in no turn anybody sends to two islands") {
  Bench bench;
  CHECK(bench.core.measure_paths(bench.now, 2s).error().code == Code::unavailable);
  const Names names = {"a", "b", "c", "d"};
  for (const std::string& name : names) {
    bench.join(name);
  }
  bench.last = {};
  const std::uint32_t measurement = bench.core.measure_paths(bench.now, 2s).value();
  bench.last = bench.core.take_ready();
  std::vector<Neighbours> orders;
  for (const Outgoing& out : bench.last.messages) {
    if (const auto* order = std::get_if<Neighbours>(&out.message)) {
      CHECK(order->measurement == measurement);
      CHECK(order->measure_ms == 2000);
      REQUIRE(order->islands.size() == 3);
      orders.push_back(*order);
    }
  }
  REQUIRE(orders.size() == 4);
  for (std::size_t turn = 0; turn < 3; ++turn) {
    std::set<IslandId> senders;
    for (const Neighbours& order : orders) {
      senders.insert(order.islands[turn].island);
    }
    CHECK(senders.size() == 4);
  }
  bench.say("a", PathReport{IslandId("b"), true, ""});
  bench.say("a", PathReport{IslandId("b"), true, "", measurement, 30'000, 6'000'000});
  bench.say("a", PathReport{IslandId("b"), true, "", measurement + 1, 1, 1});  // nobody asked for that one
  REQUIRE(bench.paths_to("a").size() == 1);
  REQUIRE(bench.paths_to("a")[0].measured);
  CHECK(bench.paths_to("a")[0].measured->round_trip == 30ms);
  CHECK(bench.paths_to("a")[0].measured->bytes_per_second == 6e6);
  bench.say("a", PathReport{IslandId("b"), false, "", measurement, 0, 0});  // nothing came: of the path's health it says nothing
  CHECK(bench.paths_to("a")[0].passes);
  CHECK(bench.paths_to("a")[0].measured->bytes_per_second == 0);
}

}  // namespace of_coordinator_neighbours_test
