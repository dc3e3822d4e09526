// The states of a run, as documents name them, and how far it is.
// Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/views/parts/terminal.hpp"

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

// The share of a run that is done, from 0 to 1: of its rounds, or of `training.tokens` where it is further by these, since the run ends
// with what comes first. 0 where the document does not say.
[[nodiscard]] double run_share_done(const nlohmann::json& run);
// The same in words: "7 of 20", and of a run by tokens "7, with 1.20 M of 5.00 M tokens", since how many rounds it will have is not known.
[[nodiscard]] std::string rounds_done_text(const nlohmann::json& run);
// For a column: "7/20", and of a run by tokens "7, 24 %".
[[nodiscard]] std::string rounds_done_cell(const nlohmann::json& run);

}  // namespace atl
