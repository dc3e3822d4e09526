// What the coordinator's page answers, over documents that a test writes; the cache; the metrics.
#include "coordinator/web/site.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "agent/service/agent_metrics.hpp"
#include "cli/commands/processes/relay_metrics.hpp"
#include "coordinator/web/metrics_text.hpp"
#include "coordinator/web/owner_view.hpp"
#include "coordinator/web/page_files.hpp"
#include "coordinator/web/web.hpp"
#include "tests/catch.hpp"
#include "tests/places.hpp"
#include "tests/skip.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/identity/sha256.hpp"

namespace of_web_site_test {

using namespace atl;
using namespace atl::coordinator;
using nlohmann::json;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

json status_document() {
  return json::parse(R"({"schema": 1, "now_unix_ms": 1000000, "run": {"id": "r-1", "name": "text", "state": "running", "round": 7,
    "rounds": 20, "outer_loss": 1.83, "local_loss": null, "tokens": 4300800, "tokens_per_second": 21000.5, "bytes_sent": 88154112,
    "compute_seconds": 590.5, "wait_seconds": 12.4, "members": 2, "min": 2, "checkpoint_round": null, "created_unix_ms": 1500,
    "ended_unix_ms": null}, "islands": [
    {"id": "i-1", "name": "a\"b\\\nc", "active": true, "tokens": 7, "tokens_per_second": null, "training_loss": 1.5, "compute_seconds": 1,
     "wait_seconds": 2, "bytes_sent": 3, "bytes_received": 4, "agent_memory_bytes": 5, "trainer_memory_bytes": 6}]})");
}

json islands_document() {
  return json::parse(R"({"islands": [{"id": "i-1", "name": "a", "connected": true, "last_seen_unix_ms": 2500,
    "uplink_bits_per_second": 8000, "downlink_bits_per_second": null, "uplink_budget_bits_per_second": null}]})");
}

// A coordinator with one run, which notes what it was asked.
struct Told {
  std::vector<std::string> asked;
  Result<std::string> operator()(const std::string& verb, const std::string& arguments) {
    asked.push_back(verb + " " + arguments);
    const json given = json::parse(arguments);
    if (given.contains("run") && given["run"] != "text" && given["run"] != "r-1") {
      return Error{Code::not_found, "there is no such run"};
    }
    if (verb == "status") {
      return status_document().dump();
    }
    if (verb == "islands") {
      return islands_document().dump();
    }
    if (verb == "ping") {
      return std::string(R"({"version": "0.1.0"})");
    }
    if (verb == "images") {
      const json one = {{"task", "experts/0"}, {"step", 40}, {"island", "a"}, {"png_hex", given.contains("task") ? "89504e47" : ""}};
      return json{{"images", given.contains("task") && given["task"] != "experts/0" ? json::array() : json::array({one})}}.dump();
    }
    if (verb == "events") {
      json events = json::array();
      for (int sequence = given["after"].get<int>() + 1; sequence <= 3; ++sequence) {
        events.push_back({{"sequence", sequence}, {"text", "line\nwith a break"}});
      }
      return json{{"events", events}, {"next", 3}, {"ended", true}}.dump();
    }
    return json{
        {"now_unix_ms", 1'000'000},
        {"runs",
         {{{"id", "r-1"}, {"state", "running"}, {"ended_unix_ms", nullptr}}, {{"id", "r-0"}, {"state", "failed"}, {"ended_unix_ms", 5}}}}}
        .dump();
  }
};

HttpAnswer get(Site& site, const std::string& path, std::map<std::string, std::string> query = {}, std::string last = "") {
  return site.answer({path, std::move(query), std::move(last)});
}

}  // namespace

TEST_CASE("the page's addresses lead to the page, its files and the coordinator's documents") {
  Told told;
  Site site([&](const auto& verb, const auto& arguments) { return told(verb, arguments); });
  for (const char* path : {"/", "/r/text", "/r/text/summary", "/i/reef", "/r/<script>"}) {
    INFO(path);
    const HttpAnswer answer = get(site, path);
    CHECK(answer.status == 200);
    CHECK(answer.type == "text/html; charset=utf-8");
    CHECK_FALSE(has(answer.body, "<script>alert"));
  }
  for (const EmbeddedFile& file : page_files()) {
    CHECK(get(site, "/" + std::string(file.name)).body == file.bytes);
  }
  for (const char* path :
       {"/etc/passwd", "/../index.html", "/r", "/x/y", "/api", "/api/tokens", "/api/runs/text/tokens", "/api/runs/a/b/c", "/.", "//"}) {
    INFO(path);
    CHECK(get(site, path).status == 404);
  }
  for (const char* path : {"", "*", "api/runs"}) {  // what is left of "GET # HTTP/1.1" is empty
    INFO(path);
    CHECK(get(site, path).status == 400);
  }
  CHECK(told.asked.empty());
  CHECK(json::parse(get(site, "/api/runs/text").body)["run"]["round"] == 7);
  CHECK(json::parse(get(site, "/api/islands").body)["islands"].size() == 1);
  CHECK(get(site, "/api/runs").status == 200);
  const HttpAnswer none = get(site, "/api/runs/nobody");
  CHECK(none.status == 404);
  CHECK(json::parse(none.body)["error"]["why"] == "there is no such run");
  CHECK(get(site, "/api/runs/text/metrics", {{"after", "12"}}).status == 200);
  CHECK(told.asked.back() == R"(metrics {"after":12,"run":"text"})");
  CHECK(get(site, "/api/runs/text/metrics", {{"after", "12 or 1"}}).status == 400);
}

TEST_CASE("a task's picture is at an address of its own") {
  Told told;
  Site site([&](const auto& verb, const auto& arguments) { return told(verb, arguments); });
  CHECK(json::parse(get(site, "/api/runs/text/images").body)["images"][0]["step"] == 40);
  const HttpAnswer picture = get(site, "/api/runs/text/picture", {{"task", "experts/0"}, {"step", "40"}});
  CHECK(told.asked.back() == R"(images {"run":"text","task":"experts/0"})");
  CHECK(picture.status == 200);
  CHECK(picture.type == "image/png");
  CHECK(picture.body == "\x89PNG");
  CHECK(get(site, "/api/runs/text/picture", {{"task", "router"}}).status == 404);
  CHECK(get(site, "/api/runs/nobody/picture", {{"task", "experts/0"}}).status == 404);
  CHECK(get(site, "/api/runs/text/picture").status == 400);
  CHECK(get(site, "/api/runs/text/picture", {{"task", ""}}).status == 400);
}

TEST_CASE("events are streamed from a sequence on, and a reader that comes back goes on where it was") {
  Told told;
  Site site([&](const auto& verb, const auto& arguments) { return told(verb, arguments); });
  HttpAnswer answer = get(site, "/api/runs/text/events", {{"since", "1"}});
  REQUIRE(answer.stream);
  CHECK(answer.type == "text/event-stream");
  std::string all;
  while (answer.stream(all)) {
  }
  CHECK_FALSE(has(all, "id: 1\n"));
  CHECK(has(all, "id: 2\ndata: {\"sequence\":2,\"text\":\"line\\nwith a break\"}\n\n"));
  CHECK(has(all, "id: 3\n"));
  CHECK(has(all, "event: ended\n"));
  std::string rest;
  HttpAnswer again = get(site, "/api/runs/text/events", {{"since", "1"}}, "2");
  again.stream(rest);
  CHECK_FALSE(has(rest, "id: 2\n"));
  CHECK(has(rest, "id: 3\n"));
  CHECK(get(site, "/api/runs/nobody/events").status == 404);
  CHECK(get(site, "/api/runs/text/events", {{"since", "-1"}}).status == 400);
  CHECK(get(site, "/api/runs/text/events", {}, "x").status == 400);
}

TEST_CASE("a document is asked for once however many look, and the less often the longer it takes") {
  int asked = 0;
  TimePoint time = from_unix_ms(1000);
  Duration cost = std::chrono::milliseconds(1);
  DocumentCache cache(
      [&](const std::string&, const std::string&) -> Result<std::string> {
        ++asked;
        time += cost;
        return std::to_string(asked);
      },
      [&] { return time; });
  const auto first = cache.get("status", "{}");
  for (int viewer = 0; viewer < 1000; ++viewer) {
    CHECK(cache.get("status", "{}") == first);
  }
  CHECK(asked == 1);
  time += std::chrono::milliseconds(1001);
  cost = std::chrono::milliseconds(200);
  CHECK(**cache.get("status", "{}") == "2");
  time += std::chrono::milliseconds(3900);
  CHECK(**cache.get("status", "{}") == "2");
  time += std::chrono::milliseconds(200);
  CHECK(**cache.get("status", "{}") == "3");
  for (int run = 0; run < 2000; ++run) {
    cache.get("status", std::to_string(run));  // strangers' names take no more than a bounded place
  }
  CHECK(asked == 2003);
}

TEST_CASE("the page is served on this machine only, and says what to do else") {
  for (const char* address : {"0.0.0.0:4480", "*:4480", "10.0.0.7:4480", "[::]:4480", "example.org:4480"}) {
    INFO(address);
    const auto parsed = parse_web_address(address);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == Code::invalid_argument);
    CHECK(has(parsed.error().why, "ssh -L 4480:127.0.0.1:4480"));
    CHECK_FALSE(has(parsed.error().why, "\n"));
  }
  CHECK_FALSE(parse_web_address("nonsense"));
  CHECK(parse_web_address("localhost:4480"));
  CHECK(parse_web_address("[::1]:4480"));
}

TEST_CASE("metrics have base units, escaped labels and no line for what is not known") {
  const std::string text = metrics_text("0.1.0", {{"runs", {{{"state", "running"}}}}}, islands_document(), {status_document()});
  CHECK(has(text, "atoll_build_info{version=\"0.1.0\"} 1\n"));
  CHECK(has(text, "atoll_runs{state=\"running\"} 1\n"));
  CHECK(has(text, "atoll_run_round{run=\"r-1\",name=\"text\"} 7\n"));
  CHECK(has(text, "atoll_run_created_timestamp_seconds{run=\"r-1\",name=\"text\"} 1.5\n"));
  CHECK_FALSE(has(text, "atoll_run_local_loss"));
  CHECK(has(text, "atoll_member_active{run=\"r-1\",name=\"text\",island=\"a\\\"b\\\\\\nc\",island_id=\"i-1\"} 1\n"));
  CHECK(has(text, "atoll_island_uplink_bytes_per_second{island=\"a\",island_id=\"i-1\"} 1000\n"));
  CHECK_FALSE(has(text, "downlink"));
  CHECK(metrics_text("", json::object(), json::parse(R"({"islands": [{"connected": 3}, {}]})"), {json::object()}).find("nan") ==
        std::string::npos);
}

// The rows of a page's table for what such a text tells of.
std::set<std::string> rows_of(const std::string& metrics) {
  std::istringstream lines(metrics);
  std::map<std::string, std::string> help;
  std::set<std::string> rows;
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string mark;
    std::string what;
    std::string name;
    words >> mark >> what >> name >> std::ws;
    std::string rest;
    std::getline(words, rest);
    if (what == "HELP") {
      help[name] = rest;
    } else if (what == "TYPE") {
      rows.insert("| `" + name + "` | " + rest + " | " + help[name] + " |");
    }
  }
  return rows;
}

// All that an agent tells of.
std::string agent_metrics() {
  const auto metrics = agent::AgentMetrics::start({"127.0.0.1:0", "a\"b", "0.1.0", "/"});
  REQUIRE(metrics);
  IslandReport report;
  report.run = RunId("r-1");
  report.tokens = 7;
  report.training_loss = 2.5;
  (*metrics)->note(Heartbeat{1, {report}});
  (*metrics)->connected(true);
  return (*metrics)->text();
}

TEST_CASE("an agent tells of its run, its link and its disk") {
  const std::string text = agent_metrics();
  CHECK(has(text, "atoll_agent_build_info{island=\"a\\\"b\",version=\"0.1.0\"} 1\n"));
  CHECK(has(text, "atoll_agent_connected{island=\"a\\\"b\"} 1\n"));
  CHECK(has(text, "atoll_agent_tokens_total{island=\"a\\\"b\",run=\"r-1\"} 7\n"));
  CHECK(has(text, "atoll_disk_free_bytes{island=\"a\\\"b\"} "));
  CHECK_FALSE(agent::AgentMetrics::start({"nonsense", "a", "0.1.0", "/"}));
}

TEST_CASE("docs/metrics.md has every metric with its type and its words, and no others") {
  std::stringstream page;
  page << std::ifstream(atl_test::source_folder() + "/docs/metrics.md").rdbuf();
  std::set<std::string> told;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("| `atoll_")) {
      told.insert(line);
    }
  }
  std::set<std::string> there = {"| `atoll_build_info` | gauge | Always 1; the label tells the coordinator's version. |",
                                 "| `atoll_runs` | gauge | Runs, by state. |"};
  for (const MetricName& metric : metric_names()) {
    there.insert("| `" + std::string(metric.name) + "` | " + std::string(metric.type) + " | " + std::string(metric.help) + " |");
  }
  there.merge(rows_of(agent_metrics()));
  there.merge(rows_of(relay_metrics_text({}, "frankfurt", "0.1.0")));
  CHECK(told == there);
}

TEST_CASE("the examples for Grafana and Prometheus name only metrics that there are") {
  std::set<std::string> names = {"atoll_disk_free_bytes", "atoll_disk_size_bytes"};
  for (const MetricName& metric : metric_names()) {
    names.insert(std::string(metric.name));
  }
  for (const char* file : {"grafana.json", "prometheus-alerts.yml"}) {
    std::stringstream read;
    read << std::ifstream(atl_test::source_folder() + "/examples/" + file).rdbuf();
    const std::string text = read.str();
    std::size_t found = 0;
    for (std::size_t at = text.find("atoll_"); at != std::string::npos; at = text.find("atoll_", at + 1)) {
      const std::string name = text.substr(at, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at) - at);
      INFO(file << ": " << name);
      CHECK(names.contains(name));
      ++found;
    }
    CHECK(found > 4);
  }
}

TEST_CASE("promtool finds nothing wrong with the metrics and the alerts") {
  if (std::system("command -v promtool >/dev/null 2>&1") != 0) {
    ATL_SKIP("promtool is not installed (Debian's prometheus)");
  }
  const atl_test::TemporaryFolder folder;
  const auto file = folder.write(
      "metrics", agent_metrics() + metrics_text("0.1.0", {{"runs", {{{"state", "running"}}}}}, islands_document(), {status_document()}));
  const std::string command = "promtool check rules " + atl_test::source_folder() +
                              "/examples/prometheus-alerts.yml >/dev/null && promtool check metrics <" + file.string() + " 2>&1";
  FILE* out = ::popen(command.c_str(), "r");
  REQUIRE(out != nullptr);
  std::string said;
  for (int c = 0; (c = std::fgetc(out)) != EOF;) {
    said += static_cast<char>(c);
  }
  const int ended = ::pclose(out);
  INFO(said);
  CHECK(ended == 0);
  CHECK(said.empty());
}

TEST_CASE("the owner of an island sees that island, and of the others how they wait for it") {
  json status = status_document();
  status["warnings"] = json::array({{{"text", "secret"}}});
  status["run"]["reason"] = "waits for other";
  status["islands"].push_back(
      json::parse(R"({"id": "i-2", "name": "other", "active": true, "tokens_per_second": 9, "kernels": "secret", "waits": [
    {"what": "ready", "island": "mine", "from": "", "text": "mine", "seconds": 2.5}, {"what": "link", "island": "third", "from": "mine", "text": "l", "seconds": 1},
    {"what": "ready", "island": "third", "from": "", "text": "third", "seconds": 7}]})"));
  status["islands"].push_back({{"id", "i-3"}, {"name", "mine"}, {"active", true}, {"step", 5}});
  const std::optional<json> view = status_for_owner(status, "mine");
  REQUIRE(view);
  const std::string text = view->dump();
  for (const char* hidden : {"other\"", "third", "secret", "i-2", "reason"}) {
    INFO(hidden);
    CHECK_FALSE(has(text, hidden));
  }
  REQUIRE((*view)["islands"].size() == 3);
  CHECK((*view)["islands"][1]["waits"].size() == 2);
  CHECK((*view)["islands"][1]["tokens_per_second"] == 9);
  CHECK((*view)["islands"][2]["step"] == 5);
  CHECK_FALSE(status_for_owner(status, "stranger"));
  CHECK_FALSE(islands_for_owner(islands_document(), "stranger"));
  CHECK(islands_for_owner(islands_document(), "a")->at("islands").size() == 1);
  CHECK_FALSE(status_for_owner(json::parse(R"({"run": 3, "islands": [7, {}]})"), "mine"));
}

TEST_CASE("words that an owner reads name no other island and no address of one") {
  const json islands =
      json::parse(R"({"islands": [{"name": "b"}, {"name": "a.b"}, {"name": "mine", "id": "i-1", "address": "tcp://1.2.3.4:7",
    "reason": "gets no data from island b. Open tcp://10.0.0.9:7000 of b for mine, or open tcp://1.2.3.4:7 of mine for a.b; about b-c nothing",
    "run": {"causes": ["b", "bb"]}, "waits": [{"text": "b"}]}]})");
  const std::optional<json> view = islands_for_owner(islands, "mine");
  REQUIRE(view);
  const json& row = view->at("islands").at(0);
  CHECK(row["reason"] ==
        "gets no data from island another, no. 1. Open an address of another, no. 1 for mine, or open tcp://1.2.3.4:7 of mine for "
        "another, no. 2; about b-c nothing");
  CHECK(row["address"] == "tcp://1.2.3.4:7");
  CHECK(row["run"]["causes"] == json({"another, no. 1", "bb"}));
  CHECK(row["waits"][0]["text"] == "b");
  const std::optional<json> status = status_for_owner({{"islands", islands["islands"]}}, "mine");
  REQUIRE(status);
  CHECK(status->at("islands").at(2)["reason"] == row["reason"]);
}

TEST_CASE("a viewer whose token is taken back reads no further in a stream that it has begun") {
  const atl_test::TemporaryFolder folder;
  std::atomic<bool> revoked = false;
  Told told;
  const std::string viewers = json{{"viewers", {{{"sha256", to_hex(sha256(as_bytes("secret")))}, {"island", ""}}}}}.dump();
  const auto web = Web::start({"127.0.0.1:0", "", "", folder.path()}, [&](const std::string& verb, const std::string& arguments) {
    return verb == "events"    ? Result<std::string>(R"({"events": [], "next": 3, "ended": false})")
           : verb != "viewers" ? told(verb, arguments)
           : revoked           ? Result<std::string>(R"({"viewers": []})")
                               : viewers;
  });
  REQUIRE(web);
  const HttpAnswer answer = (*web)->answer_viewer({"/api/runs/text/events", {}, "", "secret"});
  REQUIRE(answer.status == 200);
  REQUIRE(answer.stream);
  std::string piece;
  CHECK(answer.stream(piece));
  revoked = true;
  bool goes_on = true;
  for (int i = 0; i < 20 && goes_on; ++i) {
    goes_on = answer.stream(piece);
  }
  CHECK_FALSE(goes_on);
}

TEST_CASE("an owner's link leads to the island, and nowhere else") {
  Told told;
  Site site([&](const std::string& verb, const std::string& arguments) { return told(verb, arguments); }, {{}, 0.09});
  const auto get = [&](const std::string& path) { return site.answer_owner({path, {}, ""}, "a"); };
  CHECK(get("/").status == 303);
  CHECK(get("/i/a").status == 200);
  CHECK(get("/style.css").status == 200);
  CHECK(get("#").status == 400);
  CHECK(get("/api/islands").status == 200);
  CHECK(get("/api/about").body == R"({"island":"a","price_per_gigabyte":0.09,"schema":1})");
  for (const char* path : {"/i/b", "/r/text", "/metrics", "/api/runs", "/api/runs/text", "/api/runs/text/events", "/api/x", "/i/a/b"}) {
    INFO(path);
    CHECK(get(path).status == 403);
  }
}

}  // namespace of_web_site_test
