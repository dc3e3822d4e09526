#include "transport/bulk/sealed_box.hpp"

#include <openssl/evp.h>
#include <zmq.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>

#include "transport/base/check.hpp"
#include "transport/bulk/openssl_bytes.hpp"

namespace atl {
namespace {

std::array<std::byte, 12> nonce_of(std::uint64_t number) {
  std::array<std::byte, 12> nonce{};
  for (std::size_t i = 0; i < sizeof number; ++i) {
    nonce[nonce.size() - 1 - i] = static_cast<std::byte>(number >> (8 * i));
  }
  return nonce;
}

}  // namespace

Result<Key> key_from_z85(std::string_view text) {
  Key key{};
  const std::string copy(text);
  if (copy.size() != 40 || zmq_z85_decode(reinterpret_cast<std::uint8_t*>(key.data()), copy.c_str()) == nullptr) {
    return Error{Code::invalid_argument, "\"" + copy + "\" is not a key (40 characters Z85)"};
  }
  return key;
}

struct AeadContext::Context {
  std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher{EVP_CIPHER_CTX_new(), EVP_CIPHER_CTX_free};
};

AeadContext::AeadContext() : context_(std::make_unique<Context>()) { ATOLL_CHECK(context_->cipher != nullptr, "OpenSSL has memory"); }
AeadContext::~AeadContext() = default;

void AeadContext::seal(const Key& key, std::uint64_t number, ByteView bound, ByteView plain, std::span<std::byte> out) {
  ATOLL_CHECK(out.size() == plain.size() + kBoxTagBytes && plain.size() < INT_MAX, "a box is its bytes and a tag");
  EVP_CIPHER_CTX* cipher = context_->cipher.get();
  const auto nonce = nonce_of(number);
  int length = 0;
  const bool sealed =
      EVP_EncryptInit_ex(cipher, EVP_aes_256_gcm(), nullptr, raw(key.data()), raw(nonce.data())) == 1 &&
      (bound.empty() || EVP_EncryptUpdate(cipher, nullptr, &length, raw(bound.data()), static_cast<int>(bound.size())) == 1) &&
      (plain.empty() || EVP_EncryptUpdate(cipher, raw(out.data()), &length, raw(plain.data()), static_cast<int>(plain.size())) == 1) &&
      EVP_EncryptFinal_ex(cipher, raw(out.data() + plain.size()), &length) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_GET_TAG, kBoxTagBytes, out.data() + plain.size()) == 1;
  ATOLL_CHECK(sealed, "OpenSSL has AES-256-GCM");
}

Status AeadContext::open(const Key& key, std::uint64_t number, ByteView bound, ByteView sealed, std::span<std::byte> out) {
  if (sealed.size() < kBoxTagBytes || out.size() != sealed.size() - kBoxTagBytes || sealed.size() > INT_MAX) {
    return Error{Code::corrupt, "a box of an impossible size"};
  }
  EVP_CIPHER_CTX* cipher = context_->cipher.get();
  const auto nonce = nonce_of(number);
  std::array<std::byte, kBoxTagBytes> tag{};
  std::copy_n(sealed.end() - kBoxTagBytes, kBoxTagBytes, tag.begin());
  std::array<std::byte, kBoxTagBytes> rest{};
  int length = 0;
  const bool opened =
      EVP_DecryptInit_ex(cipher, EVP_aes_256_gcm(), nullptr, raw(key.data()), raw(nonce.data())) == 1 &&
      (bound.empty() || EVP_DecryptUpdate(cipher, nullptr, &length, raw(bound.data()), static_cast<int>(bound.size())) == 1) &&
      (out.empty() || EVP_DecryptUpdate(cipher, raw(out.data()), &length, raw(sealed.data()), static_cast<int>(out.size())) == 1) &&
      EVP_CIPHER_CTX_ctrl(cipher, EVP_CTRL_GCM_SET_TAG, kBoxTagBytes, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher, raw(rest.data()), &length) == 1;
  return opened ? Status() : Status(Error{Code::corrupt, "a box that is not authentic"});
}

}  // namespace atl
