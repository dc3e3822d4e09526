// What is known of one contribution beside its values: one structure from the trainer's publish to the ledger's row.
//
// Each station adds what it knows: the trainer what it did (tokens, steps, loss), the agent's core which data that was and what was missed,
// the engine what it formed (norm, base, fingerprint). Then Ready says all of it, and the coordinator keeps it with the open round, with
// the attempt and, in part, in the ledger. Zero is what is not known yet.
// Nothing here is believed because it is said: counts from the wire are at most kMaxAmount (message.hpp), and norms and losses
// may be any double.
// Threads: plain values.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "transport/base/data_share.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/not_measured.hpp"

namespace atl {

struct ContributionFacts {
  std::uint64_t tokens = 0;  // since the fragment's round before: the weight. A member with 0 contributes nothing
  std::uint64_t steps = 0;   // inner steps behind these tokens
  double training_loss = 0;  // their mean, nats per token or as the trainer measures it; NaN: none
  double norm = 0;           // L2, of the values
  std::uint32_t fragment = 0;
  DataRange data = {};          // trained on since the island's round before, of whatever fragment
  std::uint64_t sequences = 0;  // of an epoch of that part of the data; 0: not known
  Round base = {};              // the outer state against which it is formed is that of this round
  // Where rounds close with a quorum: the rounds of its fragment that were committed since the trainer took its base.
  std::uint32_t staleness = 0;
  std::uint64_t overwritten = 0;  // tokens before it that a result overwrote in the trainer: they are in no contribution
  std::uint64_t fingerprint = 0;  // of the values (strategies/contribution.hpp); 0: not known, or all are zero

  // That something is not measured is one value.
  friend bool operator==(const ContributionFacts& a, const ContributionFacts& b) {
    const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
    return same(a.training_loss, b.training_loss) && same(a.norm, b.norm) && a.tokens == b.tokens && a.steps == b.steps &&
           a.fragment == b.fragment && a.data == b.data && a.sequences == b.sequences && a.base == b.base && a.staleness == b.staleness &&
           a.overwritten == b.overwritten && a.fingerprint == b.fingerprint;
  }
};

// Of a contribution to this fragment that does not count nothing is measured, rather than 0.
[[nodiscard]] inline ContributionFacts unmeasured(std::uint32_t fragment = 0) {
  return {.training_loss = kNotMeasured, .norm = kNotMeasured, .fragment = fragment};
}
// What is accounted for of a contribution that counts in no round: all that Withdrawn says, and all that the ledger keeps of it.
[[nodiscard]] inline ContributionFacts accounted(const ContributionFacts& facts) {
  return {.tokens = facts.tokens, .fragment = facts.fragment, .data = facts.data, .overwritten = facts.overwritten};
}
// What the ledger keeps of a contribution to a round.
[[nodiscard]] inline ContributionFacts recorded(const ContributionFacts& facts) {
  ContributionFacts kept = accounted(facts);
  kept.steps = facts.steps;
  kept.norm = facts.norm;
  kept.staleness = facts.staleness;
  return kept;
}

// One field of each, in their order.
template <typename Value>
[[nodiscard]] std::vector<Value> each_of(const std::vector<ContributionFacts>& contributions, Value ContributionFacts::*field) {
  std::vector<Value> values;
  values.reserve(contributions.size());
  for (const ContributionFacts& each : contributions) {
    values.push_back(each.*field);
  }
  return values;
}

}  // namespace atl
