// Files that survive a crash: written, synced, then renamed into place.
//
// A file that others will rely on is written under a temporary name and hashed on the way, synced, and only then renamed;
// the folder that holds it is synced as well, for without that the name itself can be lost. Every failure of the operating
// system is an `io` error that names the file; a full disk says so.
// Threads: plain values; one writer a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "transport/base/bytes.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/result.hpp"

namespace atl {

// What was written: enough to verify it later.
struct FileFacts {
  std::uint64_t bytes = 0;
  Digest sha256;
  friend bool operator==(const FileFacts&, const FileFacts&) = default;
};

// Creates a file (an existing one is replaced), writes consecutive pieces, hashes them.
class DurableFile {
 public:
  static Result<DurableFile> create(const DiskPath& path);
  DurableFile(DurableFile&& other) noexcept;
  DurableFile& operator=(DurableFile&&) = delete;
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;
  ~DurableFile();  // closes; what was not finished is not synced

  Status write(ByteView bytes);
  // Syncs and closes. No write after it.
  Result<FileFacts> finish();

 private:
  struct State;
  explicit DurableFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// SHA-256 and size of a regular file as it lies on the disk. Errors: not_found, io. Cost: reads it once, 1 MiB at a time.
Result<FileFacts> facts_of(const DiskPath& path);
// Syncs a file that is there already.
Status sync_file(const DiskPath& path);
// Renames within one file system, then syncs the folder that holds the new name.
Status rename_durably(const DiskPath& from, const DiskPath& to);
// Replaces a small file as a whole: a reader sees the old or the new content.
Status replace_file(const DiskPath& path, ByteView content);
// Makes a folder with its parents; its own name and that of the folder above it are on the disk then. Errors: io.
Status make_folders_durably(const DiskPath& path);
// The whole of a regular file, of at most `most` bytes. Errors: not_found, io, corrupt if it is longer.
Result<Bytes> read_file(const DiskPath& path, std::size_t most);

}  // namespace atl
