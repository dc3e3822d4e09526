// Over how many of its connections to a peer a reader asks: more while that brings more, fewer where it brings nothing.
//
// Connections share a path's losses: each loses a part of what one alone would, and each has a send buffer of its own, so on a far path
// several carry more than one. On a near one they only cost wake-ups. The reader tries twice as many for a while, four more at least, and
// keeps them if a tenth more came, or a sixth fewer and does without them if hardly less came: steps that show through the noise of
// losses, however many there are, and that reach many soon. When both changed nothing it waits twice as long for the next.
// A line is full while a queue stands on it, and as long as it carries what it did then. It is not tried with more connections, which would
// only press packets out of the queue.
// Only time counts in which pieces kept coming and each connection had some to deliver, so that pauses between rounds and the last pieces
// of a round do not look like a slow path. Sans-I/O: time is an argument. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "transport/base/time.hpp"

namespace atl {

class StreamCount {
 public:
  static constexpr Duration kFar = std::chrono::milliseconds(5);  // nearer peers are asked over `first` connections

  StreamCount(unsigned first, unsigned most) : first_(first), most_(most), count_(first) {}

  struct Look {
    Duration since_last{};          // looks are as far apart as they like
    std::uint64_t bytes = 0;        // that came since then
    std::uint64_t outstanding = 0;  // bytes that are asked for now and have not come
    bool busy = true;               // each connection has something to deliver now
    Duration round_trip{};          // 0: not known
    bool queue = false;             // one stands on the path now, as the kernel's round trips tell
  };
  void look(const Look& look);
  [[nodiscard]] unsigned count() const { return count_; }

 private:
  static constexpr unsigned kFirstPause = 2;
  static constexpr unsigned kLongestPause = 32;

  [[nodiscard]] bool line_is_full(double rate);
  void judge(double rate, std::uint64_t outstanding);
  void settle(std::uint64_t outstanding);

  unsigned first_;
  unsigned most_;
  unsigned count_;
  // The stretch that is being measured, without its last look, which may have had a pause in it.
  Duration time_{};
  std::uint64_t bytes_ = 0;
  std::optional<std::pair<Duration, std::uint64_t>> last_;
  Duration quiet_{};                // since something came
  bool settling_ = true;            // what was asked for before a change comes over the connections of then, and does not count
  std::uint64_t unsettled_ = 0;     // bytes of that
  std::optional<unsigned> before_;  // a try is under way: what was there before
  double rate_ = 0;                 // with what was there before, in bytes a second
  bool fewer_next_ = false;
  unsigned pause_ = kFirstPause;  // stretches until the next try
  unsigned waits_ = 0;
  unsigned queued_ = 0;  // looks of the stretch in which a queue stood,
  unsigned clear_ = 0;   // and those in which none did
  double full_ = 0;      // rate with which the line was full last; 0: not known, or long ago
  unsigned since_full_ = 0;
};

}  // namespace atl
