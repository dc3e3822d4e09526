// Which samples something is about: a stretch of a part of a run's data.
//
// The data of a run are split into parts; in each part sequences are numbered from 0 in the order in which they are trained on, over all
// epochs (agent/trainer/data/data_order.hpp). So (part, number) names a sample, and what an island trained on between two publishes is one
// range. Threads: plain values.
#pragma once

#include <cstdint>

namespace atl {

struct DataRange {
  std::uint32_t part = 0;
  std::uint64_t from = 0;
  std::uint64_t to = 0;  // the first one that is not in it
  [[nodiscard]] std::uint64_t sequences() const { return to > from ? to - from : 0; }
  friend bool operator==(const DataRange&, const DataRange&) = default;
};

}  // namespace atl
