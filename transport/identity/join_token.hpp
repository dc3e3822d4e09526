// Join tokens: one printable word that brings a new island or operator to its coordinator and lets it in, once.
//
// The word is "atoll1-" and base64url (RFC 4648 §5, no padding) of, little-endian:
//   u8 role (0 island, 1 operator) · i64 expiry, ms since 1970 · 32 bytes the coordinator's public key ·
//   u8 length, the secret · u8 length, the coordinator's address · 4 bytes: the first of the SHA-256 of all before
// The checksum recognises a mistyped or cut token. The coordinator keeps the SHA-256 of the secret only.
// Threads: plain values.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct JoinToken {
  std::string coordinator_address;  // "tcp://host:port"
  std::string coordinator_key;      // Z85
  std::string secret;               // what Enrol carries
  std::string role;                 // island | operator
  TimePoint expires;                // in whole milliseconds
  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

// 192 random bits as 32 printable characters.
std::string make_token_secret();

// Errors: invalid_argument for a token that cannot be: an address, key, secret or role that is none.
Result<std::string> to_text(const JoinToken& token);
// Blanks and line ends within the text are skipped: terminals wrap.
// Errors: invalid_argument for a text that is no token, or a damaged one, saying which.
Result<JoinToken> join_token_from_text(std::string_view text);
// unauthorized, saying since when, if the token has expired: worth telling before anybody is asked.
Status check_expiry(const JoinToken& token, TimePoint now);

}  // namespace atl
