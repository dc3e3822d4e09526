// The address of this machine in its network, for whoever is told where to dial it.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

namespace atl {

// The first IPv4 address of an interface that is up and not loopback; none without one.
std::optional<std::string> first_address();

}  // namespace atl
