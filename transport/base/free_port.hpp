// A port for a server of this machine whose number nobody has to know before.
#pragma once

#include <cstdint>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

// A TCP port of this IPv4 address on which nobody listens, drawn at random from those below the range that Linux gives to outgoing
// connections (32768 on): no connection that somebody makes before the server listens takes it.
// Errors: io if none of a hundred draws is free; invalid_argument for another text than an IPv4 address. Threads: any.
Result<std::uint16_t> free_port(const std::string& host = "127.0.0.1");

}  // namespace atl
