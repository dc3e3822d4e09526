#include "transport/base/output_file.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

#include "transport/base/random_number.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;          // as the kernel follows
constexpr int kBetweenLooks = 50;       // milliseconds between two questions whether to stop
constexpr std::size_t kNameKept = 200;  // of the file's name in that of the file beside it: a name has at most 255 bytes

struct Target {
  fs::path path;
  bool through = false;
  bool regular = false;  // and is there
  struct stat facts {};  // of what is there
};

Error path_error(const fs::path& path, const std::string& what, int number) {
  std::string why = path.string() + ": " + what + ": " + std::strerror(number);
  if (number == ENOSPC || number == EDQUOT) {
    why += "; free some space";
  } else if (number == EFBIG) {
    why += "; the file size limit of this process (ulimit -f) is too low";
  }
  return {Code::io, std::move(why)};
}

Error is_folder(const fs::path& path) { return {Code::invalid_argument, path.string() + ": is a folder; give the name of a file in it"}; }

// A link of procfs (/dev/stdout leads to one) stands for an open file, whatever the path that it shows.
bool is_descriptor(const fs::path& link) {
  struct statfs facts {};
  return ::statfs(folder_of(link).c_str(), &facts) == 0 && facts.f_type == PROC_SUPER_MAGIC;
}

// Follows the links of `given` to the name that a new file takes, as the kernel would.
Result<Target> follow_links(const fs::path& given) {
  Target target{given, false, false, {}};
  struct stat facts {};
  for (int links = 0; ::lstat(target.path.c_str(), &facts) == 0 && S_ISLNK(facts.st_mode); ++links) {
    if (links == kMostLinks) {
      return path_error(given, "cannot be written", ELOOP);
    }
    if (is_descriptor(target.path)) {
      target.through = true;
      return target;
    }
    std::error_code failure;
    const fs::path next = fs::read_symlink(target.path, failure);
    if (failure) {
      return path_error(given, "cannot be written", failure.value());
    }
    target.path = next.is_absolute() ? next : folder_of(target.path) / next;
  }
  return target;
}

Result<Target> target_of(const fs::path& given) {
  if (given.empty()) {
    return Error{Code::invalid_argument, "the name of the file to write is empty"};
  }
  if (!given.has_filename() || given.filename() == "." || given.filename() == "..") {
    return is_folder(given);
  }
  // The kernel is asked first: it refuses to follow some links, those that others have put into /tmp.
  struct stat facts {};
  const bool there = ::stat(given.c_str(), &facts) == 0;
  if (!there && errno != ENOENT) {
    return path_error(given, "cannot be written", errno);
  }
  if (there && S_ISDIR(facts.st_mode)) {
    return is_folder(given);
  }
  ATOLL_ASSIGN(Target target, follow_links(given));
  target.facts = facts;
  target.through = target.through || (there && !S_ISREG(facts.st_mode));
  target.regular = there && !target.through;
  struct stat holder {};
  const fs::path folder = folder_of(target.path);
  if (!target.through && (::stat(folder.c_str(), &holder) != 0 || !S_ISDIR(holder.st_mode))) {
    return Error{Code::invalid_argument, given.string() + ": there is no folder " + folder.string() + "; make it first"};
  }
  return target;
}

// As write(2), but a FIFO whose reader is gone is an error and not the end of this process.
ssize_t write_without_signal(int fd, ByteView bytes) {
  sigset_t pipe_signal;
  sigset_t before;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe_signal, &before);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  const int number = errno;
  if (written < 0 && number == EPIPE && sigismember(&before, SIGPIPE) == 0) {
    const timespec at_once{};
    ::sigtimedwait(&pipe_signal, nullptr, &at_once);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = number;
  return written;
}

}  // namespace

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

Error OutputFile::failed(const char* what, int number) const { return path_error(given_, what, number); }

Status OutputFile::check(const fs::path& path) {
  ATOLL_ASSIGN(const Target target, target_of(path));
  const bool existing = target.through || target.regular;
  if (existing && ::access(path.c_str(), W_OK) != 0) {
    return path_error(path, "cannot be written", errno);
  }
  if (!target.through && ::access(folder_of(target.path).c_str(), W_OK | X_OK) != 0) {
    return path_error(path, "cannot be written in the folder " + folder_of(target.path).string(), errno);
  }
  return {};
}

Result<std::optional<fs::path>> OutputFile::folder_for(const fs::path& path) {
  ATOLL_TRY(check(path));
  ATOLL_ASSIGN(const Target target, target_of(path));
  return target.through ? std::nullopt : std::optional(folder_of(target.path));
}

Result<OutputFile> OutputFile::create(const fs::path& path, Stopped stopped) {
  ATOLL_TRY(check(path));
  ATOLL_ASSIGN(Target target, target_of(path));
  OutputFile file;
  file.given_ = path.string();
  file.target_ = std::move(target.path);
  file.through_ = target.through;
  file.stopped_ = std::move(stopped);
  if (file.through_) {
    ATOLL_TRY(file.open_through());
    return file;
  }
  ATOLL_TRY(file.open_beside());
  if (target.regular && ::fchmod(file.fd_, target.facts.st_mode & 07777U) != 0) {
    return file.failed("cannot be given the rights of the file that it replaces", errno);
  }
  return file;
}

Status OutputFile::wait_until_writable() const {
  while (true) {
    if (stopped_ && stopped_()) {
      return Error{Code::cancelled, "interrupted"};
    }
    pollfd entry{fd_, POLLOUT, 0};  // without a descriptor yet: a pause
    if (::poll(&entry, fd_ < 0 ? 0U : 1U, kBetweenLooks) != 0 || fd_ < 0) {
      return {};
    }
  }
}

// Opened for adding: what /dev/stdout leads to may be a file that has content already.
Status OutputFile::open_through() {
  while (true) {
    fd_ = ::open(given_.c_str(), O_WRONLY | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ >= 0) {
      return {};
    }
    struct stat facts {};
    const int number = errno;
    const bool no_reader = number == ENXIO && ::stat(given_.c_str(), &facts) == 0 && S_ISFIFO(facts.st_mode);
    if (!no_reader && number != EINTR) {
      return failed("cannot be opened for writing", number);
    }
    ATOLL_TRY(wait_until_writable());
  }
}

Status OutputFile::open_beside() {
  const std::string begin = target_.filename().string().substr(0, kNameKept) + ".";
  do {
    partial_ = folder_of(target_) / (begin + std::to_string(random_number() >> 32U) + ".partial");
    fd_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) {
    const int number = errno;
    partial_.clear();
    return failed("cannot be created", number);
  }
  return {};
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : given_(std::move(other.given_)),
      target_(std::move(other.target_)),
      partial_(std::exchange(other.partial_, {})),
      fd_(std::exchange(other.fd_, -1)),
      through_(other.through_),
      stopped_(std::move(other.stopped_)) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
  if (!partial_.empty()) {
    ::unlink(partial_.c_str());
  }
}

Status OutputFile::write(ByteView bytes) {
  ATOLL_CHECK(fd_ >= 0, "a finished file takes no more bytes");
  while (!bytes.empty()) {
    const ssize_t written = write_without_signal(fd_, bytes.first(std::min<std::size_t>(bytes.size(), 1ULL << 26)));
    if (written < 0 && errno == EAGAIN) {
      ATOLL_TRY(wait_until_writable());
    } else if (written < 0 && errno != EINTR) {
      return failed("cannot be written", errno);
    } else if (stopped_ && stopped_()) {
      return Error{Code::cancelled, "interrupted"};
    }
    bytes = bytes.subspan(static_cast<std::size_t>(std::max<ssize_t>(written, 0)));
  }
  return {};
}

Status OutputFile::finish() {
  const int fd = std::exchange(fd_, -1);
  int number = ::fsync(fd) == 0 ? 0 : errno;
  // What has nothing to sync says so.
  number = through_ && (number == EINVAL || number == ENOTSUP || number == EROFS) ? 0 : number;
  const int closed = ::close(fd) == 0 ? 0 : errno;
  if (number != 0 || closed != 0) {
    return failed(number != 0 ? "cannot be synced" : "cannot be closed", number != 0 ? number : closed);
  }
  if (through_) {
    return {};
  }
  if (::rename(partial_.c_str(), target_.c_str()) != 0) {
    return failed("cannot be put in its place", errno);
  }
  partial_.clear();
  const int folder = ::open(folder_of(target_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int synced = folder >= 0 && ::fsync(folder) == 0 ? 0 : errno;
  if (folder >= 0) {
    ::close(folder);
  }
  return synced == 0 || synced == EINVAL ? Status()
                                         : Status(failed("may be lost if the machine stops now: its folder cannot be synced", synced));
}

}  // namespace atl
