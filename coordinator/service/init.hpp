// What makes a directory a coordinator's: its keys, its first operator's key, its settings.
//
//   STATE/coordinator.toml   name, bind address, advertised address; written once, edited by its owner
//   STATE/keys/coordinator   the coordinator's key pair; losing it means enrolling every island again
//   STATE/keys/operator      the first operator's key pair: who may read it may command the coordinator
//   STATE/ledger.db, STATE/lock
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "transport/base/result.hpp"

namespace atl::coordinator {

inline constexpr std::uint16_t kDefaultPort = 4400;

struct CoordinatorSettings {
  std::string name;             // for people; the host's name by default
  std::string bind;             // "tcp://*:4400": where it listens
  std::string advertise;        // "tcp://192.0.2.7:4400": what join tokens carry, so what islands dial
  std::string network = "lan";  // preset of times (network.hpp)
  friend bool operator==(const CoordinatorSettings&, const CoordinatorSettings&) = default;
};

// The settings a machine gets when nobody says otherwise: every interface, and the first address that others can dial.
CoordinatorSettings default_settings();

// What others dial when it listens there: the same, or for every interface the first address that others can dial.
std::string advertised_for(const std::string& bind);

// The text of coordinator.toml.
std::string to_toml(const CoordinatorSettings& settings);

// invalid_argument naming the key for an address that is not tcp://HOST:PORT, or an advertised one that nobody can dial.
Status check_settings(const CoordinatorSettings& settings);

// Makes the state directory, readable by its owner only. What an interrupted init left is completed.
// Errors: conflict if it is a coordinator's already (nothing is overwritten); invalid_argument as check_settings; io.
Status init_coordinator(const std::filesystem::path& state, const CoordinatorSettings& settings);

inline std::filesystem::path coordinator_key_file(const std::filesystem::path& state) { return state / "keys" / "coordinator"; }
inline std::filesystem::path operator_key_file(const std::filesystem::path& state) { return state / "keys" / "operator"; }
inline std::filesystem::path settings_file(const std::filesystem::path& state) { return state / "coordinator.toml"; }

}  // namespace atl::coordinator
