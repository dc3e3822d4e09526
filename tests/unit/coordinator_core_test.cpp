// The coordinator's core by itself: identities, operators' commands, and its memory over a thousand rounds of a hundred islands.
#include <malloc.h>

#include "tests/catch.hpp"
#include "tests/unit/coordinator_core_bench.hpp"

namespace {

using namespace atl_test;

// One island serves the queued runs, one after the other: each is cancelled once it has started.
void check_order_of_starts(Bench& bench, const std::vector<std::string>& order) {
  bench.now += 1s;
  bench.join("island");
  for (const std::string& id : order) {
    INFO(id);
    for (const RunView& run : bench.core.runs(bench.now)) {
      CHECK((run.state == RunState::starting) == (run.id.text == id));
    }
    REQUIRE(bench.core.cancel(bench.now, RunId(id), "the next one").ok());
    bench.now += 1s;
    bench.core.step(bench.now, IslandId("island"), 1, Heartbeat{1, {}});
    bench.core.tick(bench.now);
  }
}

std::size_t used_bytes() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 0;  // their allocators do not count
#else
  return mallinfo2().uordblks;
#endif
}

}  // namespace

TEST_CASE("an agent that has the lock of the one before it takes over at once, one that lies elsewhere does not") {
  Bench bench;
  bench.core.admit(bench.now, IslandId("a"), "a", "key-a");
  bench.hello("a", 1, "here");
  bench.now += milliseconds(100);
  const auto welcomed_from = [&](const std::string& place) {
    bench.hello("a", 2, place);
    bench.take();
    return bench.sent<Welcome>("a", 2).size() == 1;
  };
  SECTION("the same place") { CHECK(welcomed_from("here")); }
  SECTION("another machine, or a copy of the state") { CHECK_FALSE(welcomed_from("there")); }
  SECTION("an agent that does not say") { CHECK_FALSE(welcomed_from("")); }
}

TEST_CASE("an island is not lost for a silence in which the coordinator did not listen") {
  for (const bool away : {true, false}) {
    Bench bench;
    bench.join("a");
    bench.now += 7s;  // in which the ledger's disk did not answer
    if (away) {
      bench.core.was_away(6s);
    }
    bench.core.tick(bench.now);
    bench.take();
    CHECK(bench.told("island_lost") == (away ? 0 : 1));
    bench.now += 5s;  // and its own silence
    bench.core.tick(bench.now);
    bench.take();
    CHECK(bench.told("island_lost") == 1);
  }
}

TEST_CASE("a second agent with the identity of one that lives is refused, one that died is succeeded") {
  Bench bench;
  bench.join("a");
  bench.now += 1s;
  bench.hello("a", 2);
  bench.take();
  REQUIRE(bench.sent<Welcome>("a", 2).empty());
  bench.now += milliseconds(1200);
  SECTION("the first still speaks") {
    bench.core.step(bench.now, IslandId("a"), 1, Heartbeat{1, {}});
    bench.take();
    REQUIRE(bench.sent<Refused>("a", 2).size() == 1);
    REQUIRE(bench.sent<Refused>("a", 2).front().error.code == Code::conflict);
  }
  SECTION("the first is silent") {
    bench.now += 1s;
    bench.core.tick(bench.now);
    bench.take();
    REQUIRE(bench.sent<Welcome>("a", 2).size() == 1);
  }
}

TEST_CASE("an agent of another protocol is told both versions, an unknown island is not heard") {
  Bench bench;
  bench.core.admit(bench.now, IslandId("a"), "a", "key");
  Hello hello;
  hello.protocol = 99;
  hello.boot = 1;
  bench.core.step(bench.now, IslandId("a"), 1, hello);
  bench.core.step(bench.now, IslandId("b"), 1, hello);
  bench.take();
  REQUIRE(bench.sent<Refused>("a").front().error.why.find("protocol 99") != std::string::npos);
  REQUIRE(bench.sent<Refused>("b").front().error.code == Code::unauthorized);
}

TEST_CASE("what changes while an island lives is taken from its next hello: what its trainers compute with, and its budget") {
  Bench bench;
  bench.join("a");
  Hello hello;
  hello.boot = 1;
  hello.kernels = "LibTorch 9.9";
  hello.uplink_bits_per_second = 5e6;
  bench.core.step(bench.now, IslandId("a"), 1, hello);
  bench.take();
  REQUIRE(bench.sent<Welcome>("a").size() == 2);  // one for each hello
  const auto islands = bench.core.islands(bench.now);
  REQUIRE(islands.size() == 1);
  CHECK(islands.front().uplink_budget_bits_per_second == 5e6);
}

TEST_CASE("an agent whose codecs have another version is refused at hello, with both named") {
  Bench bench;
  bench.core.admit(bench.now, IslandId("a"), "a", "key-a");
  Hello hello;
  hello.version = "9.9";
  hello.boot = 1;
  hello.codec_version = 7;
  bench.core.step(bench.now, IslandId("a"), 1, hello);
  bench.take();
  const std::vector<Refused> refused = bench.sent<Refused>("a");
  REQUIRE(refused.size() == 1);
  CHECK(refused.front().error.code == Code::invalid_argument);
  CHECK(refused.front().error.why.find("version 7 of the codecs") != std::string::npos);
  CHECK(bench.sent<Welcome>("a").empty());
}

TEST_CASE("submit is repeatable by name, cancel and resume say what is wrong") {
  Bench bench;
  const RunSpec spec = spec_for(2, 2, 5);
  REQUIRE(bench.core.submit(bench.now, RunId("r-1"), spec, "mine", "file").value() == RunId("r-1"));
  REQUIRE(bench.core.submit(bench.now, RunId("r-2"), spec, "mine", "file").value() == RunId("r-1"));
  REQUIRE(bench.core.submit(bench.now, RunId("r-2"), spec, "mine", "another").error().code == Code::conflict);
  REQUIRE(bench.core.submit(bench.now, RunId("r-2"), spec, "", "file").value() == RunId("r-2"));
  REQUIRE(bench.core.submit(bench.now, RunId("r-3"), spec, "", "file").value() == RunId("r-3"));
  REQUIRE(bench.core.run(bench.now, RunId("r-3"))->name == "run-2");
  REQUIRE(bench.core.cancel(bench.now, RunId("r-9"), "").error().code == Code::not_found);
  REQUIRE(bench.core.resume(bench.now, RunId("r-1")).error().code == Code::conflict);
  REQUIRE(bench.core.cancel(bench.now, RunId("r-1"), "not needed").ok());
  REQUIRE(bench.core.cancel(bench.now, RunId("r-1"), "").error().code == Code::conflict);
  REQUIRE(bench.core.resume(bench.now, RunId("r-1")).ok());
  REQUIRE(bench.core.run(bench.now, RunId("r-1"))->state == RunState::queued);
  REQUIRE_FALSE(bench.core.run(bench.now, RunId("r-1"))->reason.text.empty());
}

TEST_CASE("queued runs start in the order of their submission, whatever their ids are, after a restart, too") {
  Bench bench;
  const RunSpec spec = spec_for(1, 1, 5);
  const std::vector<std::string> order = {"r-m", "r-z", "r-a", "r-k", "r-b"};
  Recovered after;
  for (const std::string& id : order) {
    REQUIRE(bench.core.submit(bench.now, RunId(id), spec, id, id).has_value());  // all in one millisecond
  }
  for (const RunView& run : bench.core.runs(bench.now)) {
    CHECK(run.id.text == order[after.runs.size()]);
    RunRecord record;
    record.id = run.id;
    record.name = run.name;
    record.spec = to_json(spec);
    record.submitted = from_unix_ms(unix_ms(run.submitted));  // as the ledger has it
    after.runs.insert(after.runs.begin(), record);
  }
  REQUIRE(after.runs.size() == order.size());
  const bool restarted = GENERATE(false, true);
  if (restarted) {
    bench.core = Core(Settings{}, after, bench.now);
  }
  check_order_of_starts(bench, order);
}

TEST_CASE("of queued runs the one with the highest priority starts first, and of equal ones the first") {
  Bench bench;
  RunSpec spec = spec_for(1, 1, 5);
  for (const auto& [id, priority] : std::vector<std::pair<std::string, std::uint64_t>>{{"r-1", 0}, {"r-2", 7}, {"r-3", 7}, {"r-4", 900}}) {
    spec.priority = priority;
    REQUIRE(bench.core.submit(bench.now, RunId(id), spec, id, id).has_value());
  }
  check_order_of_starts(bench, {"r-4", "r-2", "r-3", "r-1"});
}

TEST_CASE("a name that is given returns the run of that name, whatever runs were numbered after it") {
  Bench bench;
  RunSpec spec = spec_for(1, 1, 5);
  spec.name = "dup";
  for (const char* id : {"r-9", "r-1", "r-5"}) {  // dup, dup-2, dup-3
    REQUIRE(bench.core.submit(bench.now, RunId(id), spec, "", "file").has_value());
  }
  CHECK(bench.core.submit(bench.now, RunId("r-0"), spec, "dup", "file").value() == RunId("r-9"));
  CHECK(bench.core.submit(bench.now, RunId("r-0"), spec, "dup-2", "file").value() == RunId("r-1"));
  CHECK(bench.core.submit(bench.now, RunId("r-0"), spec, "dup", "another file").error().code == Code::conflict);
  CHECK(bench.core.submit(bench.now, RunId("r-0"), spec, "dup-4", "file").value() == RunId("r-0"));
}

TEST_CASE("an island that is reached elsewhere after its link came back is known there, without having left") {
  Bench bench;
  Hello message;
  message.name = "a";
  message.boot = 1;
  message.bulk_address = "tcp://10.0.0.1:5000";
  bench.core.admit(bench.now, IslandId("a"), "a", "key-a");
  bench.core.step(bench.now, IslandId("a"), 1, message);
  bench.take();
  bench.now += 1s;
  bench.core.step(bench.now, IslandId("a"), 1, message);
  bench.take();
  CHECK(bench.last.records.empty());
  message.bulk_address = "tcp://10.9.0.1:5000";
  bench.core.step(bench.now, IslandId("a"), 1, message);
  CHECK(bench.core.islands(bench.now).front().bulk_address == "tcp://10.9.0.1:5000");
  bench.take();
  REQUIRE(bench.last.records.size() == 2);  // the event and the island
}

TEST_CASE("what is told of a revoked island names it, once and after a restart") {
  Bench bench;
  for (const char* name : {"a", "b"}) {
    bench.core.admit(bench.now, IslandId(std::string("i-") + name), name, std::string("key-") + name);
    Hello message;
    message.name = name;
    message.boot = 1;
    bench.core.step(bench.now, IslandId(std::string("i-") + name), 1, message);
  }
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(2, 2, 5), "", "").has_value());
  bench.take();
  bench.core.revoke(bench.now, IslandId("i-b"), "its key was revoked by an operator");
  const std::optional<RunView> run = bench.core.run(bench.now, bench.run);
  REQUIRE(run->memberships.size() == 2);
  const auto seat = std::ranges::find(run->memberships, IslandId("i-b"), &MembershipView::island);
  CHECK(seat->name == "b");
  CHECK(seat->reason.text == "its key was revoked by an operator");
  bench.take();
  for (const Record& record : bench.last.records) {
    if (const auto* event = std::get_if<EventRecord>(&record)) {
      INFO(event->text);
      CHECK(event->text.find("i-b") == std::string::npos);
      CHECK(event->text.find("revoked: its key") == std::string::npos);
    }
  }
}

TEST_CASE("a run that has taken its last round is not paused any more: it is complete once its islands have the last checkpoint") {
  Bench bench;
  const std::vector<std::string> names = {"a", "b"};
  for (const std::string& name : names) {
    bench.join(name);
  }
  const auto everyone = [&](const auto& message) { bench.from_each(names, message); };
  const RunId id("r");
  REQUIRE(bench.core.submit(bench.now, id, spec_for(2, 2, 1), "", "").has_value());
  const auto view = [&] { return *bench.core.run(bench.now, id); };
  bench.take();
  atl::Ready ready;
  ready.run = id;
  ready.epoch = view().epoch;
  everyone(ready);
  everyone(Checkpointed{id, Round(0), Digest{}, digest(7), 1, {}});
  ready.epoch = view().epoch;
  ready.round = Round(1);
  everyone(ready);
  bench.take();
  everyone(Exchanged{id, ready.epoch, Round(1), Attempt(1), digest(1), 0, 0, 0});
  INFO(view().reason.text);
  REQUIRE(view().committed.value == 1);
  REQUIRE(view().state == RunState::running);
  const Status asked = bench.core.pause(bench.now, id);
  REQUIRE_FALSE(asked.ok());
  CHECK(asked.error().code == Code::conflict);
  CHECK(asked.error().why.find("has taken its last round") != std::string::npos);
  everyone(RunEnded{id, Round(1), digest(1), {}});
  CHECK(view().state == RunState::completed);
}

TEST_CASE("a run that is resumed takes no island from another one, says which it waits for, and has them back once that one is over") {
  Bench bench;
  const std::vector<std::string> names = {"a", "b"};
  for (const std::string& name : names) {
    bench.join(name);
  }
  const auto everyone = [&](const auto& message) { bench.from_each(names, message); };
  const auto view = [&](const std::string& run) { return *bench.core.run(bench.now, RunId(run)); };
  const auto invited = [&](const std::string& run) {
    bench.take();
    std::size_t count = 0;
    for (const std::string& name : names) {
      const std::vector<Invite> invites = bench.sent<Invite>(name);
      count += static_cast<std::size_t>(std::ranges::count(invites, RunId(run), &Invite::run));
    }
    return count;
  };
  const auto begin = [&](const std::string& run) {
    RunSpec spec = spec_for(2, 2, 100);
    spec.name = run;
    REQUIRE(bench.core.submit(bench.now, RunId(run), spec, "", "").has_value());
    CHECK(invited(run) == 2);
    atl::Ready ready;
    ready.run = RunId(run);
    ready.epoch = view(run).epoch;
    everyone(ready);
    REQUIRE(view(run).state == RunState::running);
  };
  begin("first");
  everyone(Checkpointed{RunId("first"), Round(0), Digest{}, digest(7), 1, {}});
  REQUIRE(bench.core.pause(bench.now, RunId("first")).ok());
  CHECK(view("first").reason.text.starts_with("is being paused after round 1"));
  atl::Ready ready;
  ready.run = RunId("first");
  ready.epoch = view("first").epoch;
  ready.round = Round(1);
  everyone(ready);
  everyone(Exchanged{RunId("first"), ready.epoch, Round(1), Attempt(1), digest(1), 0, 0, 0});
  everyone(Checkpointed{RunId("first"), Round(1), digest(1), digest(8), 1, {}});
  REQUIRE(view("first").state == RunState::paused);
  begin("second");
  bench.take();
  REQUIRE(bench.core.resume(bench.now, RunId("first")).ok());
  IslandReport report;
  report.run = RunId("second");
  for (int i = 0; i < 100; ++i) {
    bench.now += 1s;
    everyone(Heartbeat{1, {report}});
    bench.core.tick(bench.now);
    REQUIRE(invited("first") == 0);
  }
  CHECK(view("first").state == RunState::interrupted);
  CHECK(view("first").reason.text.find("a (serves run second) and b (serves run second)") != std::string::npos);
  CHECK(view("second").state == RunState::running);
  // One that was lost comes back to the run that it was in, whoever waits for it besides.
  for (int i = 0; i < 30; ++i) {
    bench.now += 1s;
    bench.core.step(bench.now, IslandId("a"), 1, Heartbeat{1, {report}});
    bench.core.tick(bench.now);
  }
  bench.take();
  bench.hello("b", 2);
  bench.take();
  CHECK(view("first").state == RunState::interrupted);
  const std::vector<Invite> invites = bench.sent<Invite>("b", 2);
  REQUIRE(invites.size() == 1);
  CHECK(invites.front().run == RunId("second"));
  REQUIRE(bench.core.cancel(bench.now, RunId("second"), "").ok());
  bench.take();
  CHECK(bench.sent<Invite>("a").size() == 1);
}

TEST_CASE("a hundred islands over a thousand rounds: the core's memory does not grow") {
  constexpr std::uint64_t kRounds = 1000;
  constexpr std::size_t kIslands = 100;
  Bench bench;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kIslands; ++i) {
    names.push_back("i" + std::to_string(i));
    bench.join(names.back());
  }
  REQUIRE(bench.core.submit(bench.now, bench.run, spec_for(kIslands, kIslands, kRounds), "", "").has_value());
  const auto everyone = [&](const auto& message) { bench.from_each(names, message); };
  atl::Ready ready;
  ready.run = bench.run;
  ready.epoch = Epoch(1);
  ready.digest = digest(0);
  ready.facts.tokens = 100;
  everyone(ready);
  const Epoch epoch = bench.core.run(bench.now, bench.run)->epoch;
  ready.epoch = epoch;
  std::size_t early = 0;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    bench.now += milliseconds(500);
    ready.round = Round(round);
    ready.digest = digest(round - 1);
    everyone(ready);
    everyone(Exchanged{bench.run, epoch, Round(round), Attempt(1), digest(round), 0, 0, 0});
    everyone(Merged{bench.run, Round(round), Step(round * 10), 0, 0, 0});
    IslandReport report;
    report.run = bench.run;
    everyone(Heartbeat{1, {report}});
    bench.take();
    bench.last = coordinator::Ready{};
    REQUIRE(bench.core.run(bench.now, bench.run)->committed == Round(round));
    if (round == 200) {
      early = used_bytes();
    }
  }
  const std::size_t late = used_bytes();
  INFO("after 200 rounds " << early << " bytes, after 1000 " << late);
  REQUIRE(late < early + 64 * 1024);
}
