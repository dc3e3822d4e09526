#include "transport/bulk/bulk_session.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/rand.h>
#include <zmq.h>

#include <algorithm>
#include <climits>
#include <string>

#include "transport/base/check.hpp"

namespace atl {
namespace {

constexpr std::uint8_t kHello = 2;
constexpr std::uint8_t kWelcome = 3;
constexpr std::size_t kHelloBytes = 3 + 4 * 32;
constexpr std::size_t kWelcomeBytes = 3 + 3 * 32;  // without the tag

unsigned char* raw(std::byte* bytes) { return reinterpret_cast<unsigned char*>(bytes); }
const unsigned char* raw(const std::byte* bytes) { return reinterpret_cast<const unsigned char*>(bytes); }

using PKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using PKeyContext = std::unique_ptr<EVP_PKEY_CTX, decltype(&EVP_PKEY_CTX_free)>;

// Not inlined: GCC 12 then warns falsely about the vector's growth (GCC bug 105329).
[[gnu::noinline]] void append(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

void random_bytes(std::span<std::byte> out) {
  ATOLL_CHECK(RAND_bytes(raw(out.data()), static_cast<int>(out.size())) == 1, "the system has random numbers");
}

Key public_of(const Key& secret) {
  const PKey pair(EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, nullptr, raw(secret.data()), secret.size()), EVP_PKEY_free);
  Key key{};
  std::size_t length = key.size();
  ATOLL_CHECK(pair && EVP_PKEY_get_raw_public_key(pair.get(), raw(key.data()), &length) == 1, "OpenSSL has X25519");
  return key;
}

// Errors: corrupt for a key that gives no secret (a point of low order).
Status x25519(const Key& secret, const Key& other, Bytes& out) {
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
  append(out, shared);
  return {};
}

struct BothKeys {
  Key forth{};  // dialler → acceptor
  Key back{};
};

BothKeys derive(ByteView secret, ByteView salt, ByteView transcript) {
  const std::string_view label = "atoll bulk link";
  Bytes info;
  append(info, as_bytes(label));
  append(info, transcript);
  const std::unique_ptr<EVP_KDF, decltype(&EVP_KDF_free)> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr), EVP_KDF_free);
  const std::unique_ptr<EVP_KDF_CTX, decltype(&EVP_KDF_CTX_free)> context(EVP_KDF_CTX_new(kdf.get()), EVP_KDF_CTX_free);
  std::string digest = "SHA256";
  const auto octets = [](const char* name, ByteView bytes) {
    return OSSL_PARAM_construct_octet_string(name, const_cast<std::byte*>(bytes.data()), bytes.size());  // read only
  };
  const std::array<OSSL_PARAM, 5> parameters = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
                                                octets(OSSL_KDF_PARAM_KEY, secret), octets(OSSL_KDF_PARAM_SALT, salt),
                                                octets(OSSL_KDF_PARAM_INFO, info), OSSL_PARAM_construct_end()};
  std::array<std::byte, 64> out{};
  ATOLL_CHECK(context && EVP_KDF_derive(context.get(), raw(out.data()), out.size(), parameters.data()) == 1, "OpenSSL has HKDF");
  BothKeys keys;
  std::copy_n(out.begin(), 32, keys.forth.begin());
  std::copy_n(out.begin() + 32, 32, keys.back.begin());
  return keys;
}

std::array<std::byte, 12> nonce_of(std::uint64_t number) {
  std::array<std::byte, 12> nonce{};
  std::memcpy(nonce.data() + 4, &number, sizeof number);
  return nonce;
}

Key key_at(ByteView bytes, std::size_t offset) {
  Key key{};
  std::memcpy(key.data(), bytes.data() + offset, key.size());
  return key;
}

std::uint8_t mode_of(const BulkIdentity& self) { return self.plain ? 1 : 0; }

Status check_prefix(const BulkIdentity& self, ByteView message, std::uint8_t type, std::size_t size) {
  if (message.size() != size || std::to_integer<std::uint8_t>(message[0]) != type) {
    return Error{Code::corrupt, "a bulk handshake that is none"};
  }
  const auto version = std::to_integer<unsigned>(message[1]);
  if (version != kBulkVersion) {
    return Error{Code::conflict,
                 "the peer speaks version " + std::to_string(version) + " of the bulk link, this island " + std::to_string(kBulkVersion)};
  }
  if (std::to_integer<std::uint8_t>(message[2]) != mode_of(self)) {
    return Error{Code::conflict, "one side of the bulk link is --insecure and the other is not"};
  }
  return {};
}

Bytes transcript_of(ByteView hello, ByteView welcome) {
  Bytes transcript;
  append(transcript, hello);
  append(transcript, welcome);
  return transcript;
}

Bytes salt_of(ByteView hello, ByteView welcome) {
  Bytes salt;
  append(salt, hello.subspan(3 + 3 * 32, 32));
  append(salt, welcome.subspan(3 + 2 * 32, 32));
  return salt;
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

BulkDialler::BulkDialler(const BulkIdentity& self, const Key& peer) : self_(self), peer_(peer) {
  random_bytes(ephemeral_secret_);
  append_le(hello_, kHello);
  append_le(hello_, kBulkVersion);
  append_le(hello_, mode_of(self));
  append(hello_, self.public_key);
  append(hello_, peer);
  append(hello_, public_of(ephemeral_secret_));
  Key random{};
  random_bytes(random);
  append(hello_, random);
}

Result<BulkKeys> BulkDialler::finish(ByteView welcome) const {
  ATOLL_TRY(check_prefix(self_, welcome, kWelcome, kWelcomeBytes + kBoxTagBytes));
  if (key_at(welcome, 3) != peer_) {
    return Error{Code::unauthorized, "another island answers at this address"};
  }
  BulkKeys keys;
  keys.peer = peer_;
  keys.next_receive = 1;
  if (self_.plain) {
    return keys;
  }
  const Key ephemeral = key_at(welcome, 3 + 32);
  Bytes secret;
  ATOLL_TRY(x25519(self_.secret_key, peer_, secret));
  ATOLL_TRY(x25519(ephemeral_secret_, ephemeral, secret));
  ATOLL_TRY(x25519(ephemeral_secret_, peer_, secret));
  ATOLL_TRY(x25519(self_.secret_key, ephemeral, secret));
  const ByteView unsealed = welcome.first(kWelcomeBytes);
  const BothKeys both = derive(secret, salt_of(hello_, unsealed), transcript_of(hello_, unsealed));
  keys.send = both.forth;
  keys.receive = both.back;
  AeadContext aead;
  if (!aead.open(keys.receive, 0, {}, welcome.subspan(kWelcomeBytes), {})) {
    return Error{Code::unauthorized, "the island at this address does not hold the key it claims"};
  }
  return keys;
}

Result<Key> dialler_of(const BulkIdentity& self, ByteView hello) {
  ATOLL_TRY(check_prefix(self, hello, kHello, kHelloBytes));
  if (key_at(hello, 3 + 32) != self.public_key) {
    return Error{Code::unauthorized, "a peer expected another island at this address"};
  }
  return key_at(hello, 3);
}

Result<BulkAcceptance> accept_bulk_hello(const BulkIdentity& self, ByteView hello) {
  ATOLL_ASSIGN(const Key peer, dialler_of(self, hello));
  BulkAcceptance acceptance;
  acceptance.keys.peer = peer;
  acceptance.keys.next_send = 1;
  Key ephemeral_secret{};
  Key random{};
  random_bytes(ephemeral_secret);
  random_bytes(random);
  Bytes& welcome = acceptance.welcome;
  append_le(welcome, kWelcome);
  append_le(welcome, kBulkVersion);
  append_le(welcome, mode_of(self));
  append(welcome, self.public_key);
  append(welcome, public_of(ephemeral_secret));
  append(welcome, random);
  std::array<std::byte, kBoxTagBytes> tag{};
  if (!self.plain) {
    const Key ephemeral = key_at(hello, 3 + 2 * 32);
    Bytes secret;
    ATOLL_TRY(x25519(self.secret_key, peer, secret));
    ATOLL_TRY(x25519(ephemeral_secret, ephemeral, secret));
    ATOLL_TRY(x25519(self.secret_key, ephemeral, secret));
    ATOLL_TRY(x25519(ephemeral_secret, peer, secret));
    const BothKeys both = derive(secret, salt_of(hello, welcome), transcript_of(hello, welcome));
    acceptance.keys.send = both.back;
    acceptance.keys.receive = both.forth;
    AeadContext aead;
    aead.seal(acceptance.keys.send, 0, {}, {}, tag);
  }
  append(welcome, tag);
  return acceptance;
}

}  // namespace atl
