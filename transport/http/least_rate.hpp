// How slow a transfer may be.
#pragma once

namespace atl {

// Bytes a second. What comes or goes slower than this for as long as a stall may last is broken off: a server that drips would keep it
// alive for ever, and nothing of any size arrives at such a rate.
inline constexpr long kLeastRate = 1024;

}  // namespace atl
