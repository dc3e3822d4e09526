// When a trainer says how far it is: with its rate and newest loss twice a second; and where rounds are short, only how far it is, several
// times in a round: an agent with adaptive pace cannot end a round early that it does not know its trainer to be in. Threads: plain values.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "transport/base/time.hpp"

namespace atl::island_link {

class ProgressTimes {
 public:
  static constexpr Duration kWhole = std::chrono::milliseconds(500);
  static constexpr Duration kShortest = std::chrono::milliseconds(20);
  static constexpr int kInRound = 8;

  void begin(TimePoint now) { whole_ = said_ = now; }
  void publish(TimePoint now) {
    if (published_) {
      between_ = std::clamp<Duration>((now - *published_) / kInRound, kShortest, kWhole);
    }
    published_ = now;
  }
  [[nodiscard]] bool whole_due(TimePoint now) const { return now - whole_ >= kWhole; }
  [[nodiscard]] bool due(TimePoint now) const { return now - said_ >= between_ || whole_due(now); }
  // When the last whole one was said.
  [[nodiscard]] TimePoint whole() const { return whole_; }
  void say(TimePoint now) { said_ = now; }
  // Since the last whole one.
  Duration say_whole(TimePoint now) {
    const Duration since = now - whole_;
    whole_ = said_ = now;
    return since;
  }

 private:
  TimePoint whole_{};
  TimePoint said_{};
  Duration between_ = kWhole;
  std::optional<TimePoint> published_;
};

}  // namespace atl::island_link
