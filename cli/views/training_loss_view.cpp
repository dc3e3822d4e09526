// The loss of the newest steps, for runs whose trainers measure none on held-out data.
#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"

namespace atl {

std::optional<double> training_loss_of(const nlohmann::json& document) {
  double sum = 0;
  std::size_t count = 0;
  for (const nlohmann::json& island : list_at(document, "islands")) {
    if (const auto loss = number_at(island, "training_loss")) {
      sum += *loss;
      ++count;
    }
  }
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

}  // namespace atl
