// The newest picture that the model of each task has made, as far as islands have told of it since the coordinator's start.
//
// For people to look at: nothing rests on it, and it is in memory alone. What comes from an island is checked (a PNG of a size that a
// browser can bear) before it is kept.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::coordinator {

struct TaskPicture {
  std::uint64_t step = 0;  // of the task
  std::string island;      // name
  TimePoint at;
  Bytes png;
};

// Errors: corrupt for what is no PNG of at most 2^20 pixels.
Status check_picture(ByteView png);

class TaskPictures {
 public:
  // Of the newest runs that have told of any, at most kMostRuns, and of all of them at most kMostBytes: the oldest go.
  static constexpr std::size_t kMostRuns = 16;
  static constexpr std::size_t kMostBytes = 64U << 20U;

  void note(const RunId& run, const std::string& task, TaskPicture picture);
  // By task.
  [[nodiscard]] const std::map<std::string, TaskPicture>& of(const RunId& run) const;

 private:
  void drop_oldest();

  std::map<RunId, std::map<std::string, TaskPicture>> runs_;
  std::size_t bytes_ = 0;
};

}  // namespace atl::coordinator
