// What `atoll trace` writes: events that a trace viewer reads, one process for each island.
#include "cli/recorded/trace_events.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/catch.hpp"

namespace of_trace_events_test {

using atl::TraceEvents;
using nlohmann::json;

namespace {

json span(const char* island, const char* activity, std::int64_t start_us, std::int64_t length_us, const char* peer = nullptr) {
  return {{"island", island},
          {"activity", activity},
          {"round", 7},
          {"fragment", 2},
          {"peer", peer == nullptr ? json() : json(peer)},
          {"cause", std::string(activity) == "wait" ? json("the link shoal → reef") : json()},
          {"start_unix_ns", 1'767'225'600'000'000'000 + start_us * 1000},
          {"length_ns", length_us * 1000},
          {"amount", 30}};
}

json named(const json& file, const std::string& name) {
  for (const json& event : file["traceEvents"]) {
    if (event.value("name", "") == name) {
      return event;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("trace: spans become complete events in microseconds since the first, on tracks of their island") {
  TraceEvents events;
  events.add(span("reef", "steps", 500, 2'000));
  events.add(span("reef", "wait", 2'500, 700, "shoal"));
  events.add(span("shoal", "receive", 0, 1'250, "reef"));
  events.add(span("shoal", "receive", 0, 1'300, "atoll"));
  CHECK(events.count() == 4);
  const json file = json::parse(events.text());
  const json steps = named(file, "steps");
  CHECK(steps["ph"] == "X");
  CHECK(steps["ts"] == 500.0);
  CHECK(steps["dur"] == 2000.0);
  CHECK(steps["args"]["steps"] == 30);
  CHECK(steps["args"]["fragment"] == 2);
  const json wait = named(file, "wait for the link shoal → reef, round 7");
  CHECK(wait["ts"] == 2500.0);
  CHECK(wait["pid"] == steps["pid"]);
  CHECK(wait["tid"] == steps["tid"]);  // the trainer does one or the other
  const json receive = named(file, "receive, round 7");
  CHECK(receive["ts"] == 0.0);
  CHECK(receive["pid"] != steps["pid"]);
  CHECK(receive["args"]["bytes"] == 30);
  // Every track has a name, and those of different peers are different.
  std::set<std::pair<json, json>> tracks;
  std::size_t names = 0;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "X") {
      tracks.emplace(event["pid"], event["tid"]);
    }
    names += event["name"] == "thread_name" ? 1U : 0U;
  }
  CHECK(tracks.size() == 3);
  CHECK(names == tracks.size());
}

TEST_CASE("trace: rounds in flight together are beside each other, and no event begins before the one before it on its thread has ended") {
  TraceEvents events;
  // Three sends: two overlap, the third comes after both; and so do two receives from each of two peers.
  for (const char* activity : {"send", "receive"}) {
    for (const char* peer : {"atoll", "shoal"}) {
      events.add(span("reef", activity, 0, 1'000, peer));
      events.add(span("reef", activity, 600, 1'000, peer));
      events.add(span("reef", activity, 1'600, 100, peer));
    }
  }
  const json file = json::parse(events.text());
  std::map<std::pair<json, json>, std::vector<std::pair<double, double>>> threads;
  std::map<json, std::string> names;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "X") {
      threads[{event["pid"], event["tid"]}].emplace_back(event["ts"].get<double>(), event["ts"].get<double>() + event["dur"].get<double>());
    } else if (event["name"] == "thread_name") {
      CHECK(names.emplace(event["tid"], event["args"]["name"].get<std::string>()).second);
    }
  }
  for (auto& [thread, times] : threads) {
    CHECK(names.count(thread.second) == 1);
    std::sort(times.begin(), times.end());
    for (std::size_t i = 1; i < times.size(); ++i) {
      CHECK(times[i].first >= times[i - 1].second);
    }
  }
  std::set<std::string> said;
  for (const auto& [thread, name] : names) {
    said.insert(name);
  }
  CHECK(said == std::set<std::string>{"sends", "sends 2", "sends 3", "sends 4", "receives from atoll", "receives from atoll 2",
                                      "receives from shoal", "receives from shoal 2"});
}

TEST_CASE("trace: an event that follows another at once does not overlap it by a rounding") {
  TraceEvents events;
  std::int64_t start = 0;
  for (int i = 0; i < 2000; ++i) {
    json next = span("reef", "steps", 0, 0);
    const std::int64_t length = 608'550'093 + 7'919 * i;
    next["start_unix_ns"] = 1'767'225'600'000'000'123 + start;
    next["length_ns"] = length;
    events.add(next);
    start += length;
  }
  double end = 0;
  std::size_t steps = 0;
  const json file = json::parse(events.text());
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "X") {
      ++steps;
      CHECK(event["ts"].get<double>() >= end);
      end = event["ts"].get<double>() + event["dur"].get<double>();
    }
  }
  CHECK(steps == 2000);
}

TEST_CASE("trace: a span that is not whole is left out, never a crash") {
  TraceEvents events;
  events.add(json::object());
  events.add(json::array());
  events.add(json("text"));
  json broken = span("reef", "steps", 0, 1);
  broken["length_ns"] = "long";
  events.add(broken);
  broken = span("reef", "steps", 0, 1);
  broken.erase("island");
  events.add(broken);
  broken = span("reef", "steps", 0, -1);
  events.add(broken);
  CHECK(events.count() == 0);
  CHECK(json::parse(events.text())["traceEvents"].empty());
}

}  // namespace of_trace_events_test
