// What the state directory lies on: whether it can be made and written, how fast, and what its file system is not good for.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "cli/doctor/doctor.hpp"
#include "cli/settings/state_directory.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/file_descriptor.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr double kSlowDisk = 20e6;  // bytes a second: a checkpoint of a gigabyte takes a minute
constexpr std::uintmax_t kLittleRoom = std::uintmax_t{1} << 30;
constexpr const char* kGiveState = " give --state DIR or set ATOLL_STATE";
constexpr const char* kElsewhere = "; give --state DIR or set ATOLL_STATE";

// The folder, or the nearest one above that is there.
fs::path nearest_folder(const fs::path& state) {
  std::error_code failure;
  fs::path place = fs::absolute(state, failure);
  while (place.has_relative_path() && !fs::exists(place, failure)) {
    place = place.parent_path();
  }
  return place;
}

Finding look_at_absent(const fs::path& state) {
  const fs::path above = nearest_folder(state);
  if (::access(above.c_str(), W_OK | X_OK) != 0) {
    const int why = errno;
    return {"state", Health::bad,
            state.string() + " cannot be made: " + above.string() +
                (why == EROFS ? " is on a file system that is mounted read-only" : std::string(": ") + std::strerror(why)) + kElsewhere};
  }
  return {"state", Health::good, state.string() + " is not there yet: this machine has joined nothing"};
}

Finding look_at_state(const fs::path& state) {
  struct stat facts {};
  if (::stat(state.c_str(), &facts) != 0) {
    return look_at_absent(state);
  }
  if ((facts.st_mode & 0077) != 0) {
    return {"state", Health::bad, state.string() + " holds keys and can be read by others: chmod 700 " + state.string()};
  }
  const std::uintmax_t free = free_bytes(state);
  return {"state", free < kLittleRoom ? Health::doubtful : Health::good,
          state.string() + " is its owner's alone, " + human_bytes(free) + " are free there for checkpoints"};
}

// Writes a file of a checkpoint's kind and syncs it.
std::optional<Finding> look_at_disk(const fs::path& state) {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  constexpr std::size_t kBlocks = 32;
  std::error_code failure;
  if (!fs::is_directory(state, failure)) {
    return std::nullopt;
  }
  const fs::path path = state / ".doctor";
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const std::string block(kBlock, 'x');
  const TimePoint begin = now();
  bool good = file.is_open();
  int why = good ? 0 : errno;
  for (std::size_t i = 0; good && i < kBlocks; ++i) {
    good = ::write(file.get(), block.data(), block.size()) == static_cast<ssize_t>(block.size());
  }
  why = good || why != 0 ? why : errno;
  good = good && ::fsync(file.get()) == 0;
  const double took = seconds(now() - begin);
  ::unlink(path.c_str());
  if (!good) {
    return Finding{"disk", Health::bad,
                   why == EROFS ? state.string() + " is on a file system that is mounted read-only" + kElsewhere
                                : "nothing can be written to " + state.string() + ": " +
                                      (why == EDQUOT ? std::string("this user's quota there is used up; free some of it, or") + kGiveState
                                                     : "make room, or see who owns it")};
  }
  const double rate = static_cast<double>(kBlock * kBlocks) / std::max(took, 1e-6);
  return Finding{"disk", rate < kSlowDisk ? Health::doubtful : Health::good,
                 "checkpoints are written with " + human_bytes(static_cast<std::uint64_t>(rate)) + " a second"};
}

}  // namespace

std::uintmax_t free_bytes(const fs::path& folder) {
  struct statvfs facts {};
  return ::statvfs(folder.c_str(), &facts) == 0 ? std::uintmax_t{facts.f_bavail} * facts.f_frsize : 0;
}

std::optional<Finding> judge_file_system(const fs::path& state, std::uint64_t type, bool no_exec, bool coordinator) {
  struct Kind {
    std::uint64_t magic;
    const char* name;
  };
  static constexpr std::array<Kind, 7> kNetwork = {{{0x6969, "NFS"},
                                                    {0x517B, "SMB"},
                                                    {0xFE534D42, "SMB"},
                                                    {0xFF534D42, "CIFS"},
                                                    {0x0BD00BD0, "Lustre"},
                                                    {0x00C36400, "Ceph"},
                                                    {0x01021997, "9P"}}};
  constexpr std::uint64_t kMemory = 0x01021994;  // tmpfs
  const auto* network = std::ranges::find(kNetwork, type, &Kind::magic);
  if (network != kNetwork.end()) {
    const std::string text = state.string() + " is on " + network->name + ": ";
    return coordinator
               ? Finding{"filesystem", Health::bad,
                         text + "a coordinator's ledger (SQLite) can be damaged there; put it on a local disk" + kElsewhere}
               : Finding{"filesystem", Health::doubtful,
                         text + "checkpoints go over the network, and locks are only as good as the server; a local disk is better" +
                             kElsewhere};
  }
  if (type == kMemory) {
    return Finding{"filesystem", Health::doubtful,
                   state.string() +
                       " is in memory (tmpfs): keys, ledger and checkpoints are gone when the machine or the container restarts" +
                       kElsewhere};
  }
  if (no_exec) {
    return Finding{"filesystem", Health::good, state.string() + " is mounted noexec, which does not matter: nothing is started from there"};
  }
  return std::nullopt;
}

std::vector<Finding> look_at_state_directory(const fs::path& state) {
  std::vector<Finding> findings = {look_at_state(state)};
  const fs::path place = nearest_folder(state);
  struct statfs facts {};
  struct statvfs flags {};
  if (::statfs(place.c_str(), &facts) == 0 && ::statvfs(place.c_str(), &flags) == 0) {
    const bool coordinator = is_there(state / "coordinator.toml");
    if (std::optional<Finding> found =
            judge_file_system(state, static_cast<std::uint32_t>(facts.f_type), (flags.f_flag & ST_NOEXEC) != 0, coordinator)) {
      findings.push_back(*std::move(found));
    }
  }
  if (std::optional<Finding> disk = look_at_disk(state)) {
    findings.push_back(*std::move(disk));
  }
  return findings;
}

}  // namespace atl
