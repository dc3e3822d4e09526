// Which sequences of a run's data an island trains on, and in which order: a pure function of what the coordinator has dealt.
//
// All sequences of a run are numbered from 0 in the order of the whole run, one pass after the other. Sequence n is the (n / classes)th of
// class n mod classes, and each class is with one island at a time. An island takes the sequences of its classes in ascending order, so a
// class that lags behind catches up first. Its own count of them is its *position*: it never goes back while a run goes on, whatever
// happens to its classes. When islands come and go, classes are dealt anew: from a position on that lies ahead of what the island has
// trained on, another stretch holds. So all data have an owner as long as one island is there, and each sequence has one owner only.
// Threads: plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace atl {

// A stretch of a part of a run's data: what an island trained on between two publishes is one. In each part sequences are numbered from 0
// in the order in which they are trained on, over all epochs (agent/trainer/data/data_order.hpp), so that (part, number) names a sample.
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

struct DataClass {
  std::uint32_t number = 0;
  std::uint64_t next = 0;  // sequences of this class that others took before
  friend bool operator==(const DataClass&, const DataClass&) = default;
};

// From position `from` on these classes are the island's, in ascending order of their numbers; none: nothing is.
struct DataStretch {
  std::uint64_t from = 0;
  std::vector<DataClass> classes;
  friend bool operator==(const DataStretch&, const DataStretch&) = default;

  // The number of the sequence that comes `place` sequences after `from`, of `of` classes. At least one class. Cost: n log n in its
  // classes.
  [[nodiscard]] std::uint64_t sequence(std::uint64_t place, std::uint32_t of) const;
  // The classes as they are after `count` sequences.
  [[nodiscard]] std::vector<DataClass> after(std::uint64_t count) const;
};

struct DataShare {
  std::uint32_t classes = 1;           // of the run
  std::vector<DataStretch> stretches;  // in ascending order of `from`; those before the island's position may be missing
  // For programs that cut their data by themselves: `slice` of `slices` disjoint ones of equal size, one for each island in the run.
  std::uint32_t slice = 0;
  std::uint32_t slices = 1;
  friend bool operator==(const DataShare&, const DataShare&) = default;

  // The number of the sequence at a position. Where nothing is dealt: every `slices`th sequence from `slice` on.
  [[nodiscard]] std::uint64_t sequence(std::uint64_t position) const;
};

// No run deals more.
inline constexpr std::uint32_t kMostDataClasses = 1024;
// Positions and numbers of sequences are below it: arithmetic on them does not wrap.
inline constexpr std::uint64_t kMostSequences = std::uint64_t{1} << 46U;

// What a share from outside may be: classes of the run, each once in a stretch, stretches in order, a slice of as many as there are.
[[nodiscard]] bool is_share(const DataShare& share);

}  // namespace atl
