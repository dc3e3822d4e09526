// What each round brought: printed, drawn, compared, and as event files that a second reader reads back.
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/recorded/run_metrics.hpp"
#include "cli/recorded/tensorboard.hpp"
#include "cli/views/parts/chart.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/views.hpp"
#include "tests/catch.hpp"
#include "tests/cli/scripted_coordinator.hpp"
#include "tests/temporary_folder.hpp"

namespace of_metrics_command_test {

using namespace atl;
using nlohmann::json;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

json row(int round, double loss) {
  return {{"round", round},
          {"time_unix_ms", 1'767'225'600'000 + round * 2000},
          {"step", round * 10},
          {"islands", 2},
          {"outer_loss", loss},
          {"local_loss", nullptr},
          {"training_loss", loss + 0.5},
          {"norm", 0.5},
          {"wait_seconds", 0.25},
          {"tokens", round == 0 ? 0 : 100},
          {"bytes_sent", round == 0 ? 0 : 7000}};
}

// Two runs; the first has three pages of a thousand rounds and one of four if it is asked for "long".
Reply answer(const std::string& verb, const json& arguments) {
  const std::string run = arguments.value("run", "");
  if (verb == "metrics") {
    json rows = json::array();
    const int last = run == "long" || run == "r-long" ? 3003 : 20;
    for (int round = arguments["after"].get<int>() + 1; round <= last && rows.size() < arguments["limit"]; ++round) {
      rows.push_back(row(round, (run == "two" || run == "r-two" ? 4.0 : 5.0) * std::exp(-0.1 * round)));
    }
    return document_reply({{"schema", 1},
                           {"run", run.starts_with("r-") ? run : "r-" + run},
                           {"name", run},
                           {"state", "completed"},
                           {"next", rows.empty() ? arguments["after"] : rows.back()["round"]},
                           {"metrics", rows}});
  }
  if (verb == "events") {
    return document_reply(
        {{"events",
          {{{"kind", "run_submitted"}, {"fields", {{"spec", json{{"strategy", {{"inner_steps", run == "r-two" ? 60 : 30}}}}.dump()}}}}}}});
  }
  json document = documented("status");
  document["run"]["id"] = "r-" + run;
  document["run"]["name"] = run;
  return document_reply(document);
}

// A reader of TensorFlow's records and event messages of its own: it shares nothing with the writer but the published format.
struct Scalar {
  double wall_time = 0;
  std::uint64_t step = 0;
  float value = 0;
};
std::uint64_t little(const std::string& bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes.at(at + i))) << (8 * i);
  }
  return value;
}
std::uint32_t unmasked(std::uint64_t masked) {
  const auto rotated = static_cast<std::uint32_t>(masked) - 0xA282EAD8U;
  return (rotated >> 17U) | (rotated << 15U);
}
// Field number → values: raw bytes of what has a length, eight or four bytes of fixed ones, eight of a varint.
std::map<unsigned, std::vector<std::string>> fields_of(const std::string& bytes) {
  std::map<unsigned, std::vector<std::string>> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) {
        return value;
      }
    }
  };
  while (at < bytes.size()) {
    const std::uint64_t key = varint();
    std::string value;
    if ((key & 7U) == 0) {
      const std::uint64_t number = varint();
      value.assign(reinterpret_cast<const char*>(&number), 8);
    } else {
      const std::size_t size = (key & 7U) == 1 ? 8 : (key & 7U) == 5 ? 4 : static_cast<std::size_t>(varint());
      value = bytes.substr(at, size);
      REQUIRE(value.size() == size);
      at += size;
    }
    fields[static_cast<unsigned>(key >> 3U)].push_back(value);
  }
  return fields;
}
std::map<std::string, std::vector<Scalar>> read_events(const std::string& file) {
  std::map<std::string, std::vector<Scalar>> scalars;
  bool first = true;
  for (std::size_t at = 0; at < file.size();) {
    const auto length = static_cast<std::size_t>(little(file, at, 8));
    CHECK(unmasked(little(file, at + 8, 4)) == crc32c(file.substr(at, 8)));
    const std::string bytes = file.substr(at + 12, length);
    REQUIRE(bytes.size() == length);
    CHECK(unmasked(little(file, at + 12 + length, 4)) == crc32c(bytes));
    at += 16 + length;
    auto event = fields_of(bytes);
    if (first) {
      CHECK(event.at(3).at(0) == "brain.Event:2");
      first = false;
      continue;
    }
    Scalar scalar;
    std::memcpy(&scalar.wall_time, event.at(1).at(0).data(), 8);
    scalar.step = little(event.at(2).at(0), 0, 8);
    auto summary = fields_of(event.at(5).at(0));
    for (const std::string& value : summary[1]) {
      auto parts = fields_of(value);
      std::memcpy(&scalar.value, parts.at(2).at(0).data(), 4);
      scalars[parts.at(1).at(0)].push_back(scalar);
    }
  }
  return scalars;
}

}  // namespace

TEST_CASE("metrics prints every round as CSV or JSON lines, however many pages they are") {
  ScriptedCoordinator coordinator(answer);
  const Called csv = coordinator.call({"metrics", "one"});
  CHECK(csv.exit == 0);
  CHECK(
      csv.out.starts_with("round,time_unix_ms,step,islands,outer_loss,local_loss,training_loss,norm,wait_seconds,tokens,bytes_sent\n"
                          "0,1767225600000,0,2,5.0,,5.5,0.5,0.25,0,0\n1,1767225602000,10,2,"));
  const Called lines = coordinator.call({"metrics", "long", "-o", "jsonl", "--island", "reef"});
  CHECK(lines.exit == 0);
  CHECK(std::ranges::count(lines.out, '\n') == 3004);
  CHECK(json::parse(lines.out.substr(0, lines.out.find('\n')))["outer_loss"] == 5.0);
  CHECK(coordinator.asked("metrics").back()["island"] == "reef");
  CHECK(coordinator.call({"metrics", "one", "--follow"}).out == csv.out);
  CHECK(coordinator.call({"metrics", "one", "-o", "xml"}).exit == 2);
  CHECK(coordinator.call({"metrics", "one", "-o", "tensorboard"}).exit == 2);
}

TEST_CASE("an event file for TensorBoard has every number of every round, as a reader of its own finds") {
  CHECK(crc32c("123456789") == 0xE3069283U);  // the check value of CRC-32C
  ScriptedCoordinator coordinator(answer);
  const atl_test::TemporaryFolder folder;
  const Called made = coordinator.call({"metrics", "one", "-o", "tensorboard", "--to", folder.path().string()});
  REQUIRE(made.exit == 0);
  const std::filesystem::path path = folder.path() / "one-r-one" / "events.out.tfevents.1767225600.atoll";
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  auto scalars = read_events(text.str());
  REQUIRE(scalars["loss/validation"].size() == 21);
  CHECK(scalars["loss/validation"][20].step == 20);
  CHECK(scalars["loss/validation"][20].value == static_cast<float>(5.0 * std::exp(-2.0)));
  CHECK(scalars["loss/validation"][1].wall_time == 1'767'225'602.0);
  CHECK(scalars["round/bytes sent"][3].value == 7000.0F);
  CHECK_FALSE(scalars.contains("loss/validation of islands"));  // nobody measured it
  const RunMetrics hostile{"r-1", "../../etc/x\n", "running", {}};
  const auto written = write_tensorboard(folder.path().string(), hostile);
  REQUIRE(written);
  CHECK(std::filesystem::path(*written).parent_path().parent_path() == folder.path());
}

TEST_CASE("plot draws curves with axes in a terminal, and as SVG") {
  ScriptedCoordinator coordinator(answer);
  const Called drawn = coordinator.call({"plot", "one", "two"});
  CHECK(drawn.exit == 0);
  CHECK(has(drawn.out, "validation loss\n"));
  CHECK(has(drawn.out, " ┤"));
  CHECK(has(drawn.out, "⠉"));
  CHECK(has(drawn.out, "inner steps"));
  CHECK(has(drawn.out, "a  one (r-one): 0.677\n"));
  std::istringstream lines(drawn.out);
  for (std::string line; std::getline(lines, line);) {
    CHECK(columns_of(line) <= 100 + 13);  // the axis' name stands behind it
  }
  const atl_test::TemporaryFolder folder;
  const std::string path = folder.path() / "loss.svg";
  CHECK(coordinator.call({"plot", "one", "-o", path, "--against", "tokens", "--log"}).exit == 0);
  std::ostringstream svg;
  svg << std::ifstream(path).rdbuf();
  CHECK(svg.str().starts_with("<svg"));
  CHECK(has(svg.str(), "logarithmic"));
  CHECK(has(svg.str(), ">2000<"));  // tokens of twenty rounds
  const std::string png = folder.path() / "loss.png";
  const Called drawn_as_png = coordinator.call({"plot", "one", "-o", png});
  if (std::system("command -v rsvg-convert >/dev/null 2>&1") == 0) {
    CHECK(drawn_as_png.exit == 0);
    std::ostringstream picture;
    picture << std::ifstream(png, std::ios::binary).rdbuf();
    CHECK(picture.str().starts_with("\x89PNG\r\n"));
  } else {
    CHECK(drawn_as_png.exit == 4);
    CHECK(has(drawn_as_png.err, "apt-get install librsvg2-bin"));
    CHECK_FALSE(std::filesystem::exists(png));
  }
  CHECK(coordinator.call({"plot"}).exit == 2);
}

TEST_CASE("a chart of nothing is nothing, and names are text") {
  CHECK(braille_chart({"x", "y", false, {{"a", {}}}}, {}).empty());
  CHECK(svg_chart({"x", "y", false, {{"a", {{1, 1}}}}}).empty());
  CHECK(braille_chart({"x", "y", true, {{"a", {{1, 0}, {2, -1}}}}}, {}).empty());
  CHECK_FALSE(braille_chart({"x", "y", false, {{"a", {{1, 3}, {2, 3}}}}}, {40, false}).empty());
  const std::string svg = svg_chart({"x", "y", false, {{"<script>alert(1)</script>", {{1, 3}, {2, 4}}}}});
  CHECK(has(svg, "&lt;script&gt;"));
  CHECK_FALSE(has(svg, "<script>"));
  CHECK(round_ticks(0, 10, 5) == std::vector<double>{0, 2, 4, 6, 8, 10});
  const std::vector<double> ticks = round_ticks(0.13, 0.87, 4);
  REQUIRE(ticks.size() == 4);
  CHECK(std::abs(ticks[2] - 0.6) < 1e-12);
  CHECK(round_ticks(1, 1, 4).empty());
  CHECK(round_ticks(0, INFINITY, 4).empty());
}

TEST_CASE("losses of two runs are compared where both have come to") {
  const std::vector<std::pair<double, double>> points = {{0, 5}, {10, 3}, {20, 2}};
  CHECK(at_place(points, 5) == 4);
  CHECK(at_place(points, 20) == 2);
  CHECK_FALSE(at_place(points, 20.5));
  CHECK_FALSE(at_place({}, 1));
  RunMetrics gap{"r", "n", "running", {row(0, 5), row(1, 4), row(3, 3)}};
  CHECK(points_of(gap, Against::tokens, "outer_loss").empty());
  CHECK(points_of(gap, Against::rounds, "outer_loss").size() == 3);
  CHECK(points_of(gap, Against::time, "outer_loss").back().first == 6);
  CHECK(points_of(gap, Against::steps, "local_loss").empty());

  ScriptedCoordinator coordinator(answer);
  const Called compared = coordinator.call({"compare", "one", "two"});
  CHECK(compared.exit == 0);
  CHECK(has(compared.out, "loss at 200 inner steps"));
  CHECK(has(compared.out, "loss at 2.00 k tokens"));
  CHECK(has(compared.out, "strategy.inner_steps  30     60"));
  const json document = json::parse(coordinator.call({"compare", "one", "two", "--json"}).out);
  CHECK(document["equal_steps"]["first"].get<double>() > document["equal_steps"]["second"].get<double>());
  CHECK(render_comparison(json::array(), {}).size() > 10);
}

TEST_CASE("runs and islands leave out what is long over, and say so") {
  ScriptedCoordinator coordinator([](const std::string& verb, const json&) {
    json document = documented(verb);
    json old = document[verb][0];
    old["id"] = "r-old";
    old["ended_unix_ms"] = old["last_seen_unix_ms"] = document["now_unix_ms"].get<std::int64_t>() - 25 * 3'600'000;
    old["connected"] = false;
    document[verb].push_back(old);
    return document_reply(document);
  });
  for (const char* verb : {"runs", "islands"}) {
    const Called some = coordinator.call({verb});
    CHECK_FALSE(has(some.out, "r-old"));
    CHECK(has(some.err, "--all shows them"));
    const Called all = coordinator.call({verb, "--all"});
    CHECK(has(all.out, "r-old"));
    CHECK(all.err.empty());
    CHECK(json::parse(coordinator.call({verb, "-o", "json"}).out)[verb].size() == 2);
  }
}

}  // namespace of_metrics_command_test
