#include "coordinator/ledger/state_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace atl::coordinator {

Result<StateLock> StateLock::take(const std::filesystem::path& state) {
  const std::string path = (state / "lock").string();
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return Error{Code::io, "cannot open " + path + ": " + std::strerror(errno)};
  }
  StateLock lock(descriptor, path);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return Error{Code::io, "cannot lock " + path + ": " + std::strerror(errno)};
    }
    char owner[32] = {};
    const ssize_t got = ::pread(descriptor, owner, sizeof owner - 1, 0);
    std::string pid(owner, got > 0 ? static_cast<std::size_t>(got) : 0);
    pid.erase(pid.find_last_not_of("\n ") + 1);
    return Error{Code::conflict, "another coordinator (pid " + (pid.empty() ? "unknown" : pid) + ") uses " + state.string() +
                                     "; stop it first, or choose another --state"};
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  // The pid is for people; the lock holds without it, on a full disk, say.
  if (::ftruncate(descriptor, 0) == 0) {
    (void)!::pwrite(descriptor, pid.data(), pid.size(), 0);
  }
  return lock;
}

StateLock::StateLock(StateLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}
StateLock& StateLock::operator=(StateLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}
Status StateLock::still_held() const {
  struct stat there {};
  struct stat held {};
  if (::stat(path_.c_str(), &there) == 0 && ::fstat(descriptor_, &held) == 0 && there.st_ino == held.st_ino &&
      there.st_dev == held.st_dev) {
    return {};
  }
  return Error{Code::io, path_ + " was removed or replaced while this coordinator runs"};
}

StateLock::~StateLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

}  // namespace atl::coordinator
