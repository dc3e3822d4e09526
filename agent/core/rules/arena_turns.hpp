// Whose turn it is with each fragment's range of the arena, in a run whose rounds do not wait for everybody.
//
// Where everybody waits, the schedule says ahead when a fragment is published and when its result is merged. Here results come when they
// come, and a trainer waits for none. So the agent orders one thing at a time of each fragment: a publish when the fragment is due, and a
// merge when a newer result lies in the arena already.
//
//   ours ──order_publish──► publishing ──published──► ours
//     └────────adopt──────► adopting   ──merged─────► ours
//
// The trainer has the range while it is publishing or adopting. Results that are applied meanwhile stay in the outer state, and the newest
// of them is adopted afterwards: the trainer's own work on a fragment is published before it is overwritten.
// A version of a fragment is named by the round whose result it is; the one that a trainer was loaded with by the round of that state.
// Threads: owned by one Core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "agent/core/pending_round.hpp"
#include "transport/base/ids.hpp"

namespace atl::agent {

class ArenaTurns {
 public:
  enum class Turn : std::uint8_t { ours, publishing, adopting };

  // A trainer holds the outer parameters of round `begun_with` in every fragment, and stands there. start: names this beginning. committed:
  // of the outer state. A result after it was of a history that is lost, and is nothing to adopt.
  void begin(std::uint64_t start, std::uint32_t fragments, Round begun_with, Round committed, Step step, std::uint64_t position,
             std::uint64_t trained);
  [[nodiscard]] bool begun(std::uint64_t start) const { return start_ == start && !fragments_.empty(); }
  // No trainer goes on with what it has.
  void stop() { fragments_.clear(); }

  [[nodiscard]] std::uint32_t fragments() const { return static_cast<std::uint32_t>(fragments_.size()); }
  [[nodiscard]] bool is(std::uint32_t fragment, Turn turn) const;
  // A newer result than the trainer's is applied, or what the trainer has is not to be believed.
  [[nodiscard]] bool outdated(std::uint32_t fragment) const;
  // It has published nothing since it took a result: what it trains would be lost with the next one, each time where rounds are shorter
  // than its steps.
  [[nodiscard]] bool owes(std::uint32_t fragment) const { return fragments_.at(fragment).owes && trusted(fragment); }
  [[nodiscard]] bool trusted(std::uint32_t fragment) const { return !fragments_.at(fragment).distrusted; }
  // The newest version, that which the trainer has, and the step at which it took that.
  [[nodiscard]] Round newest(std::uint32_t fragment) const;
  [[nodiscard]] Round base(std::uint32_t fragment) const { return fragments_.at(fragment).base; }
  [[nodiscard]] Step based_at(std::uint32_t fragment) const { return fragments_.at(fragment).step; }
  // The step of its newest publish; none yet: where it began.
  [[nodiscard]] Step published_at(std::uint32_t fragment) const { return fragments_.at(fragment).published_step; }
  [[nodiscard]] bool publishing() const;

  // due: the step at which it is published, unless the trainer is told to hurry.
  void order_publish(std::uint32_t fragment, Step due);
  // The others have come to a round of this fragment. tokens: that the trainer must have trained on since its base to publish early.
  void hurry(std::uint32_t fragment, std::uint64_t tokens);
  // The furthest step at which a fragment is published that is to hurry and has enough in it. trained: tokens since the trainer started.
  [[nodiscard]] std::optional<Step> hurried(std::uint64_t trained);
  // step, position: of the trainer. The facts of a fragment, whose tokens and steps are since its publish of this fragment before, with
  // those since it took its base: what a result overwrote in between is in no contribution. Its data are held from there on.
  ContributionFacts published(Step step, std::uint64_t position, const ContributionFacts& facts);
  void applied(std::uint32_t fragment, Round round) { newest_[fragment] = round; }
  // This round counted what the trainer had published.
  void counted(std::uint32_t fragment, Round round);
  // The round after which the trainer has missed those of this fragment: that of its base, or the newest that counted what it published
  // since.
  [[nodiscard]] Round took_part_in(std::uint32_t fragment) const {
    return std::max(fragments_.at(fragment).base, fragments_.at(fragment).counted);
  }
  void adopt(std::uint32_t fragment, Round round);
  // What the trainer published is not finite: it takes the newest version again.
  void distrust(std::uint32_t fragment);
  [[nodiscard]] bool adopts(std::uint32_t fragment, Round round) const;
  // False where it was not asked to.
  // trained: tokens since the trainer started.
  bool merged(std::uint32_t fragment, Round round, Step step, std::uint64_t position, std::uint64_t trained);

 private:
  struct Fragment {
    Turn turn = Turn::ours;
    bool distrusted = false;
    bool owes = false;
    Round base;
    Round counted;
    Round adopting;
    Step step;                       // at which the trainer took the base,
    std::uint64_t position = 0;      // and where it was in the data
    Step published_step;             // of its newest publish,
    std::uint64_t published_at = 0;  // and its position then
    std::uint64_t trained = 0;       // tokens of the trainer when it took the base
    Step due;                        // of the publish that is ordered
    std::optional<std::uint64_t> hurry;
  };
  std::uint64_t start_ = 0;
  std::vector<Fragment> fragments_;
  std::map<std::uint32_t, Round> newest_;
};

}  // namespace atl::agent
