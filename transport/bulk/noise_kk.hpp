// Noise_KK_25519_AESGCM_SHA256: a handshake between two islands that know each other's key.
//
// The Noise protocol framework, revision 34 (noiseprotocol.org), pattern KK (§7.5), with X25519 (RFC 7748), AES-256-GCM and SHA-256;
// analysed with ProVerif by Noise Explorer (Kobeissi, Nicolas, Bhargavan, 2019) and with Tamarin by Girol and others (2020).
//
//   -> s        known before: both static keys
//   <- s
//   -> e, es, ss
//   <- e, ee, se
//
// After the second message each side knows that the other holds its static key; who reads along and later takes both static keys cannot
// open what came after it. The first message alone is authentic, but may be a repetition of an earlier one.
// The messages' payloads are sealed. Cost: three X25519 for a message, about 0.1 ms. Threads: a plain value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/bulk/sealed_box.hpp"

namespace atl {

struct NoiseKeys {
  Key public_key{};
  Key secret_key{};
};

// A new pair from the system's random numbers.
NoiseKeys make_noise_keys();

class NoiseKK {
 public:
  enum class Role : std::uint8_t { initiator, responder };
  static constexpr std::size_t kOverheadBytes = 32 + kBoxTagBytes;  // of a message: the ephemeral key and the payload's tag

  // prologue: what both sides have seen before, in the clear, and must agree on (§6).
  NoiseKK(Role role, ByteView prologue, const NoiseKeys& self, const Key& peer);

  // This side's message: the initiator's first, then the responder's. `ephemeral` must be fresh, but in tests.
  // Errors: corrupt for a peer's key that gives no secret (a point of low order).
  Result<Bytes> write(ByteView payload, const NoiseKeys& ephemeral);
  // The payload of the other side's message. Errors: corrupt: too short, or not made by the holder of the peer's key with this prologue;
  // the handshake is over then.
  Result<Bytes> read(ByteView message);

  struct Split {
    Key from_initiator{};
    Key from_responder{};
  };
  // The two directions' keys, after both messages (§5.2, Split).
  [[nodiscard]] Split split() const;
  // h: unique to this session, after both messages (§11.2).
  [[nodiscard]] const Digest& handshake_hash() const { return hash_; }

 private:
  void mix_hash(ByteView data);
  Status mix_secret(const Key& secret, const Key& other);
  Status mix_message_secrets(bool sent);
  [[nodiscard]] bool initiates() const { return role_ == Role::initiator; }

  Role role_;
  NoiseKeys self_;
  NoiseKeys ephemeral_;
  Key peer_;
  Key peer_ephemeral_{};
  Digest hash_;        // h
  Key chaining_{};     // ck
  Key key_{};          // k; its nonce is 0 always, for each message mixes a key before it seals once
  bool first_ = true;  // the next message is the initiator's
};

}  // namespace atl
