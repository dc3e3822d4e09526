#include "cli/planning/measured_paths.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr Duration kShortest = std::chrono::milliseconds(200);
constexpr Duration kLongestProbe = std::chrono::seconds(30);
constexpr Duration kLate = std::chrono::seconds(4);  // after the last turn
constexpr Duration kAskEvery = std::chrono::milliseconds(250);

// Whether each connected island has told of its path from every other one.
bool all_told(const json& islands, double measurement) {
  std::size_t connected = 0;
  std::size_t told = 0;
  for (const json& island : list_at(islands, "islands")) {
    if (!flag_at(island, "connected")) {
      continue;
    }
    ++connected;
    for (const json& path : list_at(island, "paths")) {
      told += number_at(object_at(path, "measured"), "measurement").value_or(0) == measurement ? 1U : 0U;
    }
  }
  return told >= connected * (connected - 1);
}

}  // namespace

Result<json> measure_paths(CoordinatorClient& client, Duration each, std::ostream& err) {
  if (each < kShortest || each > kLongestProbe) {
    return Error{Code::invalid_argument, "--probe: a path is measured for " + human_duration(kShortest) + " to " +
                                             human_duration(kLongestProbe) + ", not " + human_duration(each)};
  }
  ATOLL_ASSIGN(const json asked,
               client.ask("measure_paths", {{"each_ms", std::chrono::duration_cast<std::chrono::milliseconds>(each).count()}}));
  const double measurement = number_at(asked, "measurement").value_or(0);
  const auto others = static_cast<Duration::rep>(std::max(1.0, number_at(asked, "islands").value_or(2) - 1));
  err << "measures the paths between " << others + 1 << " islands: " << human_duration(each * others) << std::endl;
  const TimePoint end = now() + each * others + kLate;
  for (;;) {
    pause_between_questions(kAskEvery);
    ATOLL_ASSIGN(json islands, client.ask("islands", json::object()));
    if (all_told(islands, measurement) || now() >= end) {
      return islands;
    }
  }
}

std::vector<PathFigures> measured_figures(const json& islands) {
  std::vector<PathFigures> figures;
  for (const json& island : list_at(islands, "islands")) {
    for (const json& path : flag_at(island, "connected") ? list_at(island, "paths") : json::array()) {
      if (const json& measured = object_at(path, "measured"); !measured.empty()) {
        figures.push_back(
            {text_at(path, "from"), text_at(island, "name"), number_at(measured, "bits_per_second"), number_at(measured, "round_trip_ms")});
      }
    }
  }
  std::ranges::stable_sort(figures, {}, [](const PathFigures& path) { return path.bits_per_second.value_or(0); });
  return figures;
}

}  // namespace atl
