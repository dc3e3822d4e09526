#include "transport/base/beneath.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace atl {
namespace {

constexpr int kMostLinks = 40;  // as the kernel's own bound

FileDescriptor open_by_kernel(int folder, const std::string& path, int flags, mode_t mode) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags);
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  int fd = -1;
  do {  // EAGAIN: something was renamed on the way
    fd = static_cast<int>(::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how));
  } while (fd < 0 && (errno == EINTR || errno == EAGAIN));
  return FileDescriptor(fd);
}

// The text of a link; nothing with errno if there is none, or it is no link (EINVAL).
std::optional<std::filesystem::path> text_of_link(int folder, const std::string& name) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = ::readlinkat(folder, name.c_str(), text.data(), text.size());
  if (length < 0) {
    return std::nullopt;
  }
  return std::filesystem::path(std::string(text.data(), static_cast<std::size_t>(length)));
}

class Walk {
 public:
  Walk(int folder, int flags, mode_t mode) : first_(folder), flags_(flags), mode_(mode) {}

  // A descriptor, or none with errno.
  FileDescriptor open(const std::filesystem::path& path) {
    if (!put_before(path)) {
      return {};
    }
    while (true) {
      const std::string part = parts_.front();
      parts_.pop_front();
      const bool last = parts_.empty();
      if (part == "..") {
        if (held_.empty()) {
          errno = EXDEV;
          return {};
        }
        held_.pop_back();
      } else if (part != ".") {
        FileDescriptor opened = open_part(part, last);
        if (!opened.is_open()) {
          const int why = errno;
          if (!follow(part, last, why)) {
            return {};
          }
          continue;
        }
        if (last) {
          return opened;
        }
        held_.push_back(std::move(opened));
      }
      if (last) {  // the path ended with "." or ".."
        return FileDescriptor(::openat(here(), ".", flags_, mode_));
      }
    }
  }

 private:
  [[nodiscard]] int here() const { return held_.empty() ? first_ : held_.back().get(); }

  // False with errno if the path leads out.
  bool put_before(const std::filesystem::path& path) {
    if (path.empty()) {
      errno = ENOENT;
      return false;
    }
    if (path.is_absolute()) {
      errno = EXDEV;
      return false;
    }
    std::vector<std::string> names;
    for (const std::filesystem::path& part : path) {
      names.push_back(part.empty() ? "." : part.string());  // behind a slash at the end
    }
    parts_.insert(parts_.begin(), names.begin(), names.end());
    return true;
  }

  // A link is an error here: ELOOP, or ENOTDIR where a folder is asked for.
  [[nodiscard]] FileDescriptor open_part(const std::string& name, bool last) const {
    const int flags = last ? flags_ | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    FileDescriptor opened(::openat(here(), name.c_str(), flags, mode_));
    struct stat facts {};
    // With O_PATH alone it is the link itself that was opened.
    if (opened.is_open() && last && (flags_ & O_PATH) != 0 && (flags_ & O_NOFOLLOW) == 0 &&
        (::fstat(opened.get(), &facts) != 0 || S_ISLNK(facts.st_mode))) {
      errno = ELOOP;
      return FileDescriptor();
    }
    return opened;
  }

  // Goes on with a link's text in the place of its name; false with errno if it is no link, or must not be followed.
  bool follow(const std::string& name, bool last, int why) {
    errno = why;
    if ((why != ELOOP && why != ENOTDIR) || (last && (flags_ & O_NOFOLLOW) != 0)) {
      return false;
    }
    const std::optional<std::filesystem::path> text = text_of_link(here(), name);
    if (!text) {
      errno = why;
      return false;
    }
    if (++links_ > kMostLinks) {
      errno = ELOOP;
      return false;
    }
    return put_before(*text);
  }

  int first_;
  int flags_;
  mode_t mode_;
  int links_ = 0;
  std::deque<std::string> parts_;
  std::vector<FileDescriptor> held_;  // the folders from the first one to here
};

}  // namespace

Beneath way_beneath(int folder) {
  const FileDescriptor itself = open_by_kernel(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
  return itself.is_open() || (errno != ENOSYS && errno != EPERM) ? Beneath::by_kernel : Beneath::by_walk;
}

FileDescriptor open_beneath(Beneath way, int folder, const std::filesystem::path& path, int flags, mode_t mode) {
  return way == Beneath::by_kernel ? open_by_kernel(folder, path.string(), flags, mode) : Walk(folder, flags, mode).open(path);
}

}  // namespace atl
