// Getting in: enrolment with a token, and the addresses under which the others find this island.
// Threads: one.
#pragma once

#include <string>

#include "transport/base/result.hpp"
#include "transport/control/message.hpp"
#include "transport/zmq/control_client.hpp"

namespace atl::agent {

// Enrols the key of `settings` with the secret of a token; waits for the coordinator as long as it takes, or until `stop_fd` is readable.
// Errors: the coordinator's refusal; cancelled.
Result<Enrolled> enrol(const ControlClientSettings& settings, const std::string& token_secret, const std::string& name, int stop_fd);

// "tcp://host:port" for other islands: of `advertise` ("host", "host:port" or empty) and the address that is bound. With neither a host
// given nor bound to one, it is the address this machine uses towards the coordinator. Errors: invalid_argument.
Result<std::string> advertised_address(const std::string& advertise, const std::string& bound, const std::string& coordinator);

// This machine's name. "Linux x86_64, 2 cores, AVX2".
std::string host_name();
std::string platform_text();

}  // namespace atl::agent
