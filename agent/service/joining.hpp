// Getting in: enrolment with a token, and the addresses under which the others find this island.
// Threads: one.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "transport/base/result.hpp"
#include "transport/bulk/address_choice.hpp"
#include "transport/control/message.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/control_client.hpp"

namespace atl::agent {

// What an agent is told of the coordinator when it is started.
struct Entrance {
  std::filesystem::path state;
  std::string join_token;   // empty: it is enrolled
  std::string coordinator;  // "tcp://host:port"; empty: as stored or in the token
  bool insecure = false;
  std::string name;    // for the island, if it is enrolled now
  bool named = false;  // its owner has chosen the name
};

// Where the coordinator is: from the token (enrolling with it), from what is given, or as stored. Waits for the coordinator, and for room
// on the disk, until stop_fd is readable. Errors: not_found (not joined), the coordinator's refusal, cancelled, io.
Result<ControlClientSettings> find_coordinator(const Entrance& entrance, const KeyPair& keys, int stop_fd);

// By which name the coordinator knows this island: it may not be the one that was asked for, or is given by now. After find_coordinator().
std::string name_of_island(const Entrance& entrance);

// The coordinator answered at this address: it is looked for there at the next start, too. An island that never joined has no place.
Status remember_address(const std::filesystem::path& state, const std::string& address);

// Enrols the key of `settings` with the secret of a token; waits for the coordinator as long as it takes, also for one
// that cannot write at the moment, or until `stop_fd` is readable.
// Errors: the coordinator's refusal; cancelled.
Result<Enrolled> enrol(const ControlClientSettings& settings, const std::string& token_secret, const std::string& name, int stop_fd);

// Where other islands reach this one (transport/base/address.hpp): of `advertise` (each "host" or "host:port") and the address that is
// bound. With neither a host given nor bound to one, it is the address this machine uses towards the coordinator. Where the link listens on
// every interface the addresses of all of them follow. `mapped`: at which a router passes others on, empty without one; it is in front.
// Errors: invalid_argument; unavailable without a route.
Result<std::string> advertised_addresses(std::span<const std::string> advertise, const InterfaceRules& rules, const std::string& bound,
                                         const std::string& coordinator, const std::string& mapped);

// Whether this machine may be behind a router that passes a port on when it is asked: the link listens on every interface, and the first of
// `addresses`, which it offers, is a private one of IPv4 and not in a tunnel.
bool may_be_mapped(const std::string& bound, const std::string& addresses);

// This machine's name. "Linux x86_64, 2 cores, AVX2".
std::string host_name();
std::string platform_text();

}  // namespace atl::agent
