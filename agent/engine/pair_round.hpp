// A round of a pair on this island, from the knowledge of the partner to the applied step: what the sync engine keeps of it.
// Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/engine/pair_exchange.hpp"
#include "agent/engine/round_result.hpp"

namespace atl {

struct PairRound {
  std::unique_ptr<PairExchange> exchange;   // none: no partner in this round
  std::optional<agent::MeetPartner> order;  // the trainer has reached the step
  TimePoint met_at;                         // when it had
  std::uint64_t served_before = 0;          // by the store, when the pair was prepared
  std::optional<TimePoint> said_in_doubt;
  bool said_ahead = false;
  bool reported = false;
  // Once decided.
  RoundResult result;  // the terms view the exchange's bytes and the own contribution
  Digest digest;

  [[nodiscard]] bool met() const { return exchange && exchange->outcome() && exchange->outcome()->met; }
};

}  // namespace atl
