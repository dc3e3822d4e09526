#include "agent/service/surroundings.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "agent/island_link/arena.hpp"
#include "agent/storage/durable_file.hpp"
#include "transport/base/log.hpp"
#include "transport/base/own_disk.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kLongestLinkPath = 80;  // of a local socket's folder

}  // namespace

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

StopSignals::StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = ::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  ::signal(SIGPIPE, SIG_IGN);
}

StopSignals::~StopSignals() {
  ::close(fd_);
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignals::take() const {
  signalfd_siginfo info{};
  return ::read(fd_, &info, sizeof info) == sizeof info;
}

Result<LinkFolder> LinkFolder::make(const fs::path& state) {
  std::error_code failure;
  LinkFolder folder;
  folder.path_ = state / "link";
  if (folder.path_.string().size() > kLongestLinkPath) {
    std::string name = (fs::temp_directory_path(failure) / "atoll-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      return Error{Code::io, name + ": no folder for the trainer's socket can be made"};
    }
    folder.path_ = name;
  } else {
    fs::remove_all(folder.path_, failure);
    ATOLL_TRY(on_this_machine(folder.path_).make_folders());
    fs::permissions(folder.path_, fs::perms::owner_all, failure);
  }
  ::stat(folder.path_.c_str(), &folder.made_);
  return folder;
}

LinkFolder::LinkFolder(LinkFolder&& other) noexcept : path_(std::exchange(other.path_, {})), made_(other.made_) {}

LinkFolder::~LinkFolder() {
  std::error_code ignored;
  struct stat there {};
  if (!path_.empty() && ::stat(path_.c_str(), &there) == 0 && there.st_ino == made_.st_ino && there.st_dev == made_.st_dev) {
    fs::remove_all(path_, ignored);  // else it is another agent's, in a directory that took the place of this one's
  }
}

Result<std::string> own_program() {
  std::error_code failure;
  const fs::path path = fs::read_symlink("/proc/self/exe", failure);
  if (failure) {
    return Error{Code::io, "/proc/self/exe cannot be read: " + failure.message()};
  }
  return path.string();
}

void remove_old_arenas() {
  for (const std::string& path : island_link::remove_abandoned_arenas("/dev/shm", "atoll-i-")) {
    log_info("removed " + path + ", which an agent that was killed had left");
  }
}

Status keep_private(const fs::path& state) {
  ::umask(0077);
  ATOLL_TRY(make_folders_durably(on_this_machine(state / "runs")));
  ATOLL_TRY(on_this_machine(state / "trainers").make_folders());
  for (const fs::path& folder : {state, state / "runs"}) {
    if (::chmod(folder.c_str(), 0700) != 0) {
      return Error{Code::io, folder.string() + ": cannot be made private to its owner: " + std::strerror(errno)};
    }
  }
  return {};
}

}  // namespace atl::agent
