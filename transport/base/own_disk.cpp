#include "transport/base/own_disk.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "transport/base/beneath.hpp"
#include "transport/base/file_descriptor.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr int kAlways = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;  // a pipe is not waited for, a terminal is not taken
constexpr std::size_t kMostAtOnce = 1ULL << 30;

Error os_error(const std::string& path, const char* what, int number) {
  const Code code = number == ENOENT ? Code::not_found : Code::io;
  std::string why = path + ": " + what + ": " + std::strerror(number);
  if (number == ENOSPC || number == EDQUOT) {
    why += "; free some space";
  } else if (number == EFBIG) {
    why += "; the file size limit of this process (ulimit -f) is too low";
  } else if (number == EXDEV) {
    why += "; it leads out of the folder that it belongs to";
  }
  return {code, std::move(why)};
}

class OwnFile final : public DiskFile {
 public:
  OwnFile(FileDescriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  [[nodiscard]] Result<std::uint64_t> size() const override {
    struct stat facts {};
    if (::fstat(fd_.get(), &facts) != 0) {
      return os_error(path_, "cannot be looked at", errno);
    }
    return static_cast<std::uint64_t>(facts.st_size);
  }

  [[nodiscard]] Result<std::size_t> read(std::uint64_t offset, std::span<std::byte> into) const override {
    std::size_t done = 0;
    while (done < into.size()) {
      const ssize_t got = ::pread(fd_.get(), into.data() + done, into.size() - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        return os_error(path_, "cannot be read", errno);
      }
      if (got == 0) {
        break;
      }
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  Status write(std::uint64_t offset, ByteView bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), kMostAtOnce), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        return os_error(path_, "cannot be written", errno);
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
    return {};
  }

  Status resize(std::uint64_t bytes) override {
    return ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0 ? Status() : os_error(path_, "cannot get another size", errno);
  }
  Status sync() override { return ::fsync(fd_.get()) == 0 ? Status() : os_error(path_, "cannot be synced", errno); }

  [[nodiscard]] Result<MappedBytes> map() const override {
    ATOLL_ASSIGN(const std::uint64_t bytes, size());
    if (bytes == 0) {
      return MappedBytes{};
    }
    void* memory = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_.get(), 0);
    if (memory == MAP_FAILED) {
      return os_error(path_, "cannot be mapped", errno);
    }
    return MappedBytes{{static_cast<const std::byte*>(memory), bytes},
                       std::shared_ptr<const void>(memory, [bytes](const void* at) { ::munmap(const_cast<void*>(at), bytes); })};
  }

 private:
  FileDescriptor fd_;
  std::string path_;
};

EntryKind kind_of(const struct stat& facts) {
  return S_ISREG(facts.st_mode) ? EntryKind::file : S_ISDIR(facts.st_mode) ? EntryKind::folder : EntryKind::other;
}

DiskEntry entry_of(std::string name, const struct stat& facts) {
  const Duration since_1970 = std::chrono::seconds(facts.st_mtim.tv_sec) + std::chrono::nanoseconds(facts.st_mtim.tv_nsec);
  return {std::move(name), kind_of(facts), S_ISREG(facts.st_mode) ? static_cast<std::uint64_t>(facts.st_size) : 0, TimePoint(since_1970)};
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// The names in a folder, but for itself and its parent. Takes the descriptor.
Result<std::vector<std::string>> names_in(FileDescriptor folder, const std::string& path) {
  const int copy = ::fcntl(folder.get(), F_DUPFD_CLOEXEC, 0);
  const std::unique_ptr<DIR, CloseFolder> stream(copy < 0 ? nullptr : ::fdopendir(copy));
  if (!stream) {
    return os_error(path, "cannot be listed", errno);
  }
  std::vector<std::string> names;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr && errno != 0) {
      return os_error(path, "cannot be listed", errno);
    }
    if (entry == nullptr) {
      std::sort(names.begin(), names.end());
      return names;
    }
    const std::string name = static_cast<const char*>(entry->d_name);
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
}

// A folder goes with all that it holds; links in it are removed, not followed. Errno, or 0.
int remove_at(int folder, const std::string& name) {
  if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) {
    return 0;
  }
  if (errno != EISDIR && errno != EPERM) {
    return errno;
  }
  FileDescriptor inside(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!inside.is_open()) {
    return errno;
  }
  const int handle = inside.get();
  FileDescriptor listed(::fcntl(handle, F_DUPFD_CLOEXEC, 0));
  const Result<std::vector<std::string>> names = names_in(std::move(listed), name);
  if (!names) {
    return EIO;
  }
  for (const std::string& child : *names) {
    if (const int failure = remove_at(handle, child); failure != 0) {
      return failure;
    }
  }
  return ::unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

class OwnDisk final : public Disk {
 public:
  // Without a folder: the whole machine.
  OwnDisk() = default;
  OwnDisk(FileDescriptor folder, fs::path named) : folder_(std::move(folder)), way_(way_beneath(folder_.get())), named_(std::move(named)) {}

  Result<std::unique_ptr<DiskFile>> open(const Path& path, OpenFor purpose) override {
    if (purpose != OpenFor::reading) {
      ATOLL_TRY(still_there());
    }
    const int flags = purpose == OpenFor::reading ? O_RDONLY : purpose == OpenFor::writing ? O_RDWR | O_CREAT : O_RDWR | O_CREAT | O_TRUNC;
    FileDescriptor fd(descend(path, flags, 0644));
    if (!fd.is_open()) {
      return os_error(text_of(path), purpose == OpenFor::creating ? "cannot be created" : "cannot be opened", errno);
    }
    struct stat facts {};
    if (::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
      return Error{Code::io, text_of(path) + ": not a regular file"};
    }
    return std::unique_ptr<DiskFile>(new OwnFile(std::move(fd), text_of(path)));
  }

  [[nodiscard]] Result<DiskEntry> look(const Path& path) const override {
    const FileDescriptor fd(descend(path, O_PATH, 0));
    struct stat facts {};
    if (!fd.is_open() || ::fstat(fd.get(), &facts) != 0) {
      return os_error(text_of(path), "cannot be looked at", errno);
    }
    return entry_of(path.filename().string(), facts);
  }

  [[nodiscard]] Result<std::vector<DiskEntry>> list(const Path& folder) const override {
    FileDescriptor fd(descend(folder, O_RDONLY | O_DIRECTORY, 0));
    if (!fd.is_open()) {
      return os_error(text_of(folder), "cannot be opened", errno);
    }
    FileDescriptor same(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
    ATOLL_ASSIGN(const std::vector<std::string> names, names_in(std::move(same), text_of(folder)));
    std::vector<DiskEntry> entries;
    for (const std::string& name : names) {
      struct stat facts {};
      if (::fstatat(fd.get(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0) {  // else it went meanwhile
        entries.push_back(entry_of(name, facts));
      }
    }
    return entries;
  }

  Status make_folders(const Path& path) override {
    ATOLL_TRY(still_there());
    Path so_far;
    for (const Path& part : path) {
      so_far /= part;
      if (part.empty() || part == "/" || part == ".") {
        continue;
      }
      const Held at = hold(so_far);
      if (::mkdirat(at.get(), at.name.c_str(), 0777) != 0 && errno != EEXIST) {
        return os_error(text_of(so_far), "cannot be created", errno);
      }
    }
    const FileDescriptor made(descend(path, O_PATH | O_DIRECTORY, 0));
    return made.is_open() ? Status() : os_error(text_of(path), "cannot be created", errno);
  }

  Status rename(const Path& from, const Path& to) override { return move(from, to, 0); }
  Status exchange(const Path& a, const Path& b) override { return move(a, b, RENAME_EXCHANGE); }

  Status remove(const Path& path) override {
    const Held at = hold(path);
    if (!at.found()) {
      return at.failure == ENOENT ? Status() : os_error(text_of(path), "cannot be removed", at.failure);
    }
    const int failure = remove_at(at.get(), at.name);
    return failure == 0 ? Status() : os_error(text_of(path), "cannot be removed", failure);
  }

  Status sync_folder(const Path& path) override {
    const FileDescriptor fd(descend(path, O_RDONLY | O_DIRECTORY, 0));
    if (!fd.is_open()) {
      return os_error(text_of(path), "cannot be opened", errno);
    }
    return ::fsync(fd.get()) == 0 ? Status() : os_error(text_of(path), "cannot be synced", errno);
  }

  [[nodiscard]] std::string text_of(const Path& path) const override { return path.empty() ? named_.string() : (named_ / path).string(); }

 private:
  // The folder of a path, and the path's last name in it.
  struct Held {
    FileDescriptor folder;
    bool here = false;  // the disk's own
    int own = AT_FDCWD;
    std::string name;
    int failure = 0;
    [[nodiscard]] bool found() const { return here || folder.is_open(); }
    [[nodiscard]] int get() const { return here ? own : folder.get(); }
  };

  [[nodiscard]] bool confined() const { return folder_.is_open(); }
  // Whether the folder that is held is the one that its name leads to. One that cannot be looked at is not gone.
  [[nodiscard]] Status still_there() const {
    struct stat there {};
    struct stat held {};
    if (!confined() || ::fstat(folder_.get(), &held) != 0) {
      return {};
    }
    const bool looked = ::stat(named_.c_str(), &there) == 0;
    const bool gone = !looked && (errno == ENOENT || errno == ENOTDIR);
    if (gone || (looked && (there.st_ino != held.st_ino || there.st_dev != held.st_dev))) {
      return Error{Code::io, named_.string() + " was removed or replaced while it is in use; nothing is written into it any more"};
    }
    return {};
  }
  [[nodiscard]] int root() const { return confined() ? folder_.get() : AT_FDCWD; }

  // A descriptor of what lies at the path, or none with errno.
  [[nodiscard]] FileDescriptor descend(const Path& path, int flags, mode_t mode) const {
    const Path named = path.empty() ? Path(".") : path;
    const int all = flags | ((flags & O_PATH) != 0 ? O_CLOEXEC : kAlways);
    if (!confined()) {
      return FileDescriptor(::openat(AT_FDCWD, named.c_str(), all, mode));
    }
    if (std::find(named.begin(), named.end(), "..") != named.end()) {
      errno = EXDEV;
      return {};
    }
    return open_beneath(way_, folder_.get(), named, all, mode);
  }

  [[nodiscard]] Held hold(const Path& path) const {
    Held held;
    held.name = path.filename().string();
    held.own = root();
    if (held.name.empty() || held.name == "..") {
      held.failure = confined() ? EXDEV : EINVAL;  // the disk's own folder, or one above: neither is renamed or removed
      return held;
    }
    const Path parent = path.parent_path();
    held.here = parent.empty();
    if (!held.here) {
      held.folder = FileDescriptor(descend(parent, O_PATH | O_DIRECTORY, 0));
      held.failure = held.folder.is_open() ? 0 : errno;
    }
    return held;
  }

  Status move(const Path& from, const Path& to, unsigned flags) {
    ATOLL_TRY(still_there());
    const Held source = hold(from);
    const Held target = hold(to);
    const std::string what = "cannot be renamed to " + text_of(to);
    if (!source.found() || !target.found()) {
      return os_error(text_of(from), what.c_str(), source.found() ? target.failure : source.failure);
    }
    if (::renameat2(source.get(), source.name.c_str(), target.get(), target.name.c_str(), flags) != 0) {
      return os_error(text_of(from), what.c_str(), errno);
    }
    return {};
  }

  FileDescriptor folder_;
  Beneath way_ = Beneath::by_walk;
  fs::path named_;
};

}  // namespace

Result<DiskPath> confined_to(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    return Error{Code::io, folder.string() + ": cannot be created: " + failure.message()};
  }
  FileDescriptor fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) {
    return os_error(folder.string(), "cannot be opened", errno);
  }
  auto disk = std::make_shared<OwnDisk>(std::move(fd), folder);
  if (const Result<DiskEntry> itself = disk->look({}); !itself) {
    return with_context(itself.error(), "files cannot be confined to a folder");
  }
  return DiskPath(std::move(disk));
}

DiskPath on_this_machine(const fs::path& path) {
  static const auto kMachine = std::make_shared<OwnDisk>();
  return DiskPath(kMachine, path);
}

}  // namespace atl
