#include "cli/link/newest_statuses.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "cli/views/parts/document.hpp"

namespace atl {

Result<std::vector<nlohmann::json>> newest_statuses(CoordinatorClient& client) {
  constexpr std::size_t kRunsAsked = 10;
  ATOLL_ASSIGN(const nlohmann::json runs, client.ask("runs", nlohmann::json::object()));
  std::vector<nlohmann::json> statuses;
  for (const nlohmann::json& run : list_at(runs, "runs")) {
    if (statuses.size() == kRunsAsked) {
      break;
    }
    ATOLL_ASSIGN(nlohmann::json status, client.ask("status", {{"run", text_at(run, "id")}}));
    statuses.push_back(std::move(status));
  }
  return statuses;
}

}  // namespace atl
