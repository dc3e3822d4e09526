#include "agent/service/standing_notes.hpp"

#include "transport/base/log.hpp"
#include "transport/base/service_manager.hpp"

namespace atl::agent {

void StandingNotes::note(const Standing& standing, const std::string& island) {
  if (standing.run == told_.run && standing.state == told_.state && standing.active == told_.active) {
    return;
  }
  if (!standing.run.empty()) {
    const bool rare =
        standing.run != told_.run || standing.active != told_.active || standing.state == "catching-up" || standing.state == "finished";
    log(rare ? LogLevel::info : LogLevel::debug, "run " + standing.run.text + ", island " + island + ": " + standing.state +
                                                     (standing.reason.empty() ? "" : ": " + standing.reason) + " (round " +
                                                     std::to_string(standing.committed.value) + ")");
  }
  tell_service_manager(standing.run.empty() ? "STATUS=waits for a run" : "STATUS=run " + standing.run.text + ": " + standing.state);
  told_ = standing;
}

}  // namespace atl::agent
