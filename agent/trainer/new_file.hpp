// A file that is written under another name, synced and renamed: a crash leaves either the whole of it or none.
// Threads: plain values.
#pragma once

#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

// "cannot WHAT PATH: why", from errno.
Error file_error(const std::string& path, const char* what);

// Disappears again unless it was kept.
class NewFile {
 public:
  explicit NewFile(std::string path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();
  [[nodiscard]] Status opened() const;
  Status write(ByteView bytes);
  // Syncs it and gives it its final name.
  Status keep_as(const std::string& path);

 private:
  std::string path_;
  int fd_;
};

Status sync_directory(const std::string& path);

}  // namespace atl
