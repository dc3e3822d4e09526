// The handshake against published test vectors: Noise_KK_25519_AESGCM_SHA256 of the cacophony set, which other implementations pass, too.
#include "transport/bulk/noise_kk.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.hpp"

namespace of_noise_kk_test {

namespace {

using namespace atl;

Bytes bytes_of(std::string_view hex) {
  Bytes bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16)));
  }
  return bytes;
}

Key key_of(std::string_view hex) {
  const Bytes bytes = bytes_of(hex);
  Key key{};
  REQUIRE(bytes.size() == key.size());
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

struct Said {
  std::string_view payload;
  std::string_view ciphertext;
};

NoiseKeys initiator_keys() {
  return {key_of("6bc3822a2aa7f4e6981d6538692b3cdf3e6df9eea6ed269eb41d93c22757b75a"),
          key_of("e61ef9919cde45dd5f82166404bd08e38bceb5dfdfded0a34c8df7ed542214d1")};
}
NoiseKeys responder_keys() {
  return {key_of("31e0303fd6418d2f8c0e78b91f22e8caed0fbe48656dcf4767e4834f701b8f62"),
          key_of("4a3acbfdb163dec651dfa3194dece676d437029c62a408b4c5ea9114246e4893")};
}

// The public half stands at the beginning of the message that it is sent in.
NoiseKeys ephemeral(std::string_view secret, const Said& message) { return {key_of(message.ciphertext.substr(0, 64)), key_of(secret)}; }

}  // namespace

TEST_CASE("noise: both sides come to the bytes of the published vector") {
  const std::vector<Said> messages = {
      {"4c756477696720766f6e204d69736573",
       "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c79448564738a841228e693caeec4c497a8bd562231c3e51a1f03c4fd45dfe3a67870"},
      {"4d757272617920526f746862617264",
       "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843b94504c4d83506f5dd2568b68490eba8ed6f9cf2cca194a273c56d7ae3c558"},
      {"462e20412e20486179656b", "6a5c10a201d4e3a08f79f64949e55731f774913a4d949bda3fcebf"},
      {"4361726c204d656e676572", "4e8a1bf06926fdd74e2f516e2b0c11cc1dc3387fadeb75389d4342"},
      {"4a65616e2d426170746973746520536179", "c1df7194ca8ea51d4dd99059bc9b90288112d47237d8481f1773fb26a31629a05c"},
      {"457567656e2042f6686d20766f6e2042617765726b", "3edba4feaf590ee88dd8f5fba51db4bee651cf41afd410fe476c524ac9b1db24252fc55ff8"},
  };
  const Bytes prologue = bytes_of("4a6f686e2047616c74");
  NoiseKK initiator(NoiseKK::Role::initiator, prologue, initiator_keys(), responder_keys().public_key);
  NoiseKK responder(NoiseKK::Role::responder, prologue, responder_keys(), initiator_keys().public_key);
  const Bytes first =
      initiator
          .write(bytes_of(messages[0].payload), ephemeral("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a", messages[0]))
          .value();
  CHECK(first == bytes_of(messages[0].ciphertext));
  CHECK(responder.read(first).value() == bytes_of(messages[0].payload));
  CHECK(to_hex(initiator.handshake_hash()) == "b9c397b2d82fcd66abf66a9c760c1320cd7bd47d701c14b9ccd41436f47a172a");  // as it is published
  const Bytes second =
      responder
          .write(bytes_of(messages[1].payload), ephemeral("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b", messages[1]))
          .value();
  CHECK(second == bytes_of(messages[1].ciphertext));
  CHECK(initiator.read(second).value() == bytes_of(messages[1].payload));
  CHECK(responder.handshake_hash() == initiator.handshake_hash());
  // What follows goes from the initiator and from the responder in turn.
  const NoiseKK::Split keys = initiator.split();
  CHECK(responder.split().from_initiator == keys.from_initiator);
  AeadContext aead;
  for (std::size_t i = 2; i < messages.size(); ++i) {
    const Bytes payload = bytes_of(messages[i].payload);
    Bytes sealed(payload.size() + kBoxTagBytes);
    aead.seal(i % 2 == 0 ? keys.from_initiator : keys.from_responder, i / 2 - 1, {}, payload, sealed);
    CHECK(sealed == bytes_of(messages[i].ciphertext));
  }
}

TEST_CASE("noise: another prologue, another key or a changed byte is no handshake") {
  const auto first = [](ByteView prologue) {
    return NoiseKK(NoiseKK::Role::initiator, prologue, initiator_keys(), responder_keys().public_key).write({}, make_noise_keys()).value();
  };
  const auto read = [](ByteView prologue, const NoiseKeys& self, const Key& peer, ByteView message) {
    return NoiseKK(NoiseKK::Role::responder, prologue, self, peer).read(message);
  };
  const Bytes prologue = bytes_of("01");
  const Bytes message = first(prologue);
  REQUIRE(read(prologue, responder_keys(), initiator_keys().public_key, message));
  CHECK_FALSE(read(bytes_of("02"), responder_keys(), initiator_keys().public_key, message));
  CHECK_FALSE(read(prologue, responder_keys(), make_noise_keys().public_key, message));
  CHECK_FALSE(read(prologue, make_noise_keys(), initiator_keys().public_key, message));
  CHECK_FALSE(read(prologue, responder_keys(), initiator_keys().public_key, ByteView(message).first(message.size() - 1)));
  CHECK_FALSE(read(prologue, responder_keys(), initiator_keys().public_key, {}));
  for (std::size_t at = 0; at < message.size(); ++at) {
    Bytes changed = message;
    changed[at] ^= std::byte{1};
    CHECK_FALSE(read(prologue, responder_keys(), initiator_keys().public_key, changed));
  }
}

}  // namespace of_noise_kk_test
