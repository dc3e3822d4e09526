// What `atoll trace` writes: events that a trace viewer reads, one process for each island.
#include <nlohmann/json.hpp>

#include "cli/trace_events.hpp"
#include "tests/catch.hpp"

using atl::TraceEvents;
using nlohmann::json;

namespace {

json span(const char* island, const char* activity, std::int64_t start_us, std::int64_t length_us, const char* peer = nullptr) {
  return {{"island", island},
          {"activity", activity},
          {"round", 7},
          {"fragment", 2},
          {"peer", peer == nullptr ? json() : json(peer)},
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
  const json wait = named(file, "wait for shoal, round 7");
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
  CHECK(events.count() == 0);
  CHECK(json::parse(events.text())["traceEvents"].empty());
}
