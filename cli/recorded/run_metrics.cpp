#include "cli/recorded/run_metrics.hpp"

#include <algorithm>

#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::size_t kPage = 1000;

bool has_all_rounds(const RunMetrics& metrics) {
  for (std::size_t i = 0; i < metrics.rows.size(); ++i) {
    if (number_at(metrics.rows[i], "round") != static_cast<double>(i)) {
      return false;
    }
  }
  return !metrics.rows.empty();
}

}  // namespace

Result<RunMetrics> read_run_metrics(CoordinatorClient& client, const std::string& run, const std::string& island, std::int64_t after) {
  RunMetrics metrics;
  json arguments = {{"run", run}, {"after", after}, {"limit", kPage}};
  if (!island.empty()) {
    arguments["island"] = island;
  }
  while (true) {
    ATOLL_ASSIGN(const json page, client.ask("metrics", arguments));
    metrics.id = text_at(page, "run");
    metrics.name = text_at(page, "name");
    metrics.state = text_at(page, "state");
    const json& rows = list_at(page, "metrics");
    metrics.rows.insert(metrics.rows.end(), rows.begin(), rows.end());
    if (rows.size() < kPage) {
      return metrics;
    }
    arguments["run"] = metrics.id;
    arguments["after"] = static_cast<std::int64_t>(number_at(page, "next").value_or(-1));
  }
}

std::vector<std::pair<double, double>> points_of(const RunMetrics& metrics, Against against, const char* key) {
  std::vector<std::pair<double, double>> points;
  if (against == Against::tokens && !has_all_rounds(metrics)) {
    return points;
  }
  const char* place = against == Against::rounds ? "round" : against == Against::steps ? "step" : "time_unix_ms";
  const double first_ms = metrics.rows.empty() ? 0 : number_at(metrics.rows.front(), "time_unix_ms").value_or(0);
  double tokens = 0;
  for (const json& row : metrics.rows) {
    tokens += number_at(row, "tokens").value_or(0);
    const auto loss = number_at(row, key);
    const auto at = number_at(row, place);
    if (loss && at) {
      points.emplace_back(against == Against::tokens ? tokens : against == Against::time ? (*at - first_ms) / 1000 : *at, *loss);
    }
  }
  std::ranges::stable_sort(points, {}, &std::pair<double, double>::first);
  return points;
}

std::optional<double> at_place(const std::vector<std::pair<double, double>>& points, double where) {
  if (points.empty() || where < points.front().first || where > points.back().first) {
    return std::nullopt;
  }
  const auto next = std::ranges::lower_bound(points, where, {}, &std::pair<double, double>::first);
  if (next->first <= where || next == points.begin()) {
    return next->second;
  }
  const auto& [x0, y0] = *(next - 1);
  return y0 + (next->second - y0) * (where - x0) / (next->first - x0);
}

}  // namespace atl
