// That a generation was issued by a coordinator with a certain secret key: HMAC-SHA-256 over its numbers.
//
// Without it any enrolled island could claim to have met a newer coordinator, and stop this one for good.
#pragma once

#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/generation.hpp"

namespace atl {

// What generations are proven with, from the coordinator's secret key (40 characters Z85). One-way: it does not give the key away.
Bytes generation_key(const std::string& secret_key);

// Sets the proof.
void prove(Generation& generation, ByteView key);
[[nodiscard]] bool proven(const Generation& generation, ByteView key);

}  // namespace atl
