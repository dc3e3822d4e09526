// Which samples something is about: a stretch of a part of a run's data.
//
// The data of a run are split into parts; in each part sequences are numbered from 0 in the order in which they are trained on, over all
// epochs (agent/trainer/data/data_order.hpp). So (part, number) names a sample, and what an island trained on between two publishes is one
// range. Threads: plain values.
#pragma once

#include <algorithm>
#include <cstdint>

namespace atl {

struct DataRange {
  std::uint32_t part = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;  // the first one that is not in it
  std::uint64_t held_from =
      0;  // those before it are behind no contribution: refused before, or overwritten; not beyond `from`: all are held
  // A contribution holds those from here on.
  [[nodiscard]] std::uint64_t held() const { return std::min(std::max(from, held_from), to); }
  [[nodiscard]] std::uint64_t sequences_held() const { return to - held(); }
  [[nodiscard]] std::uint64_t sequences() const { return to > from ? to - from : 0; }
  friend bool operator==(const DataRange&, const DataRange&) = default;
};

}  // namespace atl
