#include "strategies/schedule.hpp"

#include <algorithm>
#include <string>

#include "strategies/invalid.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kMaxSteps = 1ULL << 48;

}  // namespace

Result<Schedule> Schedule::make(std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t fragments, std::uint64_t overlap_steps,
                                std::uint64_t offset, bool publish_first) {
  if (total_steps < 1 || total_steps > kMaxSteps) {
    return invalid("a run needs between 1 and 2^48 inner steps, not " + std::to_string(total_steps));
  }
  if (inner_steps < 1 || inner_steps > kMaxSteps) {
    return invalid("inner_steps must be between 1 and 2^48, not " + std::to_string(inner_steps));
  }
  if (fragments < 1) {
    return invalid("a model has at least one fragment");
  }
  if (overlap_steps > inner_steps) {
    return invalid("overlap_steps (" + std::to_string(overlap_steps) + ") must not be more than inner_steps (" +
                   std::to_string(inner_steps) + "), or a round would begin before the one before it is applied");
  }
  if (offset > inner_steps) {
    return invalid("offset (" + std::to_string(offset) + ") must not be more than inner_steps (" + std::to_string(inner_steps) + ")");
  }
  if (publish_first && overlap_steps != inner_steps) {
    return invalid("overlap_steps (" + std::to_string(overlap_steps) + ") must be inner_steps (" + std::to_string(inner_steps) +
                   "), where a round's exchange takes the whole period");
  }
  return Schedule(total_steps, inner_steps, fragments, overlap_steps, offset, publish_first);
}

Schedule::Schedule(std::uint64_t total_steps, std::uint64_t inner_steps, std::uint32_t fragments, std::uint64_t overlap_steps,
                   std::uint64_t offset, bool publish_first)
    : total_steps_(total_steps),
      inner_steps_(inner_steps),
      first_(offset == 0 ? inner_steps : offset),
      merge_steps_(overlap_steps),
      regular_(0),
      fragments_(fragments),
      publish_first_(publish_first) {
  // Regular rounds start at first + k·H + shift(p), k ≥ 0, strictly before `end`.
  const std::uint64_t left_out = publish_first ? 0 : overlap_steps;
  const std::uint64_t end = total_steps > left_out ? total_steps - left_out : 0;
  if (end <= first_) {
    return;
  }
  const std::uint64_t steps = end - first_;
  const std::uint64_t full = (steps - 1) / inner_steps;  // periods that are over before the last step that a round may start at
  regular_ = full * fragments;
  for (std::uint32_t fragment = 0; fragment < fragments && full * inner_steps + shift(fragment) < steps; ++fragment) {
    ++regular_;
  }
}

Result<Schedule> Schedule::merged_after(std::uint64_t overlap_steps) const {
  if (overlap_steps > inner_steps_) {
    return invalid("overlap_steps (" + std::to_string(overlap_steps) + ") must not be more than inner_steps (" +
                   std::to_string(inner_steps_) + ")");
  }
  if (publish_first_ && overlap_steps != inner_steps_) {
    return invalid("overlap_steps (" + std::to_string(overlap_steps) + ") must be inner_steps (" + std::to_string(inner_steps_) +
                   ") on every island, where a round's exchange takes the whole period");
  }
  Schedule own = *this;
  own.merge_steps_ = overlap_steps;
  return own;
}

// H ≤ 2^48 and F < 2^32: p·H could overflow, so the quotient is taken in two parts.
std::uint64_t Schedule::shift(std::uint32_t fragment) const {
  const std::uint64_t whole = inner_steps_ / fragments_;
  const std::uint64_t rest = inner_steps_ % fragments_;
  return fragment * whole + fragment * rest / fragments_;
}

RoundPlan Schedule::plan(std::uint64_t index) const {
  RoundPlan plan;
  plan.round = Round(index + 1);
  if (index < regular_) {
    plan.fragment = static_cast<std::uint32_t>(index % fragments_);
    const std::uint64_t period = index / fragments_;
    plan.start = Step(first_ + period * inner_steps_ + shift(plan.fragment));
    plan.apply = Step(std::min(plan.start.value + merge_steps_, total_steps_ - (publish_first_ ? 0 : 1)));
    plan.previous_start = Step(period == 0 ? 0 : plan.start.value - inner_steps_);
    return plan;
  }
  plan.fragment = static_cast<std::uint32_t>(index - regular_);
  plan.start = Step(total_steps_);
  plan.apply = Step(total_steps_);
  // The fragment's regular rounds: one in each complete set, and one in the set begun.
  const std::uint64_t before = regular_ / fragments_ + (plan.fragment < regular_ % fragments_ ? 1 : 0);
  plan.previous_start = Step(before == 0 ? 0 : first_ + (before - 1) * inner_steps_ + shift(plan.fragment));
  return plan;
}

Result<RoundPlan> Schedule::round_at(Round round) const {
  if (round.value < 1 || round.value > rounds()) {
    return invalid("round " + std::to_string(round.value) + " is not one of this run's " + std::to_string(rounds()) + " rounds");
  }
  return plan(round.value - 1);
}

std::optional<RoundPlan> Schedule::next_of(std::uint32_t fragment, Round round) const {
  if (fragment >= fragments_ || round.value >= rounds()) {
    return std::nullopt;
  }
  const std::uint64_t index = round.value;  // of the round after it
  const std::uint64_t same = index <= fragment ? fragment : fragment + (index - fragment + fragments_ - 1) / fragments_ * fragments_;
  if (same < regular_) {
    return plan(same);
  }
  const std::uint64_t last = regular_ + fragment;
  return last >= index ? std::optional(plan(last)) : std::nullopt;
}

std::uint64_t Schedule::rounds_between(std::uint32_t fragment, Round from, Round to) const {
  // Of rounds 1 to `round`.
  const auto until = [&](std::uint64_t round) {
    const std::uint64_t regular = std::min(round, regular_);
    const std::uint64_t begun = regular > fragment ? (regular - fragment - 1) / fragments_ + 1 : 0;
    return begun + (round > regular_ + fragment ? 1 : 0);
  };
  return to.value <= from.value + 1 ? 0 : until(to.value - 1) - until(from.value);
}

std::optional<Round> Schedule::round_before(const RoundPlan& plan) const {
  const std::uint64_t index = plan.round.value - 1;
  if (index < regular_) {
    return index < fragments_ ? std::nullopt : std::optional(Round(plan.round.value - fragments_));
  }
  const std::uint64_t before = regular_ / fragments_ + (plan.fragment < regular_ % fragments_ ? 1 : 0);
  return before == 0 ? std::nullopt : std::optional(Round((before - 1) * fragments_ + plan.fragment + 1));
}

std::vector<RoundPlan> Schedule::rounds_starting_at(Step step) const {
  std::vector<RoundPlan> found;
  if (step.value == total_steps_) {
    for (std::uint32_t fragment = 0; fragment < fragments_; ++fragment) {
      found.push_back(plan(regular_ + fragment));
    }
    return found;
  }
  if (step.value < first_) {
    return found;
  }
  const std::uint64_t first = (step.value - first_) / inner_steps_ * fragments_;
  for (std::uint64_t index = first; index < first + fragments_ && index < regular_; ++index) {
    if (const RoundPlan candidate = plan(index); candidate.start == step) {
      found.push_back(candidate);
    }
  }
  return found;
}

std::vector<RoundPlan> Schedule::rounds_applying_at(Step step) const {
  if (step.value == total_steps_ && !publish_first_) {
    return rounds_starting_at(step);  // no other round is applied at the end
  }
  if (step.value > total_steps_) {
    return {};
  }
  // The step before the end, or with publish_first the end, also takes what would be merged later.
  std::vector<RoundPlan> found;
  const std::uint64_t first = step.value - std::min(step.value, merge_steps_);
  const std::uint64_t last = step.value + (publish_first_ ? 0 : 1) == total_steps_ ? step.value : first;
  for (std::uint64_t start = step.value < merge_steps_ && last == first ? last + 1 : first; start <= last; ++start) {
    const std::vector<RoundPlan> begun = rounds_starting_at(Step(start));
    found.insert(found.end(), begun.begin(), begun.end());
  }
  return found;
}

}  // namespace atl
