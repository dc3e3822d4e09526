#include "coordinator/api/task_pictures.hpp"

#include <algorithm>
#include <array>

namespace atl::coordinator {
namespace {

constexpr std::uint64_t kMostPixels = 1U << 20U;
// The signature, and the beginning of the first chunk: its length (13) and its name.
constexpr std::array<unsigned char, 16> kBeginning = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'};

std::uint64_t big_endian(ByteView bytes) {
  std::uint64_t value = 0;
  for (const std::byte byte : bytes) {
    value = value << 8U | static_cast<std::uint64_t>(byte);
  }
  return value;
}

}  // namespace

Status check_picture(ByteView png) {
  if (png.size() < kBeginning.size() + 8 || !std::ranges::equal(png.first(kBeginning.size()), std::as_bytes(std::span(kBeginning)))) {
    return Error{Code::corrupt, "a picture that is no PNG"};
  }
  const std::uint64_t width = big_endian(png.subspan(kBeginning.size(), 4));
  const std::uint64_t height = big_endian(png.subspan(kBeginning.size() + 4, 4));
  if (width == 0 || height == 0 || width > kMostPixels || height > kMostPixels || width * height > kMostPixels) {
    return Error{Code::corrupt, "a picture of " + std::to_string(width) + " × " + std::to_string(height) + " pixels"};
  }
  return {};
}

void TaskPictures::note(const RunId& run, const std::string& task, TaskPicture picture) {
  TaskPicture& kept = runs_[run][task];
  bytes_ = bytes_ - kept.png.size() + picture.png.size();
  kept = std::move(picture);
  while (runs_.size() > 1 && (runs_.size() > kMostRuns || bytes_ > kMostBytes)) {
    drop_oldest();
  }
}

const std::map<std::string, TaskPicture>& TaskPictures::of(const RunId& run) const {
  static const std::map<std::string, TaskPicture> kNone;
  const auto found = runs_.find(run);
  return found == runs_.end() ? kNone : found->second;
}

// The run whose newest picture is the oldest.
void TaskPictures::drop_oldest() {
  const auto newest = [](const auto& run) {
    TimePoint at = TimePoint::min();
    for (const auto& [task, picture] : run.second) {
      at = std::max(at, picture.at);
    }
    return at;
  };
  const auto oldest = std::ranges::min_element(runs_, {}, newest);
  for (const auto& [task, picture] : oldest->second) {
    bytes_ -= picture.png.size();
  }
  runs_.erase(oldest);
}

}  // namespace atl::coordinator
