// The coordinator's documents as Prometheus reads them (text format 0.0.4). docs/metrics.md is the table of the names for people.
//
// Names end in their unit, base units only; what only grows ends in _total. What is not known (null in the document) has no line.
// Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace atl::coordinator {

// Where a metric's value comes from.
enum class MetricOf {
  run,         // status: "run"
  run_island,  // status: each of "islands"
  island,      // islands: each of "islands"
};

struct MetricName {
  std::string_view name;
  std::string_view type;  // counter | gauge
  std::string_view help;
  MetricOf of;
  std::string_view key;  // of the document
  double scale = 1;      // from the document's unit to the metric's
};

// In the order in which they are printed. Made otherwise: atoll_build_info, atoll_runs and those of the disk.
std::span<const MetricName> metric_names();

// runs: the document of all runs; islands: that of all islands; statuses: those of the runs that are told of one by one.
// version: of Atoll. Documents that are not as they should be lose lines, no more.
std::string metrics_text(std::string_view version, const nlohmann::json& runs, const nlohmann::json& islands,
                         const std::vector<nlohmann::json>& statuses);

}  // namespace atl::coordinator
