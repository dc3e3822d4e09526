// Virtual time: things that happen later, in the order of (time, insertion). One seed, one history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "transport/base/time.hpp"

namespace atl::sim {

class Timeline {
 public:
  explicit Timeline(TimePoint start) : now_(start) {}

  [[nodiscard]] TimePoint now() const { return now_; }
  // How many things were planned so far.
  [[nodiscard]] std::uint64_t planned() const { return next_; }
  void at(TimePoint time, std::function<void()> what) {
    std::size_t place = things_.size();
    if (free_.empty()) {
      things_.push_back(std::move(what));
    } else {
      place = free_.back();
      free_.pop_back();
      things_[place] = std::move(what);
    }
    queue_.push(Item{time < now_ ? now_ : time, next_++, place});
  }
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // When the next thing happens; nothing: never.
  [[nodiscard]] std::optional<TimePoint> next() const { return queue_.empty() ? std::nullopt : std::optional(queue_.top().time); }
  // Nothing happens until then.
  void pass_until(TimePoint time) { now_ = time > now_ ? time : now_; }
  // Runs the next thing; false if there is none by then.
  bool run_one(TimePoint until) {
    if (queue_.empty() || queue_.top().time > until) {
      return false;
    }
    const Item item = queue_.top();
    queue_.pop();
    now_ = item.time;
    const std::function<void()> what = std::move(things_[item.place]);
    free_.push_back(item.place);
    what();
    return true;
  }

 private:
  struct Item {
    TimePoint time;
    std::uint64_t number = 0;
    std::size_t place = 0;  // in things_: a queue of small values is sorted faster
    bool operator<(const Item& other) const { return time != other.time ? time > other.time : number > other.number; }
  };
  TimePoint now_;
  std::uint64_t next_ = 0;
  std::priority_queue<Item> queue_;
  std::vector<std::function<void()>> things_;
  std::vector<std::size_t> free_;
};

}  // namespace atl::sim
