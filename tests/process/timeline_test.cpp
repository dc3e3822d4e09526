// What a run's islands spent their time on, on real processes with thin links: what overlaps, and who is waited for.
#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/process/cluster.hpp"

namespace of_timeline_test {

using atl_test::Cluster;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Three fragments in turns, of which one holds the head, 200 kB: a third of a second on 5 Mbit/s, two on 1 Mbit/s in a group of three.
constexpr const char* kHead = "50000";
constexpr std::uint64_t kLargest = 200'000;  // bytes

std::string streaming_file(unsigned islands, unsigned steps, unsigned inner_steps, unsigned overlap) {
  std::ostringstream text;
  text << "[run]\nname = \"thin\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nset = \"corpus\"\n[training]\nsteps = " << steps
       << "\nbatch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\nname = \"streaming-diloco\"\ngrouping = "
          "\"balanced\"\nfragments = 3\ncodec = \"f32\"\n"
       << "reduce_codec = \"f32\"\ninner_steps = " << inner_steps << "\noverlap_steps = " << overlap << "\n[islands]\nmin = " << islands
       << "\nmax = " << islands << "\ndeadline = \"60s\"\n";
  return text.str();
}

void check_completed(Cluster& cluster, const std::string& run) {
  const atl_test::CommandResult waited = cluster.run({"wait", run, "--timeout", "120s"});
  INFO(waited.out << waited.err << cluster.logs());
  REQUIRE(waited.exit == 0);
}

struct Stretch {
  double start = 0;
  double end = 0;
  std::uint64_t round = 0;
  json event;
};

// A trace, which is checked to be one: island → activity → when.
using Timeline = std::map<std::string, std::map<std::string, std::vector<Stretch>>>;
Timeline read_trace(const fs::path& path) {
  const json file = json::parse(atl_test::text_of(path));
  std::map<std::uint64_t, std::string> islands;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> threads;
  for (const json& event : file.at("traceEvents")) {
    if (event.at("name") == "process_name") {
      islands[event.at("pid").get<std::uint64_t>()] = event.at("args").at("name").get<std::string>();
    } else if (event.at("name") == "thread_name") {
      threads[{event.at("pid").get<std::uint64_t>(), event.at("tid").get<std::uint64_t>()}] =
          event.at("args").at("name").get<std::string>();
    }
  }
  Timeline timeline;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<std::pair<double, double>>> taken;
  for (const json& event : file.at("traceEvents")) {
    if (event.at("ph") == "M") {
      continue;
    }
    REQUIRE(event.at("ph") == "X");
    const auto process = event.at("pid").get<std::uint64_t>();
    const auto thread = event.at("tid").get<std::uint64_t>();
    REQUIRE(islands.contains(process));
    REQUIRE(threads.contains({process, thread}));
    const auto start = event.at("ts").get<double>();
    const double end = start + event.at("dur").get<double>();
    REQUIRE(start >= 0);
    REQUIRE(end >= start);
    taken[{process, thread}].emplace_back(start, end);
    timeline[islands[process]][event.at("cat").get<std::string>()].push_back(
        {start, end, event.at("args").at("round").get<std::uint64_t>(), event});
  }
  for (auto& [thread, times] : taken) {
    INFO(islands[thread.first] << ": " << threads[thread]);
    std::sort(times.begin(), times.end());
    for (std::size_t i = 1; i < times.size(); ++i) {
      REQUIRE(times[i].first >= times[i - 1].second - 0.01);  // microseconds, from nanoseconds
    }
  }
  return timeline;
}

// Asks until the last spans are there: islands tell of them with their next heartbeats.
Timeline trace_of(Cluster& cluster, const std::string& run, const std::function<bool(const Timeline&)>& whole) {
  const fs::path path = cluster.folder() / "trace.json";
  Timeline timeline;
  const bool there = Cluster::eventually([&] {
    if (cluster.run({"trace", run, "-o", path.string()}).exit != 0) {
      return false;
    }
    timeline = read_trace(path);
    return whole(timeline);
  });
  INFO(atl_test::text_of(path));
  REQUIRE(there);
  return timeline;
}

std::set<std::uint64_t> rounds_of(const Timeline& timeline, const std::string& island, const std::string& activity) {
  std::set<std::uint64_t> rounds;
  if (timeline.contains(island) && timeline.at(island).contains(activity)) {
    for (const Stretch& stretch : timeline.at(island).at(activity)) {
      rounds.insert(stretch.round);
    }
  }
  return rounds;
}

// Seconds for which what belongs to the round went on at the same time as the others.
double seconds_together(const std::vector<Stretch>& some, const std::vector<Stretch>& others, std::uint64_t round) {
  double together = 0;
  for (const Stretch& one : some) {
    for (const Stretch& other : others) {
      together += one.round == round ? std::max(0.0, std::min(one.end, other.end) - std::max(one.start, other.start)) / 1e6 : 0.0;
    }
  }
  return together;
}

}  // namespace

TEST_CASE("process: streaming on thin links: the trace shows fragments sent and received while inner steps go on") {
  Cluster cluster;
  for (const char* name : {"a", "b"}) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "40"}, {"ATOLL_TEST_HEAD", kHead}}, {"--uplink", "5mbit"});
  }
  const std::string run = cluster.submit(streaming_file(2, 120, 30, 20));
  check_completed(cluster, run);
  CHECK(cluster.status(run)["run"]["tokens"] == 2 * 120 * 4 * 16);  // each once, though three fragments count the same steps
  // Rounds start at 30, 40, … 90, and three end the run.
  constexpr std::uint64_t kRegular = 7;
  constexpr std::uint64_t kRounds = kRegular + 3;
  Timeline timeline = trace_of(cluster, run, [&](const Timeline& known) {
    return rounds_of(known, "a", "outer_step").size() == kRounds && rounds_of(known, "b", "outer_step").size() == kRounds &&
           rounds_of(known, "a", "receive").size() == kRounds && rounds_of(known, "b", "receive").size() == kRounds &&
           rounds_of(known, "a", "send").size() == kRounds && rounds_of(known, "b", "send").size() == kRounds;
  });
  // Whoever came to a round's start last sends and receives the large fragment while it trains on: 20 steps are 0.8 s, its bytes a third of
  // a second. On a machine that is starved the news of it may take longer than that, but not every time.
  for (const char* activity : {"send", "receive"}) {
    INFO(activity << "\n" << cluster.run({"status", run}).out);
    std::uint64_t large = 0;
    double overlapped = 0;
    for (const Stretch& stretch : timeline["a"][activity]) {
      if (stretch.round <= kRegular && stretch.event["args"].value("bytes", std::uint64_t{0}) >= kLargest) {
        ++large;
        overlapped += std::max(seconds_together(timeline["a"][activity], timeline["a"]["steps"], stretch.round),
                               seconds_together(timeline["b"][activity], timeline["b"]["steps"], stretch.round));
      }
    }
    CHECK(large >= 2);
    CHECK(overlapped > 0.1);
  }
  for (const char* island : {"a", "b"}) {
    std::uint64_t steps = 0;
    for (const Stretch& stretch : timeline[island]["steps"]) {
      steps += stretch.event["args"]["steps"].get<std::uint64_t>();
    }
    CHECK(steps == 120);
  }
}

TEST_CASE("process: an island with a thin uplink is whom the others' waits name, in status, its document, the events and the trace") {
  Cluster cluster;
  const std::vector<std::string> names = {"a", "b", "thin"};
  for (const std::string& name : names) {
    cluster.start_island(name, {{"ATOLL_TEST_STEP_MS", "10"}, {"ATOLL_TEST_HEAD", kHead}},
                         name == "thin" ? std::vector<std::string>{"--uplink", "1mbit"} : std::vector<std::string>());
  }
  const std::string run = cluster.submit(streaming_file(3, 30, 12, 2));
  check_completed(cluster, run);
  const json listed = json::parse(cluster.run({"islands", "--json"}).out)["islands"];
  REQUIRE(listed.size() == 3);
  for (const json& island : listed) {
    CHECK(island["uplink_budget_bits_per_second"] == (island["name"] == "thin" ? json(1e6) : json()));
  }
  // Every second that a trainer waited is put down to something; islands tell the sum with their next heartbeats.
  json document;
  const bool whole = Cluster::eventually([&] {
    document = cluster.status(run);
    return std::all_of(document["islands"].begin(), document["islands"].end(), [](const json& island) {
      double in_all = 0;
      for (const json& wait : island["waits"]) {
        in_all += wait["seconds"].get<double>();
      }
      return in_all == Approx(island["wait_seconds"].get<double>()).epsilon(0.02).margin(0.05);
    });
  });
  INFO(document.dump(1) << cluster.logs());
  REQUIRE(whole);
  REQUIRE(document["islands"].size() == 3);
  // At the end all wait until the thin uplink has carried two thirds of the model twice: two seconds.
  for (const json& island : document["islands"]) {
    INFO(island["name"]);
    double by_thin = 0;  // how much else there was depends on the machine
    for (const json& wait : island["waits"]) {
      by_thin += wait["what"] == "link" && wait["from"] == "thin" ? wait["seconds"].get<double>() : 0.0;
    }
    CHECK(by_thin > 1.0);
  }
  CHECK(cluster.run({"status", run}).out.find(" for the link thin → ") != std::string::npos);
  bool told = false;
  for (const json& event : cluster.events(run)) {
    told = told || (event.value("kind", "") == "island_waited" &&
                    event.at("text").get<std::string>().find("for the link thin → ") != std::string::npos);
  }
  CHECK(told);
  trace_of(cluster, run, [](const Timeline& known) {
    double traced = 0;
    if (known.contains("a") && known.at("a").contains("wait")) {
      for (const Stretch& wait : known.at("a").at("wait")) {
        const json& arguments = wait.event["args"];
        const bool named = arguments.value("peer", "") == "thin" && arguments.value("cause", "").starts_with("the link thin → ");
        traced += named ? (wait.end - wait.start) / 1e6 : 0.0;
      }
    }
    return traced > 1.0;
  });
}

}  // namespace of_timeline_test
