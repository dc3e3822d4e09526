// The states of a run, as documents name them.
// Threads: pure.
#pragma once

#include <string_view>

#include "cli/views/terminal.hpp"

namespace atl {

[[nodiscard]] constexpr bool run_has_ended(std::string_view state) {
  return state == "completed" || state == "failed" || state == "cancelled";
}

[[nodiscard]] constexpr Style run_state_style(std::string_view state) {
  return state == "running" || state == "completed"    ? Style::good
         : state == "failed"                           ? Style::bad
         : state == "interrupted" || state == "paused" ? Style::attention
         : state == "cancelled"                        ? Style::dim
                                                       : Style::plain;
}

}  // namespace atl
