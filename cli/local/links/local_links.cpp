#include "cli/local/links/local_links.hpp"

#include <mutex>
#include <utility>

#include "cli/local/port_owner.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/free_port.hpp"

namespace atl {

struct LocalLinks::Agents {
  std::mutex mutex;
  std::vector<pid_t> processes;  // by island
};

LocalLinks::LocalLinks(std::shared_ptr<Agents> agents, std::unique_ptr<LinkEmulator> emulator)
    : agents_(std::move(agents)), emulator_(std::move(emulator)) {}

Result<LocalLinks> LocalLinks::open(const LinkTerms& terms) {
  raise_descriptor_limit();  // for the pipes of what is on its way
  ATOLL_ASSIGN(std::unique_ptr<LinkEmulator> emulator, LinkEmulator::start(terms));
  return LocalLinks(std::make_shared<Agents>(), std::move(emulator));
}

Result<std::vector<std::string>> LocalLinks::add_island() {
  ATOLL_ASSIGN(const std::uint16_t own, free_port());
  const std::size_t line = emulator_->add_line();
  const auto dialler = [agents = agents_](std::uint16_t from, std::uint16_t door) {
    std::vector<pid_t> processes;
    {
      const std::lock_guard lock(agents->mutex);
      processes = agents->processes;
    }
    return owner_of_connection(from, door, processes);
  };
  ATOLL_ASSIGN(const std::uint16_t door, emulator_->add_door(line, own, dialler));
  const std::string host = "127.0.0.1:";
  return std::vector<std::string>{"--bind", "tcp://" + host + std::to_string(own), "--advertise", host + std::to_string(door)};
}

void LocalLinks::runs_as(std::size_t island, pid_t process) {
  const std::lock_guard lock(agents_->mutex);
  if (agents_->processes.size() <= island) {
    agents_->processes.resize(island + 1, 0);
  }
  agents_->processes[island] = process;
}

}  // namespace atl
