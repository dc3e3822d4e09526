// Wants in the order in which they came, each once: asking again for what waits already changes nothing.
// Cost: O(log n). Threads: one.
#pragma once

#include <cstddef>
#include <deque>
#include <set>
#include <utility>

#include "transport/bulk/piece.hpp"

namespace atl {

class WantQueue {
 public:
  // False if there are `most` already, and this is not one of them.
  bool push(const Want& want, std::size_t most) {
    if (known_.contains(want)) {
      return true;
    }
    if (wants_.size() >= most) {
      return false;
    }
    known_.insert(want);
    wants_.push_back(want);
    return true;
  }
  // The first one; there must be one.
  Want pop() {
    Want want = std::move(wants_.front());
    wants_.pop_front();
    known_.erase(want);
    return want;
  }
  [[nodiscard]] bool empty() const { return wants_.empty(); }
  [[nodiscard]] std::size_t size() const { return wants_.size(); }

 private:
  std::deque<Want> wants_;
  std::set<Want> known_;
};

}  // namespace atl
