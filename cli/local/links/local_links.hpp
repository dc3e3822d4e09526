// LocalLinks: the emulated paths between the islands of one `atoll local --link`.
//
// An island's bulk port is one that only this machine's emulator dials; what it tells the others is the emulator's door. All bulk
// connections between islands come from an agent's process and go through a door, so they pass the lines of both. What comes through a
// door from elsewhere (an operator's export, `doctor`) passes the island's line alone. The control link is not emulated.
// Threads: one; the emulator has its own.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/emulated/link_emulator.hpp"

namespace atl {

class LocalLinks {
 public:
  // Errors: io.
  static Result<LocalLinks> open(const LinkTerms& terms);

  // Islands are numbered from 0. The value is what its agent is started with: --bind and --advertise. Errors: io.
  Result<std::vector<std::string>> add_island();
  // Its agent is this process now.
  void runs_as(std::size_t island, pid_t process);

 private:
  struct Agents;  // who is who
  LocalLinks(std::shared_ptr<Agents> agents, std::unique_ptr<LinkEmulator> emulator);

  std::shared_ptr<Agents> agents_;
  std::unique_ptr<LinkEmulator> emulator_;
};

}  // namespace atl
