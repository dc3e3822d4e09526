#include "cli/local/port_owner.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>

namespace atl {
namespace {

namespace fs = std::filesystem;

// "0100007F:1130" is 127.0.0.1:4400.
std::uint16_t port_in(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  return colon == std::string::npos ? std::uint16_t{0} : static_cast<std::uint16_t>(std::strtoul(address.c_str() + colon + 1, nullptr, 16));
}

// The number of the socket with that local port, as the kernel names it.
std::optional<std::string> socket_of(std::uint16_t from, std::uint16_t to) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // what the columns are
    while (std::getline(file, line)) {
      std::istringstream columns(line);
      std::string slot, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      columns >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      if (port_in(local) == from && port_in(remote) == to && inode != "0") {
        return inode;
      }
    }
  }
  return std::nullopt;
}

bool has_socket(pid_t process, const std::string& socket) {
  std::error_code gone;
  const std::string wanted = "socket:[" + socket + "]";
  for (fs::directory_iterator entry("/proc/" + std::to_string(process) + "/fd", gone); !gone && entry != fs::directory_iterator();
       entry.increment(gone)) {
    std::error_code closed;
    if (fs::read_symlink(entry->path(), closed).string() == wanted) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<std::size_t> owner_of_connection(std::uint16_t from, std::uint16_t to, std::span<const pid_t> processes) {
  const std::optional<std::string> socket = socket_of(from, to);
  for (std::size_t i = 0; socket && i < processes.size(); ++i) {
    if (has_socket(processes[i], *socket)) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace atl
