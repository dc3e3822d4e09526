#include "agent/core/retention.hpp"

#include <algorithm>
#include <utility>

#include "agent/core/core_state.hpp"

namespace atl::agent {
namespace {

constexpr std::uint64_t kLongestAge = 1ULL << 32U;  // seconds, 136 years: what an age may be without wrapping

// A checkpoint of rounds that the coordinator has never heard of: its ledger is older than this run.
bool is_further_on(const RunOver& over, const std::vector<StoredCheckpoint>& checkpoints) {
  return std::ranges::any_of(checkpoints, [&](const StoredCheckpoint& checkpoint) {
    return std::pair(checkpoint.epoch, checkpoint.round) > std::pair(over.epoch, over.round);
  });
}

}  // namespace

KeepDecision decide_keep(const KeepInput& input) {
  KeepDecision decision;
  if (input.in_hand) {
    return decision;
  }
  if (is_further_on(input.over, input.checkpoints)) {
    decision.further_on = true;
    return decision;
  }
  if (input.over.removed) {
    decision.kept_by_owner = input.settings.keep_removed;
    if (!input.settings.keep_removed) {
      decision.keep = Keep::nothing;
      decision.why = "an operator removed the run";
    }
    return decision;
  }
  if (!input.settings.keep_ended || input.read) {
    return decision;
  }
  const Duration over_since = std::chrono::seconds(std::min(input.over.ended_seconds, kLongestAge));
  if (over_since >= *input.settings.keep_ended) {
    decision.keep = Keep::nothing;
    decision.least_age = *input.settings.keep_ended;
    decision.why = "it ended " + human_duration(over_since) + " ago, and ended runs are kept for " +
                   human_duration(*input.settings.keep_ended) + " (--keep-ended)";
  } else if (over_since >= kOlderKept && input.checkpoints.size() > 1) {
    decision.keep = Keep::newest;
    decision.least_age = kOlderKept;
    decision.why = "it ended " + human_duration(over_since) + " ago, and of ended runs the newest checkpoint is kept";
  }
  return decision;
}

// ----------------------------------------------------------------------------------------------------------- in the core

// After every welcome, and now and then: whatever is not answered is asked again.
void Core::State::say_holds() {
  next_holds = now + settings.ask_over;
  Holds holds;
  for (const RunId& id : stored.runs()) {
    if (!in_hand(id) && holds.runs.size() < kMaxListItems) {
      holds.runs.push_back(id);
    }
  }
  if (!holds.runs.empty()) {
    send(std::move(holds));
  }
}

bool Core::State::in_hand(const RunId& id) const {
  return (run && (run->terms.id == id || run->terms.spec.work.run == id.text)) || (tasks && tasks->run() == id);
}

void Core::State::on_over(const Over& message) {
  for (const RunOver& over : message.runs) {
    if (!stored.knows(over.run)) {
      continue;
    }
    const KeepDecision decision =
        decide_keep({over, stored.checkpoints(over.run), in_hand(over.run), stored.being_read(over.run, now), settings});
    if (decision.keep != Keep::all) {
      effect(RemoveStored{over.run, decision.keep == Keep::nothing, decision.why, decision.least_age});
      removals += 1;
    } else if ((decision.further_on || decision.kept_by_owner) && told_kept.insert(over.run).second) {
      effect(Notice{"keeps what it holds of run " + over.run.text + ", which " + (over.removed ? "was removed" : "has ended") + ": " +
                        (decision.further_on ? "it is further on than the coordinator knows, whose ledger may be an older copy"
                                             : "its owner keeps what operators remove (--keep-removed)"),
                    "info"});
    }
  }
}

// Once all that was ordered is done, a hello says what is left: nobody is sent here for what is gone.
void Core::State::on_core(const StoredRemoved& event) {
  const std::size_t before = stored.checkpoints(event.run).size();
  if (event.error) {
    if (told_kept.insert(event.run).second) {
      effect(Notice{"run " + event.run.text + " was not removed from this disk: " + event.error->why + "; it is tried again"});
    }
  } else if (event.all) {
    stored.forget(event.run);
  } else {
    stored.keep_only(event.run, event.left);
  }
  removed_some = removed_some || (!event.error && (event.all || stored.checkpoints(event.run).size() < before));
  removals -= std::min<std::size_t>(removals, 1);
  if (removals == 0 && std::exchange(removed_some, false) && session.welcomed()) {
    session.reset();
    say_hello();
  }
}

}  // namespace atl::agent
