#include "transport/identity/hmac.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "transport/base/check.hpp"

namespace atl {

Digest hmac_sha256(ByteView key, ByteView message) {
  Digest digest;
  unsigned int size = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
  ATOLL_CHECK(::HMAC(::EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, message.size(),
                     reinterpret_cast<unsigned char*>(digest.bytes.data()), &size) != nullptr &&
                  size == digest.bytes.size(),
              "OpenSSL has HMAC with SHA-256");
  return digest;
}

}  // namespace atl
