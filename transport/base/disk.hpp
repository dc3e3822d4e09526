// A disk: the files and folders below one folder, as an interface, so that everything that is kept can be kept on a simulated disk, too.
//
// Two kinds: own_disk.hpp on this machine's file systems, transport/simulated/simulated_disk.hpp in memory, with the faults that a seed
// draws. Paths are relative to the disk's folder; on a confined disk none leads out of it, whatever it says and whatever links lie there.
// Durability is that of POSIX: written bytes survive a loss of power once `sync` has returned, and a name (of a new or renamed file) once
// `sync_folder` of its folder has.
// Errors: not_found; io otherwise, naming the whole path; a full disk says so.
// Threads: a Disk may be used by any; DiskFile::read and map by any, the rest of a DiskFile by one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

// Bytes of a file as memory, and what keeps them there. A file that becomes shorter meanwhile must not be read beyond its end.
struct MappedBytes {
  ByteView bytes;
  std::shared_ptr<const void> owner;
};

// An open regular file. It may be renamed or removed while it is open.
class DiskFile {
 public:
  virtual ~DiskFile() = default;
  [[nodiscard]] virtual Result<std::uint64_t> size() const = 0;
  // Fills `into` from there; fewer bytes only at the end of the file. Returns how many.
  [[nodiscard]] virtual Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> into) const = 0;
  virtual Status write(std::uint64_t offset, ByteView bytes) = 0;
  // Shorter, or longer by zeros.
  virtual Status resize(std::uint64_t bytes) = 0;
  virtual Status sync() = 0;
  [[nodiscard]] virtual Result<MappedBytes> map() const = 0;
};

enum class OpenFor {
  reading,   // what is there
  writing,   // reading and writing what is there; made if nothing is
  creating,  // reading and writing, empty: made or emptied
};

enum class EntryKind { file, folder, other };  // other: a link, a device, a pipe

struct DiskEntry {
  std::string name;  // without its folder
  EntryKind kind = EntryKind::other;
  std::uint64_t bytes = 0;  // of a file
  TimePoint written = {};   // when it was changed last, by this machine's clock; the beginning of 1970: not known
};

class Disk {
 public:
  using Path = std::filesystem::path;
  virtual ~Disk() = default;
  // Errors: io also where something else than a regular file lies.
  virtual Result<std::unique_ptr<DiskFile>> open(const Path& path, OpenFor purpose) = 0;
  // What lies there; links are followed. Errors: not_found.
  [[nodiscard]] virtual Result<DiskEntry> look(const Path& path) const = 0;
  // In the order of names; links are not followed.
  [[nodiscard]] virtual Result<std::vector<DiskEntry>> list(const Path& folder) const = 0;
  // With its parents.
  virtual Status make_folders(const Path& path) = 0;
  // In one step; a file at `to` is replaced.
  virtual Status rename(const Path& from, const Path& to) = 0;
  // Each gets the other's name, in one step. Errors: not_found if one of them is not there.
  virtual Status exchange(const Path& a, const Path& b) = 0;
  // A file, or a folder with all that it holds; nothing there is no error.
  virtual Status remove(const Path& path) = 0;
  virtual Status sync_folder(const Path& path) = 0;
  // The path in messages to people, and for other processes of this machine.
  [[nodiscard]] virtual std::string text_of(const Path& path) const = 0;
};

// A place on a disk: of a file or folder that may or may not be there.
class DiskPath {
 public:
  DiskPath() = default;  // nowhere
  explicit DiskPath(std::shared_ptr<Disk> disk, Disk::Path path = {}) : disk_(std::move(disk)), path_(std::move(path)) {}

  [[nodiscard]] bool nowhere() const { return disk_ == nullptr; }
  [[nodiscard]] DiskPath operator/(const Disk::Path& name) const { return DiskPath(disk_, path_ / name); }
  // The same path with more letters at its end.
  [[nodiscard]] DiskPath operator+(const std::string& suffix) const { return DiskPath(disk_, path_.string() + suffix); }
  [[nodiscard]] DiskPath folder() const { return DiskPath(disk_, path_.parent_path()); }
  [[nodiscard]] std::string name() const { return path_.filename().string(); }
  [[nodiscard]] std::string text() const { return disk_ ? disk_->text_of(path_) : std::string(); }

  [[nodiscard]] Result<std::unique_ptr<DiskFile>> open(OpenFor purpose) const { return disk_->open(path_, purpose); }
  [[nodiscard]] Result<DiskEntry> look() const { return disk_->look(path_); }
  [[nodiscard]] bool exists() const { return disk_->look(path_).has_value(); }
  [[nodiscard]] Result<std::vector<DiskEntry>> list() const { return disk_->list(path_); }
  [[nodiscard]] Status make_folders() const { return disk_->make_folders(path_); }
  // Both ends lie on one disk.
  [[nodiscard]] Status rename_to(const DiskPath& to) const { return disk_->rename(path_, to.path_); }
  [[nodiscard]] Status exchange_with(const DiskPath& other) const { return disk_->exchange(path_, other.path_); }
  [[nodiscard]] Status remove() const { return disk_->remove(path_); }
  [[nodiscard]] Status sync_folder() const { return disk_->sync_folder(path_); }

 private:
  std::shared_ptr<Disk> disk_;
  Disk::Path path_;
};

}  // namespace atl
