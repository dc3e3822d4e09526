// Runs a command once for each island, in a network of the island's own from which a bad path leads to the others: real packets, and the
// kernel's own TCP (tests/process/packet_path.hpp). For what cannot be put behind the emulator of `local --link`, such as Gloo.
//
// The command finds its number in PATH_ISLAND (from 1), the number of islands in PATH_ISLANDS; island I is at 10.88.0.I, by the device
// "path". Needs root, `ip` and /dev/net/tun. Usage: packet_path ISLANDS ROUND_TRIP_MS MBIT LOSS COMMAND [ARGUMENT…]
#include "tests/process/packet_path.hpp"

#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: packet_path ISLANDS ROUND_TRIP_MS MBIT LOSS COMMAND [ARGUMENT...]\n");
    return 2;
  }
  const int islands = std::atoi(argv[1]);
  atl_test::PacketTerms terms;
  terms.round_trip = atl::from_seconds(std::atof(argv[2]) / 1e3);
  terms.bits_per_second = std::atof(argv[3]) * 1e6;
  terms.loss = std::atof(argv[4]);
  terms.queue = std::max<atl::Duration>(terms.round_trip, std::chrono::milliseconds(50));  // about what routers on such a path hold
  const atl_test::PacketPath path(islands, terms);
  if (!path.ok()) {
    std::fprintf(stderr, "the networks cannot be made: that takes root, ip and /dev/net/tun\n");
    return 1;
  }
  setenv("PATH_ISLANDS", argv[1], 1);
  std::vector<pid_t> started;
  for (int island = 1; island <= islands; ++island) {
    setenv("PATH_ISLAND", std::to_string(island).c_str(), 1);
    path.inside(island, [&] {
      pid_t pid = 0;
      if (posix_spawnp(&pid, argv[5], nullptr, nullptr, argv + 5, environ) == 0) {
        started.push_back(pid);
      }
    });
  }
  bool ok = started.size() == static_cast<std::size_t>(islands);
  for (const pid_t pid : started) {
    int status = 0;
    ok = ::waitpid(pid, &status, 0) == pid && status == 0 && ok;
  }
  return ok ? 0 : 1;
}
