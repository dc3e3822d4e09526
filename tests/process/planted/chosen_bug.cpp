// Of the executable with planted bugs: which one, by its name in the environment.
#include <array>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "transport/base/planted.hpp"

namespace atl::planted {
namespace {

Bug from_environment() {
  static constexpr std::array<std::pair<std::string_view, Bug>, 3> kBugs = {
      {{"cancel_unwritten", Bug::cancel_unwritten}, {"islands_taken", Bug::islands_taken}, {"age_unnoticed", Bug::age_unnoticed}}};
  const char* name = std::getenv("ATOLL_PLANTED_BUG");
  for (const auto& [known, bug] : kBugs) {
    if (name != nullptr && known == name) {
      return bug;
    }
  }
  return Bug::none;
}

}  // namespace

Bug chosen = from_environment();

}  // namespace atl::planted
