// RunMetrics: what each round of a run brought, read whole from the coordinator (documents.md, "metrics"), and what follows from it.
// Threads: one.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/link/coordinator_client.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct RunMetrics {
  std::string id;
  std::string name;
  std::string state;
  std::vector<nlohmann::json> rows;  // by round
};

// With `island` that one alone. `after`: the round to go on behind; -1 for all. Errors: those of the client.
Result<RunMetrics> read_run_metrics(CoordinatorClient& client, const std::string& run, const std::string& island = {},
                                    std::int64_t after = -1);

// What a loss stands against.
enum class Against { rounds, steps, time, tokens };

// [where, loss] of the rounds whose `key` is known. `rounds` and `steps` are counts, `time` seconds since the first row, `tokens` the sum
// of what the contributions were trained on. Empty for `tokens` when rounds are missing (the ledger thins long runs): the sum would be
// wrong.
std::vector<std::pair<double, double>> points_of(const RunMetrics& metrics, Against against, const char* key);

// The loss at a place between two of its points, on the line through them. Nothing beyond the first and the last.
std::optional<double> at_place(const std::vector<std::pair<double, double>>& points, double where);

}  // namespace atl
