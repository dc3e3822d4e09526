// Identity: a Curve25519 key pair says who an island, an operator or the coordinator is, whatever its address.
//
// Keys are written in Z85 (ZeroMQ RFC 32), 40 characters. A key file holds one pair:
//   # atoll key pair; the line "secret" is not for others
//   public <Z85>
//   secret <Z85>
// Its mode is 0600; a file that others can read is refused, since its secret may be known. Who loses the file loses the identity.
// Threads: pure functions, and files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct KeyPair {
  std::string public_key;  // Z85
  std::string secret_key;  // Z85
  friend bool operator==(const KeyPair&, const KeyPair&) = default;
};

// A new pair from the system's random numbers. Errors: internal if ZeroMQ was built without CURVE.
Result<KeyPair> make_key_pair();
// True for 40 characters that are the Z85 form of 32 bytes.
bool is_key(std::string_view text);
// "i-" and the first 16 hexadecimal digits of the SHA-256 of the key's 40 characters: the same wherever the key shows up.
IslandId island_of(std::string_view public_key);

// What is in a small file with a secret. Errors: not_found; unauthorized if others may read the file; corrupt if it is no file; io.
Result<std::string> read_private_text(const std::filesystem::path& path);

// Writes a new key file and makes it durable; it appears whole or not at all. Missing folders are made, readable by their owner only.
// Errors: conflict if there is a file already (it is left as it is), io.
Status write_key_file(const std::filesystem::path& path, const KeyPair& keys);
// Errors: not_found; unauthorized if others may read the file; corrupt if it holds no matching pair; io.
Result<KeyPair> read_key_file(const std::filesystem::path& path);
// Reads the pair, or makes it on first use.
Result<KeyPair> read_or_make_key_file(const std::filesystem::path& path);

}  // namespace atl
