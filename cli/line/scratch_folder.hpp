// A folder of a command's own for what it fetches before it is put in its place; removed with everything in it at the end.
// Threads: plain values.
#pragma once

#include <filesystem>

#include "transport/base/result.hpp"

namespace atl {

class ScratchFolder {
 public:
  // A new folder, private to this user, in $TMPDIR. Errors: io, saying what to do.
  static Result<ScratchFolder> make();
  // A new folder in this one.
  static Result<ScratchFolder> make_in(const std::filesystem::path& folder);
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&&) = delete;
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace atl
