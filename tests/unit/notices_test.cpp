// Which notices come of which documents: each once, and none of what was known before.
#include "coordinator/service/notices.hpp"

#include "tests/catch.hpp"
#include "transport/identity/hmac.hpp"

namespace of_notices_test {

using namespace atl;
using namespace atl::coordinator;
using nlohmann::json;

namespace {

json runs_at(double second, const std::string& state, const std::string& reason = "") {
  return {{"now_unix_ms", second * 1000}, {"runs", {{{"id", "r-1"}, {"name", "text"}, {"state", state}, {"reason", reason}}}}};
}

json islands_at(double second, bool connected, double last_seen, const std::string& link = "lost") {
  return {
      {"now_unix_ms", second * 1000},
      {"islands", {{{"id", "i-1"}, {"name", "lyon"}, {"connected", connected}, {"link", link}, {"last_seen_unix_ms", last_seen * 1000}}}}};
}

const json kNoRuns = {{"now_unix_ms", 0}, {"runs", json::array()}};
const json kNoIslands = {{"now_unix_ms", 0}, {"islands", json::array()}};

std::vector<std::string> events(const std::vector<json>& notices) {
  std::vector<std::string> names;
  for (const json& notice : notices) {
    names.push_back(notice["event"]);
  }
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("notices: what is there at the first look of all is known, what ends later is told once") {
  NoticeBook book({}, json());
  CHECK(book.look(runs_at(0, "completed"), kNoIslands).empty());
  CHECK(book.look(runs_at(2, "completed"), kNoIslands).empty());
  NoticeBook other({}, json());
  CHECK(other.look(runs_at(0, "running"), kNoIslands).empty());
  const std::vector<json> told = other.look(runs_at(2, "failed", "no disk"), kNoIslands);
  REQUIRE(events(told) == Names{"run_ended"});
  CHECK(told[0]["text"] == "run text (r-1) has failed: no disk");
  CHECK(told[0]["run"]["id"] == "r-1");
  CHECK(told[0]["time_unix_ms"] == 2000);
  CHECK(other.look(runs_at(4, "failed", "no disk"), kNoIslands).empty());
  CHECK(other.look(runs_at(5, "running"), kNoIslands).empty());
  CHECK(events(other.look(runs_at(6, "completed"), kNoIslands)) == Names{"run_ended"});  // it was resumed
}

TEST_CASE("notices: an interruption is told once it has lasted, and that it is over only if it was told") {
  NoticeBook book({{}, std::chrono::seconds(30), std::chrono::minutes(5)}, json::object());
  CHECK(book.look(runs_at(0, "interrupted", "too few"), kNoIslands).empty());
  CHECK(book.look(runs_at(29, "interrupted", "too few"), kNoIslands).empty());
  CHECK(book.look(runs_at(29.5, "running"), kNoIslands).empty());
  CHECK(book.look(runs_at(31, "interrupted", "too few"), kNoIslands).empty());
  CHECK(events(book.look(runs_at(61, "interrupted", "too few"), kNoIslands)) == Names{"run_interrupted"});
  CHECK(book.look(runs_at(63, "interrupted", "too few"), kNoIslands).empty());
  CHECK(events(book.look(runs_at(65, "running"), kNoIslands)) == Names{"run_continues"});
  CHECK(book.look(runs_at(67, "running"), kNoIslands).empty());
}

TEST_CASE("notices: an island that is silent for long is told as lost, and as back, and a revoked one is not") {
  NoticeBook book({}, json::object());
  CHECK(book.look(kNoRuns, islands_at(100, true, 100, "up")).empty());
  CHECK(book.look(kNoRuns, islands_at(399, false, 100)).empty());
  const std::vector<json> told = book.look(kNoRuns, islands_at(400, false, 100));
  REQUIRE(events(told) == Names{"island_lost"});
  CHECK(told[0]["text"] == "nothing was heard of island lyon for 300 s");
  CHECK(book.look(kNoRuns, islands_at(500, false, 100)).empty());
  CHECK(events(book.look(kNoRuns, islands_at(501, true, 501, "up"))) == Names{"island_back"});
  CHECK(book.look(kNoRuns, islands_at(900, false, 501, "revoked")).empty());
}

TEST_CASE("notices: what was told is remembered, and what happened meanwhile is told") {
  NoticeBook before({}, json());
  (void)before.look(runs_at(0, "running"), islands_at(0, true, 0, "up"));
  NoticeBook after({}, before.memory());
  CHECK(events(after.look(runs_at(900, "completed"), islands_at(900, false, 1))) == Names{"run_ended", "island_lost"});
  NoticeBook again({}, after.memory());
  CHECK(again.look(runs_at(902, "completed"), islands_at(902, false, 1)).empty());
}

TEST_CASE("notices: only those that are wanted, and documents of another shape bring none") {
  NoticeBook book({{"island_lost"}, {}, {}}, json::object());
  CHECK(book.look(runs_at(0, "completed"), kNoIslands).empty());
  NoticeBook all({}, json{{"runs", 3}, {"islands", json::array()}});
  for (const json& odd :
       {json(), json(3), json::array(), json{{"runs", 3}, {"islands", "x"}}, json{{"runs", {1, nullptr}}, {"islands", {1}}}}) {
    CHECK(all.look(odd, odd).empty());
  }
}

TEST_CASE("HMAC-SHA-256 is that of RFC 4231") {
  CHECK(to_hex(hmac_sha256(as_bytes("Jefe"), as_bytes("what do ya want for nothing?"))) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace of_notices_test
