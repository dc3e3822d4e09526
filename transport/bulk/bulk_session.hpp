// The cryptography of one bulk connection: a handshake between two known Curve25519 keys, then sealed boxes.
//
//   hello    u8 2, u8 version, u8 mode (0 sealed, 1 plain), dialler's key[32], acceptor's key[32], ephemeral[32], random[32]
//   welcome  u8 3, u8 version, u8 mode, acceptor's key[32], ephemeral[32], random[32], tag[16]
//   secret = X25519 of (static, static) ‖ (ephemeral, ephemeral) ‖ (dialler's ephemeral, acceptor's static) ‖ (dialler's static,
//   acceptor's ephemeral): forging either side takes its static key, reading later takes an ephemeral one that is gone by then.
//   keys   = HKDF-SHA256(secret, salt: dialler's random ‖ acceptor's random, info: "atoll bulk link" ‖ hello ‖ welcome without tag):
//   32 bytes dialler → acceptor, 32 bytes acceptor → dialler.
//   The tag seals nothing with box 0 of acceptor → dialler: the acceptor has its static key. The dialler's first box says the same
//   of the dialler; until it opens, the acceptor sends nothing but the welcome.
// Box number n of a direction: AES-256-GCM, nonce = u32 0 ‖ u64 n little-endian; each number is used once, in order, and is not sent.
// In plain mode boxes are the bytes themselves and the tag is zero.
// Threads: plain values; an AeadContext belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::uint8_t kBulkVersion = 1;
inline constexpr std::size_t kBoxTagBytes = 16;

using Key = std::array<std::byte, 32>;

// 32 bytes of a key's 40 characters Z85. Errors: invalid_argument.
Result<Key> key_from_z85(std::string_view text);

// Seals and opens boxes; holds OpenSSL's context between calls.
class AeadContext {
 public:
  AeadContext();
  ~AeadContext();
  AeadContext(const AeadContext&) = delete;
  AeadContext& operator=(const AeadContext&) = delete;

  // out: plain.size() + kBoxTagBytes bytes, not overlapping plain.
  void seal(const Key& key, std::uint64_t number, ByteView bound, ByteView plain, std::span<std::byte> out);
  // out: sealed.size() − kBoxTagBytes bytes. Errors: corrupt, `out` then holds garbage.
  Status open(const Key& key, std::uint64_t number, ByteView bound, ByteView sealed, std::span<std::byte> out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

struct BulkIdentity {
  Key public_key{};
  Key secret_key{};
  bool plain = false;
};

// What both sides have after the handshake. `next` numbers count the boxes of each direction.
struct BulkKeys {
  Key peer{};
  Key send{};
  Key receive{};
  std::uint64_t next_send = 0;
  std::uint64_t next_receive = 0;
};

// The dialling side: makes a hello, then reads the welcome.
class BulkDialler {
 public:
  BulkDialler(const BulkIdentity& self, const Key& peer);
  [[nodiscard]] ByteView hello() const { return hello_; }
  // Errors: unauthorized or corrupt; another try needs another dialler.
  Result<BulkKeys> finish(ByteView welcome) const;

 private:
  BulkIdentity self_;
  Key peer_;
  Key ephemeral_secret_{};
  Bytes hello_;
};

// What a hello claims, unproven: whose it says it is. Errors: corrupt; conflict for another version or mode.
Result<Key> dialler_of(const BulkIdentity& self, ByteView hello);

struct BulkAcceptance {
  Bytes welcome;
  BulkKeys keys;
};
// The accepting side, for a hello whose dialler was admitted. Errors: corrupt.
Result<BulkAcceptance> accept_bulk_hello(const BulkIdentity& self, ByteView hello);

}  // namespace atl
