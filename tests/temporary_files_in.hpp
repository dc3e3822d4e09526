// Temporary files in a folder of a test's own, whatever other processes make in theirs.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace atl_test {

// While it lives, temporary files are made in this folder.
class TemporaryFilesIn {
 public:
  explicit TemporaryFilesIn(const std::filesystem::path& folder) {
    if (const char* before = ::getenv("TMPDIR")) {
      before_ = before;
    }
    ::setenv("TMPDIR", folder.c_str(), 1);
  }
  TemporaryFilesIn(const TemporaryFilesIn&) = delete;
  TemporaryFilesIn& operator=(const TemporaryFilesIn&) = delete;
  ~TemporaryFilesIn() {
    if (before_) {
      ::setenv("TMPDIR", before_->c_str(), 1);
    } else {
      ::unsetenv("TMPDIR");
    }
  }

 private:
  std::optional<std::string> before_;
};

}  // namespace atl_test
