// What an island remembers of those whom it met in rounds that members commit among themselves: with whom it did, which norms their
// contributions usually have, and how much its own outer parameters weigh.
// Threads: plain values; owned by one Core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include "agent/core/event.hpp"
#include "agent/core/round_in_hand.hpp"
#include "transport/base/usual_norms.hpp"

namespace atl::agent {

class Partners {
 public:
  // Contributions of so many times the usual norm do not count.
  explicit Partners(double norm_factor) : norm_factor_(norm_factor) {}

  // Whether this island took the round with others of that epoch: what it answers to one in doubt.
  [[nodiscard]] bool met(Epoch epoch, Round round) const { return met_.contains({epoch, round}); }
  // Against contributions to this fragment.
  [[nodiscard]] NormGuard guard(std::uint32_t fragment) const { return NormGuard{norm_factor_, norms_.median(fragment)}; }
  // The weight of its outer parameters in the last merge: tokens of contributions that counted.
  [[nodiscard]] std::uint64_t weight() const { return std::max<std::uint64_t>(tokens_, 1); }

  void publish(std::uint64_t tokens) { tokens_ += tokens; }
  void reject(std::uint64_t tokens) { tokens_ -= std::min(tokens_, tokens); }
  // Most of so many others, two at least, were too far behind to wait for since this island last met anybody.
  [[nodiscard]] bool ahead_of_most(std::size_t others) const { return behind_.size() >= 2 && 2 * behind_.size() > others; }
  // What came of a round.
  void note(const RoundInHand& round, const ExchangeDone& event) {
    if (!round.withdrawn()) {
      norms_.add(round.fragment(), round.facts().norm);
    }
    if (!event.behind.empty()) {
      behind_.insert(event.behind);
    }
    if (!event.partner.empty()) {
      behind_.clear();
      met_.emplace(round.group_epoch(), event.round);
      for (const double norm : event.norms) {
        norms_.add(round.fragment(), norm);
      }
    }
  }

 private:
  double norm_factor_;
  std::set<std::pair<Epoch, Round>> met_;
  std::set<IslandId> behind_;
  std::uint64_t tokens_ = 0;
  UsualNorms norms_;  // of contributions that counted, its own and those that it met
};

}  // namespace atl::agent
