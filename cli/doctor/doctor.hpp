// What `atoll doctor` looks at: one finding for each thing, with a verdict and what to do.
// Threads: one; these read files and dial addresses.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/trainer_facts.hpp"
#include "agent/storage/membership_file.hpp"
#include "cli/line/command.hpp"
#include "cli/planning/measured_paths.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/address.hpp"

namespace atl {

enum class Health : std::uint8_t { good, doubtful, bad };

struct Finding {
  std::string what;  // one word
  Health health = Health::good;
  std::string text;
};

// How this machine reaches another island.
struct IslandReach {
  std::string name;
  std::string address;
  double round_trip_ms = 0;
  std::uint32_t mtu = 0;                         // 0: not known
  std::string why_not;                           // empty: it answers
  std::optional<double> uplink_bits_per_second;  // what the island's last exchange sent and received
  std::optional<double> downlink_bits_per_second;
};

// Files that doctor is told of; "": the usual ones in the state directory.
struct DoctorFiles {
  std::string config;       // the agent's settings
  std::string certificate;  // the page's
};

// The built-in trainer, which lies at `module` (empty: there is none), and what it computes with: nothing where its LibTorch cannot be
// loaded, many times too slowly with the reference BLAS.
Finding judge_trainer(const std::string& module, const std::string& looked_for, const TrainerFacts& trainer);

struct TcpFacts;  // transport/zmq/tcp_tuning.hpp
// How the kernel controls congestion, and how much its buffers let a connection carry over a far path.
Finding judge_connections(const TcpFacts& facts);

// Of the file system that the state directory is on, by its magic number (statfs): one of a network, in memory, or mounted noexec.
std::optional<Finding> judge_file_system(const std::filesystem::path& state, std::uint64_t type, bool no_exec, bool coordinator);
// The state directory, its file system and its disk.
std::vector<Finding> look_at_state_directory(const std::filesystem::path& state);
// What this user may still write there.
std::uintmax_t free_bytes(const std::filesystem::path& folder);

// Trainer, device, memory (for the run's arena, if there is a run), descriptors, connections, state directory, its disk, its
// data sets.
std::vector<Finding> look_at_machine(const Invocation& invocation, const std::filesystem::path& state, const std::string& config,
                                     const std::optional<RunSpec>& run);
// What lies between the islands.
struct IslandPaths {
  std::vector<IslandReach> reaches;   // of each connected island, from here
  std::vector<PathFigures> measured;  // between them
};

// The page's certificate, the coordinator (name, port, key, version, clock), this machine's own port, tokens, and the data paths between
// the connected islands, which are measured for so long each if there is a `probe`. Nothing of a coordinator that this machine neither
// joined nor is an operator of.
std::vector<Finding> look_at_network(const Invocation& invocation, const std::filesystem::path& state, const DoctorFiles& files,
                                     const std::optional<Duration>& probe, IslandPaths& between);

// One place that saw a connection of this machine, and at which address it did.
struct Sighting {
  std::string place;  // "relay frankfurt", "its second port"
  Address at;
};

// How others reach this machine's island, as far as that was found out.
struct ReachFacts {
  std::string seen_host;             // where the coordinator sees it; empty: not known
  std::vector<Sighting> sightings;   // all of one port of this machine's
  std::string why_no_more;           // sightings: what has to be done so that there are two
  std::vector<std::string> own;      // the hosts of this machine's interfaces
  Address listens;                   // the island, at this machine's address towards the coordinator
  std::string mapped;                // where the router passes others on, by port mapping; empty: it does not
  std::vector<std::string> dialled;  // where other islands dial it now
  bool relay = false;                // there is one that carries data
};
// What others see of this machine, what its router does with ports, IPv6; and a line for whoever runs the router or the firewall, where
// something has to be opened.
std::vector<Finding> judge_reach(const ReachFacts& facts);
// Asks the coordinator and its relays, with the island's key.
std::vector<Finding> look_at_reach(const std::filesystem::path& state, const agent::CoordinatorPlace& place, const KeyPair& keys,
                                   std::uint16_t port);

// What an agent's settings file says, as far as doctor needs it: `config`, or agent.toml in the state directory.
struct AgentSettings {
  std::vector<std::string> data;
  std::vector<std::string> allow_data;
  std::string bind;
  std::string proxy;
};
// Errors: those of take_settings (settings_file.hpp).
Result<AgentSettings> read_agent_settings(const std::filesystem::path& state, const std::string& config);

}  // namespace atl
