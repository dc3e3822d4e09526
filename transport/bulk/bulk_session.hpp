// A session of the bulk link: a handshake between two known Curve25519 keys, then sealed boxes.
//
//   hello    u8 2, u8 version, u8 mode (0 sealed, 1 plain), dialler's key[32], acceptor's key[32], message[48]
//   welcome  u8 3, u8 version, u8 mode, acceptor's key[32], message[48]
// The messages are the two of Noise_KK_25519_AESGCM_SHA256 (noise_kk.hpp) with the dialler as its initiator and no payload; its prologue is
// "atoll bulk link" ‖ the hello before its message. Boxes follow with the two keys of its Split, numbered from 0 in each direction
// (sealed_box.hpp). They may be larger than the 65,535 bytes that Noise has room for in its length field: they travel in ZeroMQ's frames.
// A hello that was not made by the holder of its key is refused before anything is kept. It may be a repetition: until the dialler's first
// box opens, the acceptor sends nothing but the welcome.
// In plain mode messages are random, and boxes are the bytes themselves.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/bulk/noise_kk.hpp"
#include "transport/bulk/sealed_box.hpp"

namespace atl {

inline constexpr std::uint8_t kBulkVersion = 2;

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
  std::optional<NoiseKK> noise_;  // none in plain mode, or with an impossible key
  Bytes hello_;
};

// What a hello claims, unproven: whose it says it is. Errors: corrupt; conflict for another version or mode.
Result<Key> dialler_of(const BulkIdentity& self, ByteView hello);

struct BulkAcceptance {
  Bytes welcome;
  BulkKeys keys;
};
// The accepting side, for a hello whose dialler was admitted. Errors: corrupt; unauthorized if who made it does not hold the key.
Result<BulkAcceptance> accept_bulk_hello(const BulkIdentity& self, ByteView hello);

}  // namespace atl
