// A round in flight: this island has formed its contribution, and its result is not applied yet.
//
// With overlap a trainer's checkpoint lies between the start and the merge of such rounds. What was formed is part of the checkpoint, so
// that a run that goes on from it exchanges the same contributions again and comes to the same digests as one that never stopped.
// Threads: plain values.
#pragma once

#include "transport/base/ids.hpp"
#include "transport/control/contribution_facts.hpp"

namespace atl {

struct PendingRound {
  Round round;
  ContributionFacts facts;
  friend bool operator==(const PendingRound&, const PendingRound&) = default;
};

}  // namespace atl
