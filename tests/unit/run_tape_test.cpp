// Where two runs parted, from their events.
#include "cli/recorded/run_tape.hpp"

#include "cli/views/views.hpp"
#include "tests/catch.hpp"

namespace of_run_tape_test {

using namespace atl;
using nlohmann::json;

namespace {

json committed(std::uint64_t round, const std::string& digest, const std::vector<std::string>& members,
               const std::vector<std::uint64_t>& tokens) {
  return {{"kind", "round_committed"},
          {"time_unix_ms", 1000 + round},
          {"fields", {{"round", round}, {"attempt", 1}, {"digest", digest}, {"members", members}, {"member_tokens", tokens}}}};
}
json said(const std::string& kind, const std::string& text) { return {{"kind", kind}, {"text", text}, {"fields", json::object()}}; }

RunTape tape_of(const std::vector<json>& events) {
  RunTape tape;
  for (const json& event : events) {
    take_event(tape, event);
  }
  return tape;
}

const std::vector<json> kShort = {committed(0, "d0", {"a", "b"}, {}), committed(1, "d1", {"a", "b"}, {10, 10})};

std::vector<json> longer(const json& next) {
  std::vector<json> events = kShort;
  events.push_back(next);
  return events;
}

}  // namespace

TEST_CASE("two runs part at the first round whose digests differ, for what was decided of it") {
  const RunTape plain = tape_of(longer(committed(2, "d2", {"a", "b"}, {10, 10})));
  struct Case {
    const char* what;
    json other;
    json why;
  };
  const std::vector<Case> cases = {{"the same", committed(2, "d2", {"a", "b"}, {10, 10}), json()},
                                   {"another member", committed(2, "x2", {"a", "c"}, {10, 10}), "members"},
                                   {"one less", committed(2, "x2", {"a"}, {10}), "members"},
                                   {"other weights", committed(2, "x2", {"a", "b"}, {10, 4}), "tokens"},
                                   {"other values", committed(2, "x2", {"a", "b"}, {10, 10}), "contributions"}};
  for (const Case& c : cases) {
    INFO(c.what);
    const json document = diff_document(plain, tape_of(longer(c.other)));
    CHECK(document["why"] == c.why);
    CHECK(document["parted"] == !c.why.is_null());
    CHECK(document["same_until"] == (c.why.is_null() ? 2 : 1));
    CHECK(document["at"] == (c.why.is_null() ? json() : json(2)));
  }
  CHECK(diff_document(tape_of({committed(0, "d0", {"a"}, {})}), tape_of({committed(0, "x0", {"a"}, {})}))["why"] == "initial-state");
}

TEST_CASE("a run that is only longer has not parted, and one without rounds has nothing in common") {
  const json longer_one = diff_document(tape_of(longer(committed(2, "d2", {"a"}, {1}))), tape_of(kShort));
  CHECK(longer_one["parted"] == false);
  CHECK(longer_one["same_until"] == 1);
  CHECK(render_diff(longer_one, {}).find("goes on to round 2") != std::string::npos);
  const json none = diff_document(RunTape{}, tape_of(kShort));
  CHECK(none["same_until"].is_null());
  CHECK(render_diff(none, {}).find("no round in common") != std::string::npos);
}

TEST_CASE("runs of which few old rounds are kept are compared in those that both still have") {
  std::vector<json> one = {committed(0, "d0", {"a"}, {}), committed(4, "d4", {"a"}, {10}), committed(8, "d8", {"a"}, {10})};
  one.push_back(said("island_left", "island b left"));
  for (const std::uint64_t round : {10, 12, 13}) {
    one.push_back(committed(round, "d" + std::to_string(round), {"a"}, {10}));
  }
  const std::vector<json> other = {committed(0, "d0", {"a"}, {}), committed(8, "d8", {"a"}, {10}), committed(12, "x12", {"a"}, {10}),
                                   committed(13, "x13", {"a"}, {10}), committed(14, "x14", {"a"}, {10})};
  const json document = diff_document(tape_of(one), tape_of(other));
  CHECK(document["same_until"] == 8);
  CHECK(document["at"] == 12);
  CHECK(document["first"]["before"] == json::array({"island b left"}));
}

TEST_CASE("rounds that were lost are not compared, and what came before the parting is told") {
  std::vector<json> events = longer(said("island_left", "island b left"));
  events.push_back({{"kind", "rolled_back"}, {"text", "round 1 lost"}, {"fields", {{"from", 1}, {"to", 0}, {"digest", "d0"}}}});
  events.push_back(committed(1, "x1", {"a"}, {10}));
  const json document = diff_document(tape_of(kShort), tape_of(events));
  CHECK(document["at"] == 1);
  CHECK(document["second"]["before"] == json({"round 1 lost"}));
  CHECK(render_diff(document, {}).find("other islands took part") != std::string::npos);
  CHECK(tape_of({committed(0, "d0", {}, {}), {{"kind", "rolled_back"}, {"fields", {{"to", 0}}}}}).rounds.empty());  // it began anew
}

TEST_CASE("settings that differ are named, the run's name is not one") {
  json spec = {{"run", {{"name", "one"}, {"seed", 1}}}, {"strategy", {{"codec", "f32"}}}};
  RunTape first;
  take_event(first, {{"kind", "run_submitted"}, {"fields", {{"spec", spec.dump()}}}});
  spec["run"]["name"] = "two";
  spec["strategy"]["codec"] = "fp4";
  RunTape second;
  take_event(second, {{"kind", "run_submitted"}, {"fields", {{"spec", spec.dump()}}}});
  CHECK(diff_document(first, second)["settings"] == json::array({{{"key", "strategy.codec"}, {"first", "f32"}, {"second", "fp4"}}}));
}

TEST_CASE("garbage among the events is passed over") {
  const RunTape tape = tape_of({json(),
                                json::array(),
                                {{"kind", 3}},
                                {{"kind", "round_committed"}, {"fields", 7}},
                                {{"kind", "run_submitted"}, {"fields", {{"spec", "{"}}}}});
  CHECK(tape.spec.empty());
  CHECK_FALSE(render_diff(diff_document(tape, tape), {}).empty());
}

}  // namespace of_run_tape_test
