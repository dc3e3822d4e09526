#include "cli/progress.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/views/document.hpp"
#include "cli/views/views.hpp"

namespace atl {

void Progress::show(const nlohmann::json& document) {
  const std::string line = render_progress(document, terminal_);
  if (streams_.err_is_terminal) {
    streams_.err << "\r\x1b[K" << line << std::flush;
    open_ = true;
    return;
  }
  const nlohmann::json& run = object_at(document, "run");
  const std::string present = text_at(run, "state") + count_text(number_at(run, "round"));
  if (present != last_) {
    streams_.err << line << "\n" << std::flush;
    last_ = present;
  }
}

void Progress::finish() {
  if (open_) {
    streams_.err << "\n" << std::flush;
    open_ = false;
  }
}

}  // namespace atl
