#include "coordinator/ledger/state_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
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
  StateLock lock(descriptor);
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

StateLock::StateLock(StateLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
StateLock& StateLock::operator=(StateLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}
StateLock::~StateLock() {
  if (descriptor_ >= 0) {
    ::close(descriptor_);
  }
}

}  // namespace atl::coordinator
