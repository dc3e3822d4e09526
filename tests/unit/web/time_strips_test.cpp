// How islands spent their time, from spans to what a screen shows.
#include "coordinator/web/time_strips.hpp"

#include <nlohmann/json.hpp>

#include "tests/catch.hpp"

namespace of_web_time_strips_test {

using atl::coordinator::TimeStrips;
using nlohmann::json;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kBegin = 1'767'225'600 * kSecond;

json span(const char* island, const char* activity, double from, double length, const char* cause = nullptr, const char* peer = nullptr,
          int amount = 0) {
  return {{"island", island},
          {"activity", activity},
          {"cause", cause == nullptr ? json() : json(cause)},
          {"peer", peer == nullptr ? json() : json(peer)},
          {"start_unix_ns", kBegin + static_cast<std::int64_t>(from * 1e9)},
          {"length_ns", static_cast<std::int64_t>(length * 1e9)},
          {"amount", amount}};
}

int sum(const json& lane) {
  int total = 0;
  for (const json& part : lane) {
    total += part.get<int>();
  }
  return total;
}

}  // namespace

TEST_CASE("a strip tells which part of each bin an island spent on what, and for what it waited longest") {
  TimeStrips strips;
  strips.take({{"next", 5},
               {"spans",
                {span("reef", "steps", 0, 180), span("reef", "wait", 180, 60, "the link a → b"), span("reef", "wait", 239.5, 0.2, "shoal"),
                 span("shoal", "steps", 0, 240), span("reef", "receive", 180, 60, nullptr, "shoal", 7'500'000)}}});
  CHECK(strips.next() == 5);
  const json document = strips.strips(0, 0);
  const std::size_t bins = document["bins"];
  REQUIRE(document["islands"].size() == 2);
  const json& reef = document["islands"][0];
  CHECK(reef["name"] == "reef");
  CHECK(document["from_unix_ms"] == kBegin / 1'000'000);
  CHECK(document["to_unix_ms"] == kBegin / 1'000'000 + 240'000);
  CHECK(reef["computing"].size() == bins);
  CHECK(sum(reef["computing"]) == static_cast<int>(bins * 75));
  CHECK(reef["computing"][bins * 3 / 4 - 1] == 100);
  CHECK(reef["computing"][bins * 3 / 4] == 0);
  CHECK(reef["waiting"][bins - 1] == 100);  // never more, though two waits overlap
  CHECK(sum(reef["exchanging"]) == static_cast<int>(bins * 25));
  CHECK_FALSE(reef.contains("storing"));
  CHECK(reef["waits"].size() == bins / 4);
  CHECK(reef["waits"].back()["text"] == "the link a → b");
  CHECK(document["links"] == json::parse(R"([{"from": "shoal", "to": "reef", "bytes": 7500000, "seconds": 60.0}])"));

  const json part = strips.strips(kBegin / 1'000'000 + 120'000, kBegin / 1'000'000 + 240'000);
  CHECK(sum(part["islands"][0]["computing"]) == static_cast<int>(bins * 50));
}

TEST_CASE("strips are bounded, whatever comes") {
  TimeStrips strips;
  strips.take(json::parse(R"({"next": "x", "spans": [3, {}, {"island": 7, "activity": "steps"},
    {"island": "a", "activity": "sleeps", "start_unix_ns": 5, "length_ns": 5}, {"island": "a", "activity": "steps", "start_unix_ns": -5,
    "length_ns": 9223372036854775807}]})"));
  CHECK(strips.strips(0, 0)["to_unix_ms"].get<std::int64_t>() >= 0);
  CHECK(strips.strips(INT64_MAX - 1, INT64_MAX)["bins"] == TimeStrips::kBins);
  CHECK(strips.strips(-5, -4)["bins"] == TimeStrips::kBins);
  json spans = json::array();
  for (int island = 0; island < 100; ++island) {
    const std::string name = "island-" + std::to_string(island);
    spans.push_back(span(name.c_str(), "wait", 0, island + 1));
  }
  strips.take({{"next", 9}, {"spans", spans}});
  const json document = strips.strips(0, 0);
  CHECK(document["islands"].size() == TimeStrips::kMostIslands);
  CHECK(document["islands_known"].get<int>() >= 100);
  for (const json& island : document["islands"]) {
    CHECK(island["name"] != "island-99");  // who waits most is not the one that others wait for
  }
}

}  // namespace of_web_time_strips_test
