#include "transport/base/availability.hpp"

#include <cmath>

#include "transport/base/bytes.hpp"

namespace atl {

std::string Availability::text() const {
  const auto whole_minutes = std::chrono::duration_cast<std::chrono::minutes>(watched).count();
  const std::string time = whole_minutes >= 2 ? std::to_string(whole_minutes) + " minutes" : human_duration(watched);
  return "there " + std::to_string(static_cast<int>(std::floor(100 * share()))) + " % of the last " + time + ", " +
         std::to_string(changes) + " change" + (changes == 1 ? "" : "s");
}

}  // namespace atl
