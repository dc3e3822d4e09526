// Pauses: after which round this island stands, and how it goes on.
#include "agent/core/core_state.hpp"
#include "agent/core/rules/rule.hpp"

namespace atl::agent {

void Rule::heed_pause(const NewEpoch& message) {
  if (!message.pause_after) {
    run->life.note_unpaused(message.epoch);
  }
  end_pause();
}

// It takes part in a later epoch: the pause is over, though nobody told. What it was doing is finished first.
void Rule::end_pause() {
  if (run->life.pause_is_over() && run->outer.committed() >= *run->life.stands_after() && !settling()) {
    go_on_after_pause();
  }
}

std::optional<Round> Rule::paused_at() const { return run->life.stands_after(); }

bool Rule::settling() const { return run->rounds.applying() || run->rounds.merging() || run->checkpoints.writing(); }

}  // namespace atl::agent
