// Over how many of its connections to a peer a reader asks: more while that brings more, fewer where it brings nothing.
//
// Connections share a path's losses: each loses a part of what one alone would, and each has a send buffer of its own, so on a far path
// several carry more than one. On a near one they only cost wake-ups. The reader tries one more for a while and keeps it if a tenth more
// came, or one less and does without it if hardly less came; after a try that changed nothing it waits twice as long for the next. Only
// time in which pieces kept coming counts, so that pauses between rounds do not look like a slow path. Sans-I/O: time is an argument.
// Threads: one.
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

  // What came since the last call, which are as far apart as they like. `round_trip` 0: not known.
  void look(Duration since_last, std::uint64_t bytes, Duration round_trip);
  [[nodiscard]] unsigned count() const { return count_; }

 private:
  static constexpr unsigned kFirstPause = 2;
  static constexpr unsigned kLongestPause = 32;

  void judge(double rate);

  unsigned first_;
  unsigned most_;
  unsigned count_;
  // The stretch that is being measured, without its last look, which may have had a pause in it.
  Duration time_{};
  std::uint64_t bytes_ = 0;
  std::optional<std::pair<Duration, std::uint64_t>> last_;
  Duration quiet_{};                // since something came
  bool settling_ = false;           // the first stretch after a change does not count
  std::optional<unsigned> before_;  // a try is under way: what was there before
  double rate_ = 0;                 // with what was there before, in bytes a second
  bool fewer_next_ = false;
  unsigned pause_ = kFirstPause;  // stretches until the next try
  unsigned waits_ = kFirstPause;
};

}  // namespace atl
