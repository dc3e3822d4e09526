#include "cli/local/progress.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

constexpr Duration kBetweenLines = std::chrono::seconds(10);

}  // namespace

void Progress::show(const nlohmann::json& document) {
  Terminal terminal = terminal_;
  terminal.columns = streams_.err_is_terminal ? terminal_.columns_or(80) : kNoEdge;
  const std::string line = render_progress(document, terminal);
  if (streams_.err_is_terminal) {
    streams_.err << "\r\x1b[K" << line << std::flush;
    open_ = true;
    return;
  }
  const nlohmann::json& run = object_at(document, "run");
  const std::string state = text_at(run, "state");
  const double round = number_at(run, "round").value_or(0);
  const TimePoint at = now();
  // A file wants to be read later: every change of state, and of rounds not more than a line in a while.
  if (state != last_state_ || (round > last_round_ && at - last_line_ >= kBetweenLines)) {
    streams_.err << line << "\n" << std::flush;
    last_state_ = state;
    last_round_ = round;
    last_line_ = at;
  }
}

void Progress::finish() {
  if (open_) {
    streams_.err << "\n" << std::flush;
    open_ = false;
  }
}

}  // namespace atl
