// Who can reach a port of this machine, as far as that is known from inside.
// Threads: any.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "transport/base/address.hpp"

namespace atl {

// One sentence for its owner: who reaches `advertised`, and what to do for the others. `own`: this machine's addresses. A firewall, and
// what a router passes on, cannot be seen from here.
std::string reach_text(const Address& advertised, std::span<const std::string> own);

// The addresses of this machine's interfaces that are up, as text.
std::vector<std::string> own_addresses();

}  // namespace atl
