#include "transport/base/room_on_disk.hpp"

#include <poll.h>
#include <sys/statvfs.h>

#include <cstdint>
#include <string>

#include "transport/base/log.hpp"

namespace atl {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kLittleRoom = 64ULL << 10;  // bytes: less than what a ledger needs to be opened
constexpr int kLookAgainMs = 1000;

bool has_no_room(fs::path folder) {
  struct statvfs facts {};
  while (::statvfs(folder.c_str(), &facts) != 0) {
    if (!folder.has_parent_path() || folder.parent_path() == folder) {
      return false;
    }
    folder = folder.parent_path();
  }
  return static_cast<std::uint64_t>(facts.f_bavail) * facts.f_frsize < kLittleRoom || (facts.f_files > 0 && facts.f_favail == 0);
}

}  // namespace

Status once_there_is_room(const fs::path& folder, int stop_fd, const std::function<Status()>& write) {
  for (bool told = false;; told = true) {
    const Status written = write();
    if (written && told) {
      log_info("there is room on the disk of " + folder.string() + " again");
    }
    if (written || written.error().code == Code::cancelled || !has_no_room(folder)) {
      return written;
    }
    if (!told) {
      log_error(written.error().why + "; the disk of " + folder.string() + " is full: this waits until there is room on it");
    }
    pollfd stop = {stop_fd, POLLIN, 0};
    if (::poll(&stop, 1, kLookAgainMs) > 0) {
      return Error{Code::cancelled, "stopped while the disk of " + folder.string() + " was full"};
    }
  }
}

}  // namespace atl
