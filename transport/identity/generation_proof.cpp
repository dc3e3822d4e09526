#include "transport/identity/generation_proof.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "transport/base/check.hpp"

namespace atl {
namespace {

Digest mac(ByteView key, ByteView message) {
  Digest digest;
  unsigned int size = 0;
  const auto* made = ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(message.data()),
                            message.size(), reinterpret_cast<unsigned char*>(digest.bytes.data()), &size);
  ATOLL_CHECK(made != nullptr && size == digest.bytes.size(), "HMAC-SHA-256 has 32 bytes");
  return digest;
}

Digest proof_of(const Generation& generation, ByteView key) {
  Bytes numbers;
  append_le(numbers, generation.restored);
  append_le(numbers, generation.starts);
  append_le(numbers, generation.life);
  return mac(key, numbers);
}

}  // namespace

Bytes generation_key(const std::string& secret_key) {
  const Digest key = mac(as_bytes(secret_key), as_bytes("atoll generation"));
  const ByteView bytes = std::as_bytes(std::span(key.bytes));
  return Bytes(bytes.begin(), bytes.end());
}

void prove(Generation& generation, ByteView key) { generation.proof = proof_of(generation, key); }

bool proven(const Generation& generation, ByteView key) {
  const Digest proof = proof_of(generation, key);
  return CRYPTO_memcmp(proof.bytes.data(), generation.proof.bytes.data(), proof.bytes.size()) == 0;
}

}  // namespace atl
