#include "cli/views/parts/run_state.hpp"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

using nlohmann::json;

double share_of(std::optional<double> done, std::optional<double> all) {
  return done && all && *all > 0 ? std::clamp(*done / *all, 0.0, 1.0) : 0;
}

// Rounds are counted, not measured: "1234", not "1.23 k".
std::string round_text(std::optional<double> round) {
  return round && *round >= 0 && *round < 1e15 ? std::to_string(static_cast<std::uint64_t>(*round)) : count_text(round);
}

bool by_tokens(const json& run) { return number_at(run, "token_limit").has_value(); }

}  // namespace

double run_share_done(const json& run) {
  return std::max(share_of(number_at(run, "round"), number_at(run, "rounds")),
                  share_of(number_at(run, "tokens_committed"), number_at(run, "token_limit")));
}

std::string rounds_done_text(const json& run) {
  const std::string round = round_text(number_at(run, "round"));
  if (by_tokens(run)) {
    return round + ", with " + count_text(number_at(run, "tokens_committed")) + " of " + count_text(number_at(run, "token_limit")) +
           (flag_at(run, "images") ? " images" : " tokens");
  }
  return round + " of " + round_text(number_at(run, "rounds"));
}

std::string rounds_done_cell(const json& run) {
  const std::string round = round_text(number_at(run, "round"));
  if (by_tokens(run)) {
    const double done = run_share_done(run);
    return round + ", " + share_text(done, 1 - done);
  }
  return number_at(run, "rounds").value_or(0) > 0 ? round + "/" + round_text(number_at(run, "rounds")) : round;
}

}  // namespace atl
