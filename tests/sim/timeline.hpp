// Virtual time: things that happen later, in the order of (time, insertion). One seed, one history.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "transport/base/time.hpp"

namespace atl::sim {

class Timeline {
 public:
  explicit Timeline(TimePoint start) : now_(start) {}

  [[nodiscard]] TimePoint now() const { return now_; }
  void at(TimePoint time, std::function<void()> what) { queue_.push(Item{time < now_ ? now_ : time, next_++, std::move(what)}); }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Nothing happens until then.
  void pass_until(TimePoint time) { now_ = time > now_ ? time : now_; }
  // Runs the next thing; false if there is none by then.
  bool run_one(TimePoint until) {
    if (queue_.empty() || queue_.top().time > until) {
      return false;
    }
    Item item = std::move(const_cast<Item&>(queue_.top()));
    queue_.pop();
    now_ = item.time;
    item.what();
    return true;
  }

 private:
  struct Item {
    TimePoint time;
    std::uint64_t number = 0;
    std::function<void()> what;
    bool operator<(const Item& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  TimePoint now_;
  std::uint64_t next_ = 0;
  std::priority_queue<Item> queue_;
};

}  // namespace atl::sim
