// Checked like a database: several clients ask a coordinator for this and that while it and its islands fail in every way
// (tests/process/history_faults.hpp); every answer that a client got has to fit one order of events (tests/process/history.hpp).
//
// ATOLL_HISTORY_SECONDS: how long (55); ATOLL_HISTORY_SEED: which operations and faults (time decides the rest);
// ATOLL_HISTORY_FAULT="the store is copied": this fault alone, by its name in history_faults.cpp. Every second day (ATOLL_TEST_DAY) has
// one half of the faults, the days between them the other; `ctest -L soak` has all of them for an hour.
#include "tests/process/history.hpp"

#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <stop_token>
#include <utility>

#include "tests/day.hpp"
#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/process/history_faults.hpp"
#include "transport/base/rng.hpp"

namespace of_history_test {

using atl_test::Answer;
using atl_test::Cluster;
using atl_test::CommandResult;
using atl_test::CommittedRound;
using nlohmann::json;
using std::chrono::milliseconds;

namespace {

constexpr int kNotFound = 4;                     // how `status` ends for a run that the coordinator does not know
constexpr double kForIslandsToBringRuns = 20.0;  // seconds after the last mend

int number_from(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

std::string run_file(const std::string& name) {
  return "[run]\nname = \"" + name +
         "\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = 1000000\nbatch = 4\n"
         "sequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 10\n[islands]\nmin = 2\nmax = 3\n[checkpoint]\n"
         "every_rounds = 5\n";
}

// How often of a hundred times a client asks for what; else it asks how a run stands.
struct Habits {
  std::uint64_t submit = 15;
  std::uint64_t pause = 5;  // of run-2 a fifth of these cancel it: it is not paused, for resuming it would go on from a checkpoint
  std::uint64_t resume = 15;
  std::uint64_t cancel = 0;  // of run-2, besides
  std::uint64_t exported = 5;
};

class History {
 public:
  History(Cluster& cluster, std::function<double()> now, const Habits& habits) : cluster_(cluster), now_(std::move(now)), habits_(habits) {}

  // One client: it asks for one thing after the other until `stop`.
  void ask_until(const std::stop_token& stop, int client, std::uint64_t seed) {
    atl::Rng rng(seed, static_cast<std::uint64_t>(client));
    while (!stop.stop_requested()) {
      const std::string name = "run-" + std::to_string(rng.below(3));
      const bool last = name == "run-2";
      std::uint64_t kind = rng.below(100);
      const auto falls_on = [&](std::uint64_t share) {
        const bool found = kind < share;
        kind = found ? std::numeric_limits<std::uint64_t>::max() : kind - share;
        return found;
      };
      std::string verb = "status";
      if (falls_on(habits_.submit)) {
        verb = "submit";
      } else if (falls_on(habits_.pause)) {
        verb = last && rng.chance(0.2) ? "cancel" : last ? "status" : "pause";
      } else if (falls_on(habits_.resume)) {
        verb = last ? "status" : "resume";
      } else if (falls_on(habits_.cancel)) {
        verb = last ? "cancel" : "status";
      } else if (falls_on(habits_.exported)) {
        verb = "export";
      }
      ask(client, verb, name);
      std::this_thread::sleep_for(milliseconds(20 + static_cast<int>(rng.below(150))));
    }
  }

  void ask(int client, const std::string& verb, const std::string& name) {
    Answer answer;
    answer.verb = verb;
    answer.name = name;
    answer.begin = now_();
    const std::string id = verb == "submit" ? "" : verb == "status" ? any_of(name) : id_of(name);
    if (verb != "submit" && id.empty()) {
      return;
    }
    CommandResult result;
    if (verb == "submit") {
      const atl_test::fs::path file = cluster_.folder() / (name + ".toml");
      result = cluster_.run_as(client, {"submit", file.string(), "--name", name, "-q"});
      answer.run = result.out.substr(0, result.out.find('\n'));
    } else if (verb == "export") {
      answer.run = id;
      result = cluster_.run_as(client, {verb, id, "-o", file_of(client).string()});
    } else {
      answer.run = id;
      answer.name = name_of(id);
      result = cluster_.run_as(client, {verb, id, "--json"});
    }
    answer.end = now_();
    answer.done = result.exit == 0;
    if (!answer.done && result.exit != 8 && result.exit != 4) {
      answer.end = std::numeric_limits<double>::infinity();  // no answer, and no refusal: it may yet happen
    }
    if (verb == "submit" && answer.done) {
      const std::scoped_lock lock(mutex_);
      ids_[name] = answer.run;
      runs_.insert(answer.run);
      names_[answer.run] = name;
    }
    if (verb == "export" && answer.done) {
      const std::string bytes = atl_test::text_of(file_of(client));
      std::uint64_t length = 0;
      if (bytes.size() <= sizeof length) {  // no assertion where all is well: several threads are here
        FAIL("the model that was exported is " << bytes.size() << " bytes long");
      }
      std::memcpy(&length, bytes.data(), sizeof length);
      answer.round = std::stoull(json::parse(bytes.substr(sizeof length, length))["__metadata__"].value("atoll.round", "0"));
      answer.bytes = std::to_string(std::hash<std::string>{}(bytes));
    }
    if (verb == "status") {
      const json document = json::parse(result.out.empty() ? "{}" : result.out, nullptr, false);
      answer.done = result.exit == 0 && document.is_object() && document.contains("run");
      answer.state = result.exit == 4 ? "unknown" : "";
      if (answer.done) {
        answer.state = document["run"].value("state", "");
        answer.pausing = document["run"].contains("pause_after") && document["run"]["pause_after"].is_number();
        answer.round = document["run"].value("round", std::uint64_t{0});
      }
    }
    const std::scoped_lock lock(mutex_);
    answers_.push_back(std::move(answer));
  }

  // How a run stands once it had the time to come to the newest round that anybody was shown; then it is cancelled, for others wait for
  // its islands.
  void end(const std::string& run) {
    mended_ = mended_.value_or(now_());
    std::uint64_t shown = 0;
    for (const Answer& answer : answers()) {
      shown = answer.run == run && answer.done ? std::max(shown, answer.round) : shown;
    }
    const json before = json::parse(cluster_.run({"status", run, "--json"}).out, nullptr, false);
    if (!before.is_object() || !before.contains("run") || before["run"].value("state", "") != "cancelled") {
      (void)cluster_.run({"resume", run});  // one that a client has ended would go on from its newest checkpoint, and do rounds again
    }
    Answer end;
    end.verb = "end";
    end.run = run;
    end.name = name_of(run);
    end.begin = now_();
    const bool known = Cluster::eventually([&] {
      const CommandResult status = cluster_.run({"status", run, "--json"});
      const json document = json::parse(status.out, nullptr, false);
      if (!document.is_object() || !document.contains("run")) {
        // Lost with the copy from before its submission that was put in place: islands that had it have brought it back by then.
        return status.exit == kNotFound && now_() > *mended_ + kForIslandsToBringRuns;
      }
      end.done = true;
      end.state = document["run"].value("state", "");
      end.round = document["run"].value("round", std::uint64_t{0});
      return end.round >= shown || end.state == "cancelled";
    });
    end.end = now_();
    (void)cluster_.run({"cancel", run});
    const std::scoped_lock lock(mutex_);
    if (known || end.done) {
      answers_.push_back(std::move(end));
    }
  }

  [[nodiscard]] std::vector<Answer> answers() {
    const std::scoped_lock lock(mutex_);
    return answers_;
  }
  // Every run that was ever told of.
  [[nodiscard]] std::set<std::string> runs() {
    const std::scoped_lock lock(mutex_);
    return runs_;
  }

 private:
  [[nodiscard]] atl_test::fs::path file_of(int client) const {
    return cluster_.folder() / ("client-" + std::to_string(client) + ".safetensors");
  }
  std::string id_of(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    return ids_[name];
  }

  std::string name_of(const std::string& run) {
    const std::scoped_lock lock(mutex_);
    return names_[run];
  }
  // The newest run of this name, or at times one of the runs before.
  std::string any_of(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    if (++asked_ % 4 != 0 || runs_.empty()) {
      return ids_[name];
    }
    return *std::next(runs_.begin(), static_cast<std::ptrdiff_t>(asked_ / 4 % runs_.size()));
  }

  Cluster& cluster_;
  std::function<double()> now_;
  Habits habits_;
  std::mutex mutex_;
  std::size_t asked_ = 0;
  std::vector<Answer> answers_;
  std::map<std::string, std::string> ids_;  // of the newest of each name
  std::set<std::string> runs_;
  std::map<std::string, std::string> names_;
  std::optional<double> mended_;
};

std::vector<CommittedRound> rounds_in(const std::vector<json>& events, const std::string& run, const std::string& coordinator) {
  std::vector<CommittedRound> rounds;
  int histories = 0;  // a store that was put back has a gap where rounds were taken over, and has rounds again that were lost
  for (const json& event : events) {
    const std::string kind = event.value("kind", "");
    const bool restored = kind == "ledger_restored";
    histories += restored || kind == "rolled_back" ? 1 : 0;
    if (restored || kind == "round_committed") {
      rounds.push_back({run, event["fields"][restored ? "to" : "round"], event["fields"]["digest"],
                        coordinator + ", history " + std::to_string(histories)});
    }
  }
  return rounds;
}

std::vector<CommittedRound> committed_rounds(Cluster& cluster, const std::set<std::string>& runs, const std::string& coordinator) {
  std::vector<CommittedRound> rounds;
  for (const std::string& run : runs) {
    const std::vector<CommittedRound> found = rounds_in(cluster.events(run), run, coordinator);
    rounds.insert(rounds.end(), found.begin(), found.end());
  }
  return rounds;
}

struct Found {
  std::string violation;
  std::string told;  // which faults there were, and everybody's logs
  std::map<std::string, std::size_t> done;
  std::size_t commits = 0;
  std::size_t kinds = 0;
};

Found look_for(std::uint64_t seed, std::chrono::seconds length, const std::map<std::string, std::string>& environment = {},
               const std::set<std::string>& only = {}, const Habits& habits = {}) {
  const auto begin = std::chrono::steady_clock::now();
  const auto now = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  atl_test::Trouble trouble(seed, now, environment, only);
  Cluster& cluster = trouble.cluster();
  for (const char* name : {"run-0", "run-1", "run-2"}) {
    std::ofstream(cluster.folder() / (std::string(name) + ".toml")) << run_file(name);
  }
  History history(cluster, now, habits);
  std::vector<std::jthread> clients;
  for (int client = 1; client <= 3; ++client) {
    clients.emplace_back([&, client](const std::stop_token& stop) { history.ask_until(stop, client, seed); });
  }
  std::vector<CommittedRound> committed;
  const auto remember = [&](const std::string& coordinator) {
    for (CommittedRound& round : committed_rounds(cluster, history.runs(), coordinator)) {
      committed.push_back(std::move(round));
    }
  };
  atl::Rng rng(seed, atl::stream_of("pauses between faults"));
  while (now() < static_cast<double>(length.count())) {
    std::this_thread::sleep_for(milliseconds(1000 + static_cast<int>(rng.below(2000))));
    trouble.strike([&] { remember("before restore " + std::to_string(trouble.restores().size())); });
  }
  trouble.mend();
  for (std::jthread& client : clients) {
    client.request_stop();
  }
  clients.clear();
  std::string said;
  const bool back = Cluster::eventually([&] {
    const CommandResult runs = cluster.run({"runs"});
    said = runs.err;
    return runs.exit == 0;
  });
  INFO(said << cluster.logs());
  REQUIRE(back);
  for (const std::string& run : history.runs()) {
    history.end(run);
  }
  remember("in the end");
  const std::vector<Answer> answers = history.answers();
  Found found;
  for (const Answer& answer : answers) {
    found.done[answer.verb] += answer.done ? 1U : 0U;
  }
  WARN(json(found.done).dump() << " of " << answers.size() << " answers, " << committed.size() << " commits, " << trouble.restores().size()
                               << " restores, " << trouble.kinds().size() << " kinds of faults");
  found.violation = atl_test::find_violation(answers, committed, trouble.restores());
  found.told = trouble.told() + cluster.logs();
  found.commits = committed.size();
  found.kinds = trouble.kinds().size();
  return found;
}

// `faults`: those that there are; empty: all. `kinds`: more than so many of them happen.
void check_history(std::uint64_t seed, std::chrono::seconds length, const std::set<std::string>& faults, std::size_t kinds) {
  const char* fault = std::getenv("ATOLL_HISTORY_FAULT");
  const std::set<std::string> only = fault == nullptr ? faults : std::set<std::string>{fault};
  Found found = look_for(seed, length, {}, only);
  INFO(found.told);
  CHECK(found.violation == "");
  CHECK(found.commits > 8);
  CHECK((found.kinds > kinds || fault != nullptr));
  for (const char* verb : {"submit", "status", "pause", "resume", "export"}) {
    CHECK(found.done[verb] > 0);
  }
}

}  // namespace

TEST_CASE("process: every answer that several clients got in a minute of half of the kinds of faults fits one order of events") {
  const std::uint64_t day = atl_test::day();
  WARN("ATOLL_TEST_DAY=" << day);
  check_history(static_cast<std::uint64_t>(number_from("ATOLL_HISTORY_SEED", static_cast<int>(1 + day % 7))),
                std::chrono::seconds(number_from("ATOLL_HISTORY_SECONDS", 55)), atl_test::Trouble::every_second(day % 2), 3);
}

TEST_CASE("soak: the history's checker finds what a planted bug does to real processes", "[.soak][history]") {
  const std::string program = std::exchange(Cluster::program, atl_test::program_with_planted_bugs());
  struct Planted {
    const char* bug;
    std::set<std::string> words;
    std::set<std::string> faults;
    Habits habits;
  };
  const std::set<std::string> kills = {"the coordinator is killed", "the coordinator stops", "an island is killed", "an island stops"};
  for (const Planted& planted :
       {Planted{"cancel_unwritten", {"a lost order"}, kills, {.pause = 0, .resume = 0, .cancel = 30, .exported = 0}},
        Planted{"islands_taken", {"a stale read"}, kills, {.submit = 20, .pause = 15, .resume = 25, .exported = 0}},
        Planted{"age_unnoticed", {"a stale read", "a lost commit"}, {"the store is copied"}, {}}}) {
    Found found;
    const auto is_it = [&] { return planted.words.contains(found.violation.substr(0, found.violation.find(':'))); };
    for (std::uint64_t seed = 1; seed <= 4 && !is_it(); ++seed) {
      found = look_for(seed, std::chrono::seconds(60), {{"ATOLL_PLANTED_BUG", planted.bug}}, planted.faults, planted.habits);
    }
    WARN(planted.bug << ": " << found.violation);
    INFO(found.told);
    CHECK(is_it());
  }
  Cluster::program = program;
}

// What no coordinator can notice alone: no island has met both. Each goes on with its half, as a run of one island at least may.
TEST_CASE("soak: the history's checker finds a second leader, where copies of one store lead half of the islands each",
          "[.soak][history]") {
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  std::string file = run_file("halves");
  file.replace(file.find("min = 2"), 7, "min = 1");
  const std::string run = cluster.submit(file);
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 2; }));
  cluster.coordinator.signal(SIGTERM);
  CHECK(cluster.coordinator.wait() == 0);
  const atl_test::fs::path copy = cluster.state("copy");
  atl_test::fs::copy(cluster.coordinator_state(), copy, atl_test::fs::copy_options::recursive);
  const std::string elsewhere = Cluster::free_address();
  std::string settings = atl_test::text_of(copy / "coordinator.toml");
  for (std::size_t at = 0; (at = settings.find(cluster.address(), at)) != std::string::npos; at += elsewhere.size()) {
    settings.replace(at, cluster.address().size(), elsewhere);
  }
  std::ofstream(copy / "coordinator.toml") << settings;
  cluster.islands["a"].signal(SIGKILL);
  (void)cluster.islands["a"].wait();
  cluster.start_coordinator();
  cluster.start_island("a", {}, {"--coordinator", elsewhere});
  const atl_test::Process second = cluster.spawn_coordinator("copy");
  const auto rounds_of = [&](const std::string& coordinator) { return rounds_in(cluster.events_in(coordinator, run), run, coordinator); };
  std::vector<CommittedRound> committed;
  const bool both = Cluster::eventually([&] {
    committed = rounds_of("coordinator");
    const std::vector<CommittedRound> others = rounds_of("copy");
    committed.insert(committed.end(), others.begin(), others.end());
    return atl_test::find_violation({}, committed) != "";
  });
  INFO(cluster.logs());
  CHECK(both);
  const std::string violation = atl_test::find_violation({}, committed);
  WARN(violation);
  CHECK(violation.starts_with("a second leader"));
}

TEST_CASE("soak: every answer of an hour fits one order of events", "[.soak][history]") {
  check_history(static_cast<std::uint64_t>(number_from("ATOLL_HISTORY_SEED", 1)),
                std::chrono::seconds(number_from("ATOLL_HISTORY_SECONDS", 3600)), {}, 7);
}

TEST_CASE("process: the history's checker finds a lost commit, a stale read, a lost order and a second leader") {
  const auto read = [](double at, const std::string& state, std::uint64_t round) {
    return Answer{at, at + 0.1, "status", "run", true, "r-1", state, state == "pausing", round};
  };
  const Answer submitted{0, 0.1, "submit", "run", true, "r-1", "", false, 0};
  const std::vector<Answer> good = {submitted,
                                    read(1, "running", 3),
                                    read(2, "running", 5),
                                    {2.5, 2.6, "pause", "run", true, "r-1", "", false, 0},
                                    read(3, "paused", 6),
                                    {3.5, 3.6, "resume", "run", true, "r-1", "", false, 0},
                                    read(4, "running", 7)};
  std::vector<CommittedRound> committed;
  for (std::uint64_t round = 0; round <= 7; ++round) {
    committed.push_back({"r-1", round, "digest-" + std::to_string(round), "one"});
  }
  const auto violation = [](std::vector<Answer> answers, const std::vector<CommittedRound>& rounds, const Answer& more) {
    answers.push_back(more);
    return atl_test::find_violation(answers, rounds);
  };
  CHECK(atl_test::find_violation(good, committed) == "");
  CHECK(violation(good, committed, read(3.95, "running", 6)) == "");  // beside the newest read: either may have been first
  CHECK(violation(good, committed, read(5, "running", 6)).starts_with("a stale read"));
  CHECK(violation(good, committed, read(5, "running", 9)).starts_with("a lost commit"));
  CHECK(violation(good, committed, {5, 5.1, "end", "run", true, "r-1", "running", false, 7}) == "");
  CHECK(violation(good, committed, {5, 5.1, "end", "run", true, "r-1", "running", false, 6}).starts_with("a lost commit"));
  CHECK(violation(good, committed, read(3.2, "running", 6)).starts_with("a lost order"));
  CHECK(violation(good, committed, read(2.7, "pausing", 5)) == "");
  CHECK(violation(good, committed, {5, 5.1, "status", "run", false, "r-1", "unknown", false, 0}).starts_with("a lost order"));
  CHECK(violation(good, committed, {5, 5.1, "submit", "run", true, "r-2", "", false, 0}).find("before it was r-1") != std::string::npos);
  std::vector<Answer> cancelled = good;
  cancelled.push_back({4.5, 4.6, "cancel", "run", true, "r-1", "", false, 0});
  CHECK(violation(cancelled, committed, read(5, "cancelled", 7)) == "");
  CHECK(violation(cancelled, committed, read(5, "running", 7)).starts_with("a lost order"));
  std::vector<CommittedRound> gap = committed;
  gap.erase(gap.begin() + 4);
  CHECK(atl_test::find_violation(good, gap).starts_with("a lost commit"));
  std::vector<CommittedRound> twice = committed;
  twice.push_back(twice.back());
  CHECK(atl_test::find_violation(good, twice).find("twice") != std::string::npos);
  std::vector<CommittedRound> two = committed;
  two.push_back({"r-1", 6, "digest-6", "another"});
  CHECK(atl_test::find_violation(good, two) == "");
  two.push_back({"r-1", 7, "another digest", "another"});
  CHECK(atl_test::find_violation(good, two).starts_with("a second leader"));
  // A store that was put back: what was granted since the copy is void, what was before is not.
  const std::vector<atl_test::Restore> restores = {{1.5, 2.8, 2.9}};
  const auto again = [&](const Answer& more) {
    std::vector<Answer> answers(good.begin(), good.begin() + 4);
    answers.push_back(more);
    return atl_test::find_violation(answers, committed, restores);
  };
  CHECK(again(read(3, "running", 4)) == "");
  CHECK(again(read(3, "running", 2)).starts_with("a stale read"));
  CHECK(again(read(2.2, "running", 4)).starts_with("a stale read"));
  CHECK(again({3, 3.1, "status", "run", false, "r-1", "unknown", false, 0}).starts_with("a lost order"));
  std::vector<Answer> reborn(good.begin(), good.begin() + 4);
  reborn.push_back({2.6, 2.7, "cancel", "run", true, "r-1", "", false, 0});
  reborn.push_back(read(3, "running", 2));
  CHECK(atl_test::find_violation(reborn, committed, restores) == "");
  // The store that was put back has rounds that no island has any more, which is seen later, and once.
  reborn.back() = read(3, "running", 5);
  reborn.push_back(read(4, "running", 2));
  reborn.push_back(read(5, "running", 6));
  CHECK(atl_test::find_violation(reborn, committed, restores) == "");
  reborn.push_back(read(6, "running", 4));
  CHECK(atl_test::find_violation(reborn, committed, restores).starts_with("a stale read"));
  // Models of one round are one model.
  const auto model = [](double begin, std::uint64_t round, const std::string& bytes) {
    return Answer{begin, begin + 0.1, "export", "run", true, "r-1", "", false, round, bytes};
  };
  std::vector<Answer> models = good;
  models.push_back(model(5, 4, "these"));
  CHECK(violation(models, committed, model(6, 5, "those")) == "");
  CHECK(violation(models, committed, model(6, 4, "those")).starts_with("two models"));
  CHECK(violation(models, committed, model(6, 9, "those")).starts_with("a lost commit"));
}

TEST_CASE("process: of two coordinators from copies of one store the older stops once an island that has met both says so") {
  Cluster cluster;
  cluster.hold_at(37);
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name);
  }
  std::string file = run_file("fenced");
  file.replace(file.find("1000000"), 7, "100");
  const std::string run = cluster.submit(file);
  REQUIRE(Cluster::eventually([&] { return cluster.round_of(run) >= 2; }));
  const atl_test::fs::path backup = cluster.folder() / "backup.db";
  REQUIRE(cluster.run({"coordinator", "backup", backup.string()}).exit == 0);
  const std::string old_address = cluster.address();
  atl_test::Process old = std::move(cluster.coordinator);  // it goes on beside the new one
  const std::string address = cluster.move_coordinator("elsewhere", backup);
  const auto move_to = [&](const std::string& island, const std::string& to) {
    cluster.islands[island].signal(SIGKILL);
    (void)cluster.islands[island].wait();
    cluster.start_island(island, {}, {"--coordinator", to});
  };
  const auto place_of = [&](const std::string& island) {
    return json::parse(atl_test::text_of(cluster.state(island) / "coordinator.json"), nullptr, false);
  };
  move_to("a", address);
  REQUIRE(Cluster::eventually([&] {
    const json place = place_of("a");
    return place.is_object() && place.contains("generation") && place["generation"]["restored"] > 0;
  }));
  CHECK(place_of("a")["address"] == address);  // remembered, for it answered there
  CHECK(old.running());
  move_to("a", old_address);
  CHECK(old.wait() == 8);
  INFO(cluster.logs());
  CHECK(cluster.log("coordinator").find("has met") != std::string::npos);
  const CommandResult again = cluster.run_in("coordinator", {"coordinator"});
  CHECK(again.exit == 8);
  CHECK(again.err.find("superseded") != std::string::npos);
  move_to("a", address);
  move_to("b", address);
  cluster.release();
  CHECK(cluster.run({"wait", run, "--timeout", "120s"}).exit == 0);
}

}  // namespace of_history_test
