// The state directory, as the command line sees it, and where it says the coordinator is.
//
//   STATE/coordinator.toml, STATE/keys/coordinator   on the coordinator's machine (`atoll coordinator init` wrote them)
//   STATE/operator.toml                              on an operator's machine (`atoll token use` wrote it): address, coordinator_key
//   STATE/keys/operator                              the operator's key pair, on either
// Threads: pure functions, and files.
#pragma once

#include <filesystem>
#include <string>

#include "cli/line/command.hpp"
#include "transport/base/result.hpp"
#include "transport/identity/identity.hpp"

namespace atl {

// --state, else $ATOLL_STATE, else $XDG_STATE_HOME/atoll, else ~/.local/state/atoll.
Result<std::filesystem::path> state_directory(const std::string& given, const Environment& environment);

// How an operator reaches the coordinator.
struct CoordinatorAccess {
  std::string address;          // "tcp://host:port" that can be dialled
  std::string coordinator_key;  // Z85
  KeyPair keys;                 // the operator's
  bool insecure = false;
};

// From --coordinator, --key, --state and the state directory; `--key FILE` alone implies the state directory FILE lies in
// (STATE/keys/operator).
// Errors: unavailable if no coordinator is known, unauthorized if there is no operator's key, both saying how to get it; those
// of the key files; invalid_argument for a broken address or file.
Result<CoordinatorAccess> find_coordinator(const CoordinatorOptions& options, const Environment& environment);

// Errors: conflict if STATE/operator.toml names another coordinator.
Status check_operator_file(const std::filesystem::path& state, const std::string& coordinator_key);
// Writes STATE/operator.toml. Errors: conflict if it names another coordinator, io.
Status write_operator_file(const std::filesystem::path& state, const std::string& address, const std::string& coordinator_key);

// Two texts of a small TOML file, "" for one that is absent. Errors: not_found, io, invalid_argument with file and line.
struct CoordinatorFile {
  std::string name;
  std::string bind;
  std::string advertise;
  std::string address;
  std::string coordinator_key;
  std::string network;  // empty: the default
  std::string web;      // where the page is served; empty: nowhere
};
Result<CoordinatorFile> read_coordinator_file(const std::filesystem::path& path);

bool is_there(const std::filesystem::path& path);

}  // namespace atl
