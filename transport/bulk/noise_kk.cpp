#include "transport/bulk/noise_kk.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "transport/base/check.hpp"
#include "transport/bulk/openssl_bytes.hpp"
#include "transport/identity/sha256.hpp"

namespace atl {
namespace {

constexpr std::string_view kName = "Noise_KK_25519_AESGCM_SHA256";
static_assert(kName.size() <= 32);  // then h begins as the name, padded with zeros (§5.2)

using PKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using PKeyContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;

Key public_of(const Key& secret) {
  const PKey pair(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, raw(secret.data()), secret.size()), EVP_PKEY_free);
  Key key{};
  std::size_t length = key.size();
  ATOLL_CHECK(pair && EVP_PKEY_get_raw_public_key(pair.get(), raw(key.data()), &length) == 1, "OpenSSL has X25519");
  return key;
}

// Errors: corrupt for a key that gives no secret (a point of low order).
Result<Key> x25519(const Key& secret, const Key& other) {
  const PKey own(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, raw(secret.data()), secret.size()), EVP_PKEY_free);
  const PKey peer(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, raw(other.data()), other.size()), EVP_PKEY_free);
  ATOLL_CHECK(own && peer, "OpenSSL has X25519");
  const PKeyContext context(EVP_PKEY_CTX_new(own.get(), nullptr), EVP_PKEY_CTX_free);
  Key shared{};
  std::size_t length = shared.size();
  if (!context || EVP_PKEY_derive_init(context.get()) != 1 || EVP_PKEY_derive_set_peer(context.get(), peer.get()) != 1 ||
      EVP_PKEY_derive(context.get(), raw(shared.data()), &length) != 1) {
    return Error{Code::corrupt, "a bulk handshake with an impossible key"};
  }
  return shared;
}

struct TwoKeys {
  Key first{};
  Key second{};
};

// HKDF(chaining key, input) with two outputs (§4.3): RFC 5869 with the chaining key as salt and no info.
TwoKeys hkdf(const Key& chaining, ByteView input) {
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kdf.get()), EVP_KDF_CTX_free);
  const std::byte nothing{};  // OpenSSL takes a key of no bytes, but no null pointer
  std::string digest = "SHA256";
  const auto octets = [&](const char* name, ByteView bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.empty() ? &nothing : bytes.data()), bytes.size());
  };
  const std::array<OSSL_PARAM, 4> parameters = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                                                octets(OSSL_KDF_PARAM_KEY, input), octets(OSSL_KDF_PARAM_SALT, chaining),
                                                OSSL_PARAM_construct_end()};
  std::array<std::byte, 64> out{};
  ATOLL_CHECK(context && EVP_KDF_derive(context.get(), raw(out.data()), out.size(), parameters.data()) == 1, "OpenSSL has HKDF");
  TwoKeys keys;
  std::copy_n(out.begin(), 32, keys.first.begin());
  std::copy_n(out.begin() + 32, 32, keys.second.begin());
  return keys;
}

}  // namespace

NoiseKeys make_noise_keys() {
  NoiseKeys keys;
  ATOLL_CHECK(RAND_bytes(raw(keys.secret_key.data()), static_cast<int>(keys.secret_key.size())) == 1, "the system has random numbers");
  keys.public_key = public_of(keys.secret_key);
  return keys;
}

NoiseKK::NoiseKK(Role role, ByteView prologue, const NoiseKeys& self, const Key& peer) : role_(role), self_(self), peer_(peer) {
  std::ranges::copy(as_bytes(kName), chaining_.begin());
  std::ranges::copy(chaining_, hash_.bytes.begin());
  mix_hash(prologue);
  mix_hash(initiates() ? self_.public_key : peer_);
  mix_hash(initiates() ? peer_ : self_.public_key);
}

void NoiseKK::mix_hash(ByteView data) {
  Sha256 hash;
  hash.update(hash_.bytes);
  hash.update(data);
  hash_ = hash.finish();
}

Status NoiseKK::mix_secret(const Key& secret, const Key& other) {
  ATOLL_ASSIGN(const Key shared, x25519(secret, other));
  const TwoKeys keys = hkdf(chaining_, shared);
  chaining_ = keys.first;
  key_ = keys.second;
  return {};
}

// es, ss of the initiator's message; ee, se of the responder's.
Status NoiseKK::mix_message_secrets(bool sent) {
  if (first_) {
    ATOLL_TRY(sent ? mix_secret(ephemeral_.secret_key, peer_) : mix_secret(self_.secret_key, peer_ephemeral_));
    return mix_secret(self_.secret_key, peer_);
  }
  ATOLL_TRY(mix_secret(ephemeral_.secret_key, peer_ephemeral_));
  return initiates() ? mix_secret(self_.secret_key, peer_ephemeral_) : mix_secret(ephemeral_.secret_key, peer_);
}

Result<Bytes> NoiseKK::write(ByteView payload, const NoiseKeys& ephemeral) {
  ATOLL_CHECK(first_ == initiates(), "each side writes in its turn");
  ephemeral_ = ephemeral;
  mix_hash(ephemeral_.public_key);
  ATOLL_TRY(mix_message_secrets(true));
  Bytes message(payload.size() + kOverheadBytes);
  std::ranges::copy(ephemeral_.public_key, message.begin());
  const std::span<std::byte> sealed = std::span(message).subspan(ephemeral_.public_key.size());
  AeadContext().seal(key_, 0, hash_.bytes, payload, sealed);
  mix_hash(sealed);
  first_ = false;
  return message;
}

Result<Bytes> NoiseKK::read(ByteView message) {
  ATOLL_CHECK(first_ != initiates(), "each side reads in its turn");
  if (message.size() < kOverheadBytes) {
    return Error{Code::corrupt, "a bulk handshake that is too short"};
  }
  std::copy_n(message.begin(), peer_ephemeral_.size(), peer_ephemeral_.begin());
  mix_hash(peer_ephemeral_);
  ATOLL_TRY(mix_message_secrets(false));
  const ByteView sealed = message.subspan(peer_ephemeral_.size());
  Bytes payload(message.size() - kOverheadBytes);
  ATOLL_TRY(AeadContext().open(key_, 0, hash_.bytes, sealed, payload));
  mix_hash(sealed);
  first_ = false;
  return payload;
}

NoiseKK::Split NoiseKK::split() const {
  const TwoKeys keys = hkdf(chaining_, {});
  return {keys.first, keys.second};
}

}  // namespace atl
