// The file that a command writes where its user says (`-o PATH`).
//
// A new or regular file is written beside its place under a name of its own, synced, and renamed into place: a reader sees the old content
// or all of the new. A symbolic link is followed, and stays a link. What exists and is no regular file (a FIFO, a device, /dev/stdout) is
// written through: it is never replaced. A folder is refused. Success means that every byte was taken: errors of writing, syncing and
// closing are all reported, and nothing of a file that failed is left.
// Threads: plain values; one writer a file.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

// The folder that holds a path: "." for a bare name.
std::filesystem::path folder_of(const std::filesystem::path& path);

class OutputFile {
 public:
  // True when the user wants the command to end; asked while a FIFO waits for its reader.
  using Stopped = std::function<bool()>;

  // Whether something can be written there, before the work is done whose result it takes. Nothing is created or opened.
  // Errors: invalid_argument for a folder, an empty name or a folder that is not there; io where this user may not write.
  static Status check(const std::filesystem::path& path);
  // The folder that will hold the file; none for what is written through, for nothing may be put beside that. Errors: those of check.
  static Result<std::optional<std::filesystem::path>> folder_for(const std::filesystem::path& path);
  // Errors: those of check; cancelled when stopped.
  static Result<OutputFile> create(const std::filesystem::path& path, Stopped stopped = {});
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();  // a file that was not finished disappears

  // Errors: io, cancelled.
  Status write(ByteView bytes);
  // Syncs, closes and gives the file its name. No write after it. Errors: io.
  Status finish();

 private:
  OutputFile() = default;
  Status open_through();
  Status open_beside();
  Status wait_until_writable() const;
  [[nodiscard]] Error failed(const char* what, int number) const;

  std::string given_;             // as the user named it
  std::filesystem::path target_;  // links followed
  std::filesystem::path partial_;
  int fd_ = -1;
  bool through_ = false;
  Stopped stopped_;
};

}  // namespace atl
