// The publishes and merges that the agent has ordered and the trainer has not begun: which comes next, and what a finish leaves of them.
//
// One implementation of README.md's Stepping and Finish for the client library, for the tests' arithmetic trainer and for the simulator's,
// whose orders have other types for rounds and steps. `Publish` and `Merge` have `round`, `fragment` and `step`, `Merge` also `alpha`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace atl::island_link {

template <typename Publish, typename Merge>
class RoundOrders {
 public:
  using Due = std::variant<Publish, Merge>;
  using StepNumber = decltype(Publish::step);
  using RoundNumber = decltype(Publish::round);

  void add(const std::vector<Publish>& publishes, const std::vector<Merge>& merges) {
    publishes_.insert(publishes_.end(), publishes.begin(), publishes.end());
    merges_.insert(merges_.end(), merges.begin(), merges.end());
  }

  void clear() {
    publishes_.clear();
    merges_.clear();
  }

  // Takes the next one that is due when `step` steps are done: every publish in the order they came, then every merge in the order they
  // came. The rounds of a fragment follow one another: a merge of an earlier round comes before the publish that is next. With an overlap
  // of a whole period the two are due at the same step.
  std::optional<Due> take(StepNumber step) {
    const auto publish = std::ranges::find_if(publishes_, [&](const Publish& order) { return order.step <= step; });
    if (publish == publishes_.end()) {
      return take_from(merges_, std::ranges::find_if(merges_, [&](const Merge& order) { return order.step <= step; }));
    }
    const auto earlier = std::ranges::find_if(merges_, [&](const Merge& order) {
      const bool overwrites = order.step == publish->step && order.alpha == 0;
      return order.fragment == publish->fragment && order.round < publish->round && !overwrites;
    });
    return earlier != merges_.end() ? take_from(merges_, earlier) : take_from(publishes_, publish);
  }

  // `round` is the last for now: what is left is done no later than its merge. Returns the step of that merge, or `step`, the steps that
  // are done, if nothing of that round is to be merged. With `now` every order for a later round is void. Without, publishes up to that
  // step stay, so that what the island has trained goes into those rounds; but no publish of a fragment stays whose merge of an earlier
  // round is void: it would carry the parameters from before that merge.
  StepNumber finish(RoundNumber round, bool now, StepNumber step) {
    StepNumber last = step;
    for (const Merge& order : merges_) {
      last = order.round == round ? std::max(last, order.step) : last;
    }
    const auto unmerged = [&](const Publish& publish) {
      return std::ranges::any_of(merges_, [&](const Merge& merge) {
        return merge.fragment == publish.fragment && round < merge.round && merge.round < publish.round;
      });
    };
    std::erase_if(publishes_, [&](const Publish& order) { return now ? round < order.round : last < order.step || unmerged(order); });
    std::erase_if(merges_, [&](const Merge& order) { return round < order.round; });
    return last;
  }

  // Whether the merge of that round is still to come.
  [[nodiscard]] bool will_merge(RoundNumber round, std::uint32_t fragment) const {
    return std::ranges::any_of(merges_, [&](const Merge& order) { return order.round == round && order.fragment == fragment; });
  }

  // The step of the order that comes next, whenever that is: where a trainer that finishes now stands next.
  [[nodiscard]] std::optional<StepNumber> next_step() const {
    if (!publishes_.empty()) {
      return publishes_.front().step;
    }
    return merges_.empty() ? std::nullopt : std::optional(merges_.front().step);
  }

  // The step up to which nothing has to be done but steps: that of the first order of all, at most `until`.
  [[nodiscard]] StepNumber free_until(StepNumber until) const {
    for (const Publish& order : publishes_) {
      until = std::min(until, order.step);
    }
    for (const Merge& order : merges_) {
      until = std::min(until, order.step);
    }
    return until;
  }

 private:
  template <typename Order>
  static std::optional<Due> take_from(std::vector<Order>& orders, typename std::vector<Order>::iterator which) {
    if (which == orders.end()) {
      return std::nullopt;
    }
    std::optional<Due> due(std::move(*which));
    orders.erase(which);
    return due;
  }

  std::vector<Publish> publishes_;  // in order of arrival
  std::vector<Merge> merges_;
};

}  // namespace atl::island_link
