// What norm a contribution usually has, and the guard against one that explodes. The coordinator judges by it where all islands meet, and
// each island where they meet in pairs.
// Threads: plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace atl {

// The norm of a contribution, and the number of inner steps behind it.
struct KnownNorm {
  double norm = 0;
  std::uint64_t steps = 0;  // 0: not known
  // The largest norm that a like contribution of so many steps would have: steps in one direction add up, so it grows with their number;
  // fewer steps may have moved as far.
  [[nodiscard]] double expected(std::uint64_t of_steps) const;
  friend bool operator==(const KnownNorm&, const KnownNorm&) = default;
};

// The newest 64 accepted norms of each fragment.
class UsualNorms {
 public:
  // Of an accepted contribution; one without a norm (0) says nothing.
  void add(std::uint32_t fragment, double norm, std::uint64_t steps = 0);
  // Newest last.
  [[nodiscard]] std::vector<KnownNorm> of(std::uint32_t fragment) const;
  // Their median; 0 as long as fewer than kUsualNorms are known.
  [[nodiscard]] double median(std::uint32_t fragment) const;

 private:
  std::map<std::uint32_t, std::deque<KnownNorm>> norms_;
};
inline constexpr std::size_t kUsualNorms = 8;

// The middle one, the lower of two: of {1, 100} the median is 1, so that one of two islands can be told from the other. 0 of none.
double lower_median(std::vector<double> values);
// The same of what each of these would be expected to be with so many steps.
double lower_median(const std::vector<KnownNorm>& norms, std::uint64_t steps);

struct NormGuard {
  double factor = 0;  // 0: no guard
  double usual = 0;   // 0: not known
  // Why a contribution of this norm does not count, for a person; nothing if it does. One that is formed against outer parameters that went
  // on for `missed` rounds since it was begun spans those, too, and may be so many times as large more.
  [[nodiscard]] std::optional<std::string> verdict(double norm, std::uint32_t missed = 0) const;
};

}  // namespace atl
