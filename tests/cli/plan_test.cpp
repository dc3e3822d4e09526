// `atoll plan`: what it computes from a run file and islands, where it gets them, and what it refuses.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "agent/engine/built_in_model.hpp"
#include "cli/planning/pair_ways.hpp"
#include "cli/planning/planner.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/views/views.hpp"
#include "strategies/composition.hpp"
#include "strategies/specification/model_kind.hpp"
#include "tests/catch.hpp"
#include "tests/cli/scripted_coordinator.hpp"
#include "tests/places.hpp"
#include "tests/streaming_cost.hpp"
#include "tests/temporary_folder.hpp"

namespace of_plan_test {

using namespace atl;
using nlohmann::json;

namespace {

const std::string kStreaming = atl_test::source_folder() + "/examples/streaming-diloco-text.toml";
const std::string kDiLoCo = atl_test::source_folder() + "/examples/diloco-text.toml";
const std::vector<std::string> kTwo = {"--island", "a=100ms,8mbit,8mbit,20ms", "--island", "b=100ms,8mbit,8mbit,20ms", "--agent-ns", "1,1"};

Called plan(std::vector<std::string> arguments, const std::vector<std::string>& more = kTwo) {
  arguments.insert(arguments.begin(), "plan");
  arguments.insert(arguments.end(), more.begin(), more.end());
  return call(arguments, {{"ATOLL_STATE", "/nonexistent"}});
}

json planned(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const Called called = plan(std::move(arguments));
  INFO(called.err);
  REQUIRE(called.exit == 0);
  return json::parse(called.out);
}

RunSpec spec_of(const std::string& path) {
  const RunFile file = read_run_file(path).value();
  REQUIRE(file.valid());
  return file.spec;
}

}  // namespace

TEST_CASE("a plan of DiLoCo on two islands is arithmetic") {
  // 869,504 float32 values are 3,478,016 bytes: 3.478016 s at 8 Mbit/s. A round costs that, three round trips of 20 ms, 2 ns a
  // value of the agents' arithmetic and 10 ms. 2000 steps of 0.1 s; 66 rounds of 30 steps and one of 20.
  const json document = planned({kDiLoCo});
  CHECK(document["parameters"] == 869'504);
  CHECK(document["rounds"] == 67);
  CHECK(document["bytes_per_round"] == 3'478'016);
  const double round = 3.478016 + 0.060 + 869'504 * 2e-9 + 0.010;
  CHECK(document["seconds"].get<double>() == Approx(200.0 + 67 * round));
  CHECK(document["utilisation"].get<double>() == Approx(200.0 / (200.0 + 67 * round)));
  const json& island = document["islands"][0];
  CHECK(island["bytes_sent"] == 67 * 3'478'016);
  CHECK(island["waiting_seconds"].get<double>() == Approx(67 * round));
  CHECK(island["mean_bits_per_second"].get<double>() == Approx(67 * 3'478'016 * 8.0 / (200.0 + 67 * round)));
  CHECK(island["sustained_bound_bits_per_second"].get<double>() == Approx(67 * 3'478'016 * 8.0 * 0.95 / 200.0));
  CHECK(document["schedule"] == json::parse(R"([{"round": 1, "fragment": 0, "start": 30, "apply": 30, "last": false},
                                                {"round": 67, "fragment": 0, "start": 2000, "apply": 2000, "last": true}])"));
}

TEST_CASE("a plan counts what relays carry, and says over what each two islands exchange, the slowest first") {
  const auto path = [](const char* from, const char* way, double rate, const char* why = "") {
    return json{{"from", from}, {"passes", true}, {"way", way}, {"why_indirect", why}, {"measured", {{"bits_per_second", rate}}}};
  };
  const std::string why = "neither can dial the other, and both routers give each connection another port (symmetric NATs)";
  const json islands = {
      {"islands",
       {{{"name", "reef"}, {"paths", {path("shoal", "relay frankfurt", 45e6, why.c_str()), path("atoll", "direct", 90e6)}}},
        {{"name", "shoal"}, {"paths", {path("reef", "relay frankfurt", 40e6), path("atoll", "punched", 80e6)}}},
        {{"name", "atoll"}, {"paths", {path("reef", "direct", 95e6)}}}}}};
  const json pairs = pair_ways(islands, {"shoal", "reef", "atoll"});
  REQUIRE(pairs.size() == 3);
  CHECK(pairs[0] == json{{"islands", {"reef", "shoal"}}, {"way", "relay frankfurt"}, {"bits_per_second", 40e6}, {"why_indirect", why}});
  CHECK(pairs[1]["islands"] == json{"atoll", "reef"});
  CHECK(pairs[1]["bits_per_second"] == 90e6);
  CHECK(pairs[2]["way"] == "punched");
  CHECK(pairs[2]["bits_per_second"].is_null());  // one direction alone was measured
  // Of three islands each sends either of the others half; of two alone 2·N·b pass through the relay.
  const json plan_of_three = {
      {"bytes_per_round", 600},
      {"islands",
       {{{"name", "reef"}, {"bytes_sent", 6000}}, {{"name", "shoal"}, {"bytes_sent", 4000}}, {{"name", "atoll"}, {"bytes_sent", 6000}}}}};
  CHECK(relay_loads(pairs, plan_of_three) ==
        json::array({{{"relay", "frankfurt"}, {"pairs", 1}, {"bytes_per_round", 600.0}, {"bytes", 5000.0}}}));
  json two = planned({kDiLoCo});
  const json meet = {{{"islands", {"a", "b"}}, {"way", "relay frankfurt"}}};
  const json loads = relay_loads(meet, two);
  CHECK(loads[0]["bytes_per_round"] == 2 * two["bytes_per_round"].get<double>());
  CHECK(loads[0]["bytes"] == two["islands"][0]["bytes_sent"].get<double>() + two["islands"][1]["bytes_sent"].get<double>());
  two["relays"] = loads;
  two["pairs"] = pairs;
  const std::string shown = render_plan(two, Terminal{80, false});
  INFO(shown);
  CHECK(shown.find("relay frankfurt carries 7.0 MB a round and 466.1 MB in the run, for 1 pair of") != std::string::npos);
  CHECK(std::regex_search(shown, std::regex("reef +shoal +relay frankfurt +40.0 Mbit/s")));
  CHECK(shown.find("reef and shoal: neither can dial the other") != std::string::npos);
  CHECK(relay_loads(json::array(), two).empty());
}

TEST_CASE("a run that ends by its tokens is planned until then") {
  // Two islands of 16 sequences of 128 tokens each: 4,096 tokens a step. 500,000 tokens are 122.07 steps, which end with the fifth round
  // of 30.
  const atl_test::TemporaryFolder folder;
  std::ifstream example(kDiLoCo);
  std::string text(std::istreambuf_iterator<char>(example), {});
  const std::size_t training = text.find("[training]\n") + 11;
  const auto with_tokens = [&](const std::string& tokens) {
    const std::string file = (folder.path() / (tokens + ".toml")).string();
    std::ofstream(file) << text.substr(0, training) << "tokens = " << tokens << "\n" << text.substr(training);
    return file;
  };
  const RunSpec spec = spec_of(kDiLoCo);
  REQUIRE(2 * spec.training.batch * spec.training.sequence_length == 4096);
  const json document = planned({with_tokens("500_000")});
  CHECK(document["steps"] == 150);
  CHECK(document["step_limit"] == 2000);
  CHECK(document["token_limit"] == 500'000);
  CHECK(document["rounds"] == 5);
  CHECK(plan({with_tokens("500_000")}).out.find("150 steps (until 500 k tokens are committed; at most 2000), 5 rounds") !=
        std::string::npos);
  // Less than one round's, and more than the steps give.
  CHECK(planned({with_tokens("1")})["rounds"] == 1);
  CHECK(planned({with_tokens("9_000_000")})["steps"] == 2000);
  CHECK(plan({with_tokens("9_000_000")}).out.find("2000 steps (before 9.00 M tokens are committed), 67 rounds") != std::string::npos);
  CHECK(planned({kDiLoCo})["token_limit"].is_null());
}

TEST_CASE("what the agents' arithmetic costs is measured here, or given, and said") {
  const std::vector<std::string> fast = {"--island", "a=100ms,100gbit,100gbit,0s", "--island", "b=100ms,100gbit,100gbit,0s"};
  for (const char* file : {kDiLoCo.c_str(), kStreaming.c_str()}) {
    const json measured = json::parse(plan({file, "--json"}, fast).out);
    const json& costs = measured["agent_costs"];
    CHECK(costs["source"] == "measured on this machine");
    for (const char* key : {"form_seconds_per_value", "apply_seconds_per_value"}) {
      CHECK(costs[key].get<double>() > 1e-11);
      CHECK(costs[key].get<double>() < 1e-6);
    }
    CHECK(costs["round_seconds"] == 0.010);
    CHECK(plan({file}, fast).out.find(" (measured on this machine)\n") != std::string::npos);
  }
  std::vector<std::string> given = fast;
  given.insert(given.end(), {"--agent-ns", "100,1000.5"});
  const json document = json::parse(plan({kDiLoCo, "--json"}, given).out);
  CHECK(document["agent_costs"]["source"] == "given");
  CHECK(document["agent_costs"]["form_seconds_per_value"].get<double>() == Approx(100e-9));
  CHECK(document["seconds"].get<double>() == Approx(200.0 + 67 * (869'504 * 1100.5e-9 + 0.010 + 3'478'016 * 8 / 100e9)));
  CHECK(plan({kDiLoCo}, given).out.find("reckoned with 100.00 ns to form a value of a contribution and 1000.50 ns to apply one, and 10") !=
        std::string::npos);
  for (const char* bad : {"", "1", "1,", ",1", "1,x", "-1,1", "nan,1", "1,1,1", "1e30,1"}) {
    std::vector<std::string> wrong = fast;
    wrong.insert(wrong.end(), {"--agent-ns=" + std::string(bad)});
    const Called refused = plan({kDiLoCo}, wrong);
    INFO(bad << ": " << refused.err);
    CHECK((refused.exit == 2 || std::string(bad).empty()));
    CHECK((refused.err.find("two numbers are meant") != std::string::npos || std::string(bad).empty()));
  }
  // A sweep measures for each codec, and says so.
  const json swept = json::parse(plan({kDiLoCo, "--sweep", "--json"}, fast).out);
  CHECK(swept["agent_costs_source"] == "measured on this machine");
  std::map<std::string, std::set<double>> by_codec;
  for (const json& row : swept["settings"]) {
    by_codec[row["codec"].get<std::string>()].insert(row["agent_costs"]["apply_seconds_per_value"].get<double>());
  }
  CHECK(by_codec.size() == 4);
}

TEST_CASE("a plan says what the bytes cost, at a price for a gigabyte") {
  const json document = planned({kDiLoCo, "--price", "0.09/GB"});
  const double bytes = document["islands"][0]["bytes_sent"].get<double>();
  CHECK(document["islands"][0]["price"].get<double>() == Approx(bytes / 1e9 * 0.09));
  CHECK(document["price"].get<double>() == Approx(2 * bytes / 1e9 * 0.09));
  CHECK(plan({kDiLoCo, "--price", "9/GB"}).out.find("\nwhat the islands send costs 4.19, at 9 a GB\n") != std::string::npos);
  CHECK_FALSE(planned({kDiLoCo}).contains("price"));
  for (const char* wrong : {"0.09", "9 EUR/GB", "-1/GB", "nan/GB", "1/TB"}) {
    CHECK(plan({kDiLoCo, "--price", wrong}).exit == 2);
  }
  CHECK(plan({kDiLoCo, "--price", "1/GB", "--sweep"}).exit == 2);
}

TEST_CASE("a short run with outer momentum is noted in its plan") {
  CHECK(planned({kDiLoCo})["notes"].size() == 1);
  CHECK(plan({kDiLoCo}).out.find("\nnote: outer_momentum = 0.9 pays in long runs") != std::string::npos);
  CHECK(planned({atl_test::source_folder() + "/examples/local-text.toml"})["notes"].empty());
}

TEST_CASE("a run's own uplink is the plan's where the island's is faster") {
  const atl_test::TemporaryFolder folder;
  std::stringstream text;
  text << std::ifstream(kDiLoCo).rdbuf();
  const std::string with =
      folder.write("run.toml", std::regex_replace(text.str(), std::regex("\\[islands\\]"), "[islands]\nuplink = \"4mbit\"")).string();
  const json document = planned({with});
  CHECK(document["islands"][0]["uplink_bits_per_second"] == 4e6);
  const double round = 2 * 3.478016 + 0.060 + 869'504 * 2e-9 + 0.010;
  CHECK(document["seconds"].get<double>() == Approx(200.0 + 67 * round));
}

TEST_CASE("an island's own overlap in the run file is its overlap in the plan") {
  const atl_test::TemporaryFolder folder;
  std::stringstream text;
  text << std::ifstream(kStreaming).rdbuf();
  const std::string with =
      folder.write("run.toml", std::regex_replace(text.str(), std::regex("\\[islands\\]"), "[islands]\noverlap_steps = [\"b=5\"]"))
          .string();
  const std::vector<std::string> thin = {"--island", "a=100ms,1mbit,1mbit,20ms", "--island", "b=100ms,1mbit,1mbit,20ms", "--agent-ns",
                                         "1,1"};
  const json run = json::parse(plan({kStreaming, "--json"}, thin).out);
  const json own = json::parse(plan({with, "--json"}, thin).out);
  CHECK(own["islands"][0]["overlap_steps"] == 2);
  CHECK(own["islands"][1]["overlap_steps"] == 5);
  CHECK(own["rounds"] == run["rounds"]);
  CHECK(own["islands"][1]["peak_bits_per_second"].get<double>() == Approx(run["islands"][1]["peak_bits_per_second"].get<double>() * 2 / 5));
  CHECK(own["islands"][1]["bytes_sent"] == run["islands"][1]["bytes_sent"]);
}

TEST_CASE("a plan of Streaming DiLoCo: fragments, schedule and bytes are what agents will do") {
  const json document = planned({kStreaming});
  const RunSpec spec = spec_of(kStreaming);
  const Composition parts = compose(spec.strategy).value();
  const std::vector<std::uint64_t> values = fragment_values(spec, parts.fragments).value();
  REQUIRE(document["fragments"].size() == 3);
  std::set<int> layers;
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    CHECK(document["fragments"][i]["values"] == values[i]);
    total += values[i];
    for (const json& layer : document["fragments"][i]["layers"]) {
      CHECK(layers.insert(layer.get<int>()).second);
    }
    CHECK(document["fragments"][i]["embeddings_and_head"] == (i == 2));
  }
  CHECK(layers == std::set<int>{0, 1, 2, 3});
  CHECK(static_cast<double>(total) * 4 == model_parameter_bytes(spec));
  CHECK(document["islands"][0]["bytes_sent"] == atl_test::streaming_cost(values, parts, 2000, 2, 0).value().bytes);
  CHECK(document["schedule"].size() == 6);
  CHECK(document["schedule"][1] == json::parse(R"({"round": 2, "fragment": 1, "start": 40, "apply": 42, "last": false})"));
  CHECK(document["schedule"][5]["round"] == spec.rounds);
}

TEST_CASE("plans of people and of programs, of every example") {
  for (const auto& entry : std::filesystem::directory_iterator(atl_test::source_folder() + "/examples")) {
    if (entry.path().extension() != ".toml") {
      continue;
    }
    INFO(entry.path());
    if (spec_of(entry.path().string()).strategy.group == Group::expert) {
      const Called refused = plan({entry.path().string()});
      CHECK(refused.exit == 2);
      CHECK(refused.err.find("plan reckons with rounds") != std::string::npos);
      continue;
    }
    const json document = planned({entry.path().string()});
    CHECK(document["schema"] == 1);
    CHECK(document["utilisation"].get<double>() > 0);
    CHECK(document["utilisation"].get<double>() <= 1);
    for (const json& island : document["islands"]) {
      // No estimate beats the bound.
      const double bound = island["sustained_bound_bits_per_second"].get<double>() / 0.95;
      CHECK((bound == 0 || island["utilisation"].get<double>() <= island["uplink_bits_per_second"].get<double>() / bound + 1e-9));
    }
    const std::string text = plan({entry.path().string()}).out;
    for (const char* part : {"islands\n", "expected\n", "fragments\n", "schedule:", "the last synchronisation", "BOUND 95 %"}) {
      INFO(text);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a sweep marks the fewest bytes that reach the share wanted") {
  const json document = planned({kStreaming, "--sweep", "--utilisation", "0.9"});
  std::set<std::vector<std::string>> settings;
  const json* cheapest = nullptr;
  double fewest = 1e300;
  for (const json& row : document["settings"]) {
    CHECK(settings.insert({row["inner_steps"].dump(), row["fragments"].dump(), row["overlap_steps"].dump(), row["codec"].dump()}).second);
    const bool reaches = row["utilisation"].get<double>() >= 0.9;
    CHECK(row["reaches"] == reaches);
    if (row["cheapest"].get<bool>()) {
      CHECK(cheapest == nullptr);
      CHECK(reaches);
      CHECK(row["cheapest_of_inner_steps"] == true);
      cheapest = &row;
    }
    fewest = reaches ? std::min(fewest, row["bytes_sent_by_all"].get<double>()) : fewest;
  }
  // H of 30, 100 and 300; one, three and five fragments; overlaps of 0, 1, 2 and 5; four codecs.
  CHECK(settings.size() == 3 * 3 * 4 * 4);
  REQUIRE(cheapest != nullptr);
  CHECK((*cheapest)["bytes_sent_by_all"] == fewest);
  CHECK(plan({kStreaming, "--sweep"}).out.find("<- cheapest\n") != std::string::npos);
  const Called thin = plan({kDiLoCo, "--sweep"}, {"--island", "a=100ms,10kbit", "--island", "b=100ms,10kbit"});
  CHECK(thin.out.find("No setting computes 95 % of the time") != std::string::npos);
  // The row of the run file's own setting is the plan.
  const json own = planned({kDiLoCo});
  bool found = false;
  const json swept = planned({kDiLoCo, "--sweep"});
  for (const json& row : swept["settings"]) {
    if (row["inner_steps"] == 30 && row["fragments"] == 1 && row["overlap_steps"] == 0 && row["codec"] == "f32") {
      found = true;
      CHECK(row["seconds"] == own["seconds"]);
    }
  }
  CHECK(found);
}

TEST_CASE("the paper's table is printed beside ours") {
  const Called text = call({"plan", "--paper", "streaming-diloco-table-4"});
  CHECK(text.exit == 0);
  CHECK(text.out.find("68 of 75 cells are exactly the printed point, 75 within one point") != std::string::npos);
  CHECK(text.out.find("152.6 / 152.6 =") != std::string::npos);
  const json document = json::parse(call({"plan", "--paper", "streaming-diloco-table-4", "-o", "json"}).out);
  CHECK(document["cells"].size() == 75);
  CHECK(call({"plan", "--paper", "another"}).exit == 2);
}

TEST_CASE("what gossip saves in time is printed as a table to plot") {
  const Called told = call({"plan", "--paper", "noloco-latency", "-o", "json"});
  REQUIRE(told.exit == 0);
  const json rows = json::parse(told.out)["rows"];
  REQUIRE(rows.size() == 10);
  for (const json& row : rows) {
    CHECK(row["pair"].get<double>() == Approx(row["pair_closed_form"].get<double>()).epsilon(0.06));  // of 1,024 trials at the last
  }
  CHECK(rows[9]["islands"] == 1024);
  CHECK(rows[9]["constant_ratio"] == 10.0);
  CHECK(rows[9]["all_by_pairs"].get<double>() == Approx(1.2).margin(0.05));
  const std::string view = render_gossip_timing(json::parse(told.out), Terminal{});
  CHECK(view.find("ALL/PAIRS") != std::string::npos);
}

TEST_CASE("what interruptions leave of the time is printed beside the figures told elsewhere") {
  const Called text = call({"plan", "--paper", "decoupled-diloco-goodput"});
  REQUIRE(text.exit == 0);
  CHECK(text.out.find("QUORUM") != std::string::npos);
  const json cells = json::parse(call({"plan", "--paper", "decoupled-diloco-goodput", "-o", "json"}).out)["cells"];
  REQUIRE(cells.size() == 30);
  CHECK(cells[5]["method"] == "data-parallel, elastic");
  CHECK(cells[5]["chips"] == 150e3);
  CHECK(cells[5]["printed"] == 0.88);
  CHECK(cells[29]["islands"] == 16);
  CHECK(cells[29]["ours"].get<double>() == Approx(cells[29]["rule"].get<double>()).margin(0.04));
}

TEST_CASE("islands that cannot be are refused, naming the figure") {
  const auto refused = [](const std::vector<std::string>& islands, const std::string& part) {
    const Called called = plan({kDiLoCo}, islands);
    INFO(called.err);
    CHECK(called.exit == 2);
    CHECK(called.err.find(part) != std::string::npos);
  };
  refused({"--island", "a"}, "a name and '=' are missing");
  refused({"--island", "=1s,1mbit"}, "a name and '=' are missing");
  refused({"--island", "a=1s"}, "1 figure is given");
  refused({"--island", "a=1s,1mbit,1mbit,1ms,1"}, "5 figures are given");
  refused({"--island", "a=soon,1mbit"}, "soon");
  refused({"--island", "a=1s,fast"}, "fast");
  refused({"--island", "a=0s,1mbit"}, "a step takes longer");
  refused({"--island", "a=1s,0mbit"}, "0");
  refused({"--island", "a=1s,1mbit", "--island", "a=1s,1mbit"}, "given twice");
  refused({"--island", "a=1s,1mbit", "--utilisation", "1.5"}, "--utilisation is a share");
  refused({"--island", "a=1s,1mbit", "--utilisation", "0"}, "--utilisation is a share");
  CHECK(plan({atl_test::source_folder() + "/examples/local-text.toml", "--sweep"}).err.find("nothing to sweep") != std::string::npos);
  CHECK(plan({}).exit == 2);
  CHECK(plan({"/nonexistent.toml"}).exit == 2);
  const atl_test::TemporaryFolder folder;
  CHECK(plan({folder.write("bad.toml", "[run]\nname = \"a\"\n").string()}).err.find("missing key \"steps\"") != std::string::npos);
}

TEST_CASE("without --island the coordinator's measured figures are taken") {
  json islands = documented("islands");
  json status = documented("status");
  json runs = documented("runs");
  islands["islands"] =
      json::array({{{"name", "x"},
                    {"connected", true},
                    {"uplink_budget_bits_per_second", 6e6},
                    {"uplink_bits_per_second", 8e6},
                    {"downlink_bits_per_second", 9e6}},
                   {{"name", "y"}, {"connected", true}, {"uplink_bits_per_second", 4e6}, {"downlink_bits_per_second", 5e6}},
                   {{"name", "gone"}, {"connected", false}, {"uplink_bits_per_second", nullptr}, {"downlink_bits_per_second", nullptr}}});
  status["run"]["parameters"] = 869'504;
  // 2048 tokens a step: x computes a step in 0.1 s, y in 0.2 s.
  status["islands"] = json::array(
      {{{"name", "x"}, {"tokens", 204'800}, {"compute_seconds", 10.0}}, {{"name", "y"}, {"tokens", 204'800}, {"compute_seconds", 20.0}}});
  ScriptedCoordinator coordinator([&](const std::string& verb, const json&) {
    return document_reply(verb == "islands" ? islands : verb == "runs" ? runs : status);
  });
  const Called called = coordinator.call({"plan", kDiLoCo, "--json", "--round-trip", "30ms"});
  INFO(called.err);
  REQUIRE(called.exit == 0);
  const json document = json::parse(called.out);
  REQUIRE(document["islands"].size() == 2);
  CHECK(document["islands"][0]["step_seconds"].get<double>() == Approx(0.1));
  CHECK(document["islands"][1]["step_seconds"].get<double>() == Approx(0.2));
  CHECK(document["islands"][0]["source"] == "measured");
  CHECK(document["islands"][0]["uplink_bits_per_second"] == 6e6);
  CHECK(document["islands"][1]["uplink_bits_per_second"] == 4e6);
  CHECK(document["islands"][1]["downlink_bits_per_second"] == 5e6);
  CHECK(document["islands"][1]["round_trip_seconds"].get<double>() == Approx(0.03));

  const auto says = [&](int exit, const std::string& part) {
    const Called refused = coordinator.call({"plan", kDiLoCo});
    INFO(refused.err);
    CHECK(refused.exit == exit);
    CHECK(refused.err.find(part) != std::string::npos);
    CHECK(refused.err.find("--island") != std::string::npos);
  };
  status["run"]["parameters"] = 1000;  // another model
  says(3, "no run has measured how long a step of this model takes on x and y");
  {
    const Called assumed = coordinator.call({"plan", kDiLoCo, "--json", "--step-time", "400ms"});
    REQUIRE(assumed.exit == 0);
    CHECK(json::parse(assumed.out)["islands"][0]["step_seconds"].get<double>() == Approx(0.4));
    CHECK(json::parse(assumed.out)["islands"][0]["source"] == "step assumed");
  }
  islands["islands"][1]["uplink_bits_per_second"] = nullptr;
  says(3, "nobody has measured the links of y");
  islands["islands"] = json::array();
  says(4, "no island is connected");
  CHECK(call({"plan", kDiLoCo}, {{"ATOLL_STATE", "/nonexistent"}}).err.find("--island NAME=STEP_TIME,UPLINK gives them") !=
        std::string::npos);
}

TEST_CASE("plan --probe has the paths measured, waits for that, and plans with what came of it") {
  json islands = documented("islands");
  const auto measured_in = [](int number, double rate, double trip) {
    return json{{"measurement", number}, {"at_unix_ms", 0}, {"round_trip_ms", trip}, {"bits_per_second", rate}};
  };
  const auto island = [&](const std::string& name, const std::string& other, int number, double rate, double trip) {
    return json{{"name", name},
                {"connected", true},
                {"paths", json::array({{{"from", other}, {"passes", true}, {"why", ""}, {"measured", measured_in(number, rate, trip)}}})}};
  };
  json runs = documented("runs");
  runs["runs"] = json::array();
  int asked = 0;
  int looked = 0;
  ScriptedCoordinator coordinator([&](const std::string& verb, const json& arguments) {
    if (verb == "measure_paths") {
      ++asked;
      CHECK(arguments["each_ms"] == 300);
      return document_reply(json{{"schema", 1}, {"now_unix_ms", 0}, {"measurement", 7}, {"islands", 2}});
    }
    if (verb == "islands") {
      const bool done = ++looked >= 3;  // before, one has told of an older measurement only
      islands["islands"] = json::array({island("x", "y", 7, 8e6, 30), island("y", "x", done ? 7 : 6, done ? 2e6 : 9e9, 31)});
      return document_reply(islands);
    }
    return document_reply(runs);
  });
  const Called called = coordinator.call({"plan", kDiLoCo, "--json", "--probe", "300ms", "--step-time", "1s"});
  INFO(called.err);
  REQUIRE(called.exit == 0);
  CHECK(asked == 1);
  CHECK(looked == 3);
  CHECK(called.err.find("measures the paths between 2 islands: 300 ms") != std::string::npos);
  const json document = json::parse(called.out);
  CHECK(document["islands"][0]["uplink_bits_per_second"] == 2e6);  // what y got from x
  CHECK(document["islands"][0]["downlink_bits_per_second"] == 8e6);
  CHECK(document["islands"][0]["round_trip_seconds"].get<double>() == Approx(0.031));
  CHECK(coordinator.call({"plan", kDiLoCo, "--probe", "300ms", "--island", "a=1s,1mbit"}).exit == 2);
  const Called short_time = coordinator.call({"plan", kDiLoCo, "--probe", "1ms"});
  CHECK(short_time.exit == 2);
  CHECK(short_time.err.find("--probe: a path is measured for 200 ms to 30.0 s, not 1 ms") != std::string::npos);
}

}  // namespace of_plan_test
