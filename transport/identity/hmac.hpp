// HMAC-SHA-256 (RFC 2104): proof that a message comes from somebody who knows a secret.
// Threads: pure.
#pragma once

#include "transport/base/bytes.hpp"

namespace atl {

Digest hmac_sha256(ByteView key, ByteView message);

}  // namespace atl
