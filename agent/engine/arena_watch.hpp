// For debugging trainers of one's own: whether one writes into the arena out of turn.
//
// From `published` to its result a fragment's range is the agent's (agent/island_link/README.md, "Who may touch a fragment's range"). With
// `agent --check-arena` its bytes are summed once the contribution is formed, and again before the result is written there.
// Threads: one. Cost: two reads of the fragment a round.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace atl {

class ArenaWatch {
 public:
  // The range is the agent's from now on.
  void take(std::uint32_t fragment, std::span<const float> range) { sums_[fragment] = sum(range); }
  // It is about to be written. Why the trainer is at fault, if it is.
  std::optional<std::string> give(std::uint32_t fragment, std::span<const float> range) {
    const auto found = sums_.find(fragment);
    const bool same = found == sums_.end() || found->second == sum(range);
    if (found != sums_.end()) {
      sums_.erase(found);
    }
    return same ? std::nullopt
                : std::optional("it wrote into fragment " + std::to_string(fragment) +
                                " of the arena out of turn, after `published` and before the result");
  }
  void forget() { sums_.clear(); }

 private:
  static std::uint64_t sum(std::span<const float> range) {
    std::uint64_t sum = 14695981039346656037ULL;  // FNV-1a over words
    for (const float value : range) {
      sum = (sum ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211ULL;
    }
    return sum;
  }

  std::map<std::uint32_t, std::uint64_t> sums_;
};

}  // namespace atl
