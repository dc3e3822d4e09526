// A round in flight: this island has formed its contribution, and its result is not applied yet.
//
// With overlap a trainer's checkpoint lies between the start and the merge of such rounds. What was formed is part of the checkpoint, so
// that a run that goes on from it exchanges the same contributions again and comes to the same digests as one that never stopped.
// Threads: plain values.
#pragma once

#include <cstdint>

#include "transport/base/data_range.hpp"
#include "transport/base/ids.hpp"

namespace atl {

// What the trainer said with its publish.
struct PublishFacts {
  std::uint64_t tokens = 0;  // since the fragment's round before, and steps
  std::uint64_t steps = 0;
  double training_loss = 0;       // NaN: none
  DataRange data = {};            // trained on since the round before, of whatever fragment
  std::uint64_t overwritten = 0;  // tokens before these that a result overwrote in the trainer
  friend bool operator==(const PublishFacts&, const PublishFacts&) = default;
};

struct PendingRound {
  Round round;
  std::uint32_t fragment = 0;
  double norm = 0;  // of the contribution
  PublishFacts facts;
  Round base = {};  // the outer state against which it was formed is that of this round
  friend bool operator==(const PendingRound&, const PendingRound&) = default;
};

}  // namespace atl
