// Local training, the baseline that sends nothing: every island trains alone on its part of the data.
//
// The composition "local": fragments whole · period H · group nobody · payload parameters · outer optimiser adopt · merge 0.
// Every H inner steps the island's outer parameters become its trainer's, exactly, so that progress, validation and
// checkpoints work as with any other strategy. Digests differ from island to island by design.
//
// Cost of one round: 0 messages, 0 bytes.
#pragma once

#include "strategies/diloco.hpp"

namespace atl {

inline constexpr RoundCost kLocalCost{};

}  // namespace atl
