// Dialling an address as a link would, through this process's proxy where that leads there, to see whether anybody answers there, how far
// it is, and how large its packets may be. Threads: any; blocks.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/base/address.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct Dialled {
  Duration round_trip{};  // that the TCP connection took; after the name was found. Through a proxy: until its way was open
  std::uint32_t mtu = 0;  // bytes of the largest packet on the path, as the system knows it; 0: it does not
};

// Connects by TCP and hangs up. Errors: not_found (the name is unknown), unavailable (nobody listens, or there is no way), timeout (packets
// are dropped on the way); each says what to do.
Result<Dialled> dial(const Address& address, Duration patience);

// Dials all of an island's addresses (transport/base/address.hpp) at once: the nearest that answers. Errors: of the first.
Result<Dialled> dial_nearest(std::string_view addresses, Duration patience);

}  // namespace atl
