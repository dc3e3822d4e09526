// Where the exchange takes a whole period: what an island's trainer goes on from, and what its next contribution is formed against.
//
//   trainer    ── publish r+1 ── (waits for the result of round r, if it is late) ── merges what was handed over ── trains ──
//   IslandRun     form r+1, in memory of its own; once round r is applied: hand over
#include <algorithm>

#include "agent/engine/island_run.hpp"

namespace atl {

// start <- what the trainer goes on from, given its newest contribution.
Status IslandRun::start_of(std::uint32_t fragment, const island_link::Fragment& range, std::span<float> start) const {
  ByteView newest;
  for (const auto& [round, contribution] : contributions_) {
    newest = round > round_ && contribution.facts.fragment == fragment ? contribution.encoded.bytes : newest;
  }
  return own_start_->start(fragment, newest, *layout_, outer_.parameters().subspan(range.offset, range.count), start);
}

Status IslandRun::hand_over(Round round, std::uint32_t fragment) {
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  if (!has_state_ || !arena_ || !own_start_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no result of round " + std::to_string(round.value) + " to hand over"};
  }
  const std::span<float> start = arena_->range(range);
  if (watch_) {
    misuse_ = watch_->give(fragment, start);
  }
  ATOLL_TRY(start_of(fragment, range, start));
  bases_.erase(fragment);
  ATOLL_TRY(keep_base(fragment, range));
  std::ranges::copy(start, bases_.at(fragment).parameters.floats().begin());
  own_start_->hand(round, fragment);
  return {};
}

// No result comes before the trainer trains on: its next contribution begins where this one ends, as the others decode it, so that what a
// codec took from it is in the next.
Status IslandRun::go_on_from_published(const Contribution& formed, const island_link::Fragment& range) {
  ATOLL_TRY(keep_base(formed.facts.fragment, range));
  const std::span<float> base = bases_.at(formed.facts.fragment).parameters.floats();
  ATOLL_ASSIGN(const FloatBuffer before, FloatBuffer::make(base.size()));
  std::ranges::copy(base, before.floats().begin());
  return eager_start({composition_.codec, formed.encoded.bytes, 1.0F, {}}, OuterOptimizer{OuterOptimizerKind::sgd, 1.0, 0.0},
                     before.floats(), {}, base);
}

// The trainer of a checkpoint has this in its own state.
Status IslandRun::restore_starts() {
  own_start_->load(round_);
  for (std::uint32_t fragment = 0; fragment < layout_->fragments().size(); ++fragment) {
    const island_link::Fragment& range = layout_->fragments()[fragment];
    ATOLL_TRY(keep_base(fragment, range));
    const auto first = std::ranges::find_if(
        contributions_, [&](const auto& item) { return item.second.facts.fragment == fragment && own_start_->is_first(item.first); });
    if (first != contributions_.end()) {
      ATOLL_TRY(go_on_from_published(first->second, range));
      continue;
    }
    ATOLL_TRY(start_of(fragment, range, bases_.at(fragment).parameters.floats()));
  }
  return {};
}

}  // namespace atl
