#include "transport/base/data_share.hpp"

#include <algorithm>

namespace atl {
namespace {

// How far ascending order has come: all rows before `row` are taken, and of `row` the first `of_row` classes that have reached it.
struct Level {
  std::uint64_t row = 0;
  std::uint64_t of_row = 0;
};

Level level_after(const std::vector<DataClass>& classes, std::uint64_t count) {
  std::vector<std::uint64_t> begins;
  begins.reserve(classes.size());
  for (const DataClass& each : classes) {
    begins.push_back(each.next);
  }
  std::ranges::sort(begins);
  std::uint64_t row = begins.empty() ? 0 : begins.front();
  for (std::size_t taking = 1; taking <= begins.size(); ++taking) {
    const bool last = taking == begins.size();
    if (last || count < taking * (begins[taking] - row)) {
      return {row + count / taking, count % taking};
    }
    count -= taking * (begins[taking] - row);
    row = begins[taking];
  }
  return {row, 0};
}

}  // namespace

std::uint64_t DataStretch::sequence(std::uint64_t place, std::uint32_t of) const {
  const Level level = level_after(classes, place);
  std::uint64_t passed = 0;
  for (const DataClass& each : classes) {
    if (each.next <= level.row && passed++ == level.of_row) {
      return level.row * of + each.number;
    }
  }
  return level.row * of;
}

std::vector<DataClass> DataStretch::after(std::uint64_t count) const {
  const Level level = level_after(classes, count);
  std::vector<DataClass> now = classes;
  std::uint64_t passed = 0;
  for (DataClass& each : now) {
    if (each.next <= level.row) {
      each.next = level.row + (passed++ < level.of_row ? 1 : 0);
    }
  }
  return now;
}

bool is_share(const DataShare& share) {
  if (share.classes == 0 || share.classes > kMostDataClasses || share.slice >= share.slices) {
    return false;
  }
  for (std::size_t i = 0; i < share.stretches.size(); ++i) {
    const DataStretch& stretch = share.stretches[i];
    std::vector<bool> there(share.classes, false);
    for (const DataClass& each : stretch.classes) {
      if (each.number >= share.classes || there[each.number] || each.next > kMostSequences) {
        return false;
      }
      there[each.number] = true;
    }
    if (stretch.from > kMostSequences || (i > 0 && share.stretches[i - 1].from >= stretch.from)) {
      return false;
    }
  }
  return true;
}

std::uint64_t DataShare::sequence(std::uint64_t position) const {
  for (auto stretch = stretches.rbegin(); stretch != stretches.rend(); ++stretch) {
    if (stretch->from <= position && !stretch->classes.empty()) {
      return stretch->sequence(position - stretch->from, classes);
    }
  }
  return position * slices + slice;
}

}  // namespace atl
