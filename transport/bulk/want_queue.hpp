// Wants in the order in which they came, each once: asking again for what waits already changes nothing.
// Each keeps over which connection it came, so that the answer goes back over it. Cost: O(log n). Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "transport/bulk/piece.hpp"

namespace atl {

// A want, and the connection of the link over which it came; 0: not known.
struct WantOver {
  WantOver(Want asked, std::uint64_t over = 0) : want(std::move(asked)), connection(over) {}  // NOLINT(google-explicit-constructor)

  Want want;
  std::uint64_t connection;
};

class WantQueue {
 public:
  // False if there are `most` already, and this is not one of them.
  bool push(const WantOver& asked, std::size_t most) {
    if (known_.contains(asked.want)) {
      return true;
    }
    if (wants_.size() >= most) {
      return false;
    }
    known_.insert(asked.want);
    wants_.push_back(asked);
    return true;
  }
  // The first one; there must be one.
  WantOver pop() {
    WantOver first = std::move(wants_.front());
    wants_.pop_front();
    known_.erase(first.want);
    return first;
  }
  [[nodiscard]] bool empty() const { return wants_.empty(); }
  [[nodiscard]] std::size_t size() const { return wants_.size(); }

 private:
  std::deque<WantOver> wants_;
  std::set<Want> known_;
};

}  // namespace atl
