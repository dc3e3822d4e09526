#include "transport/bulk/bulk_session.hpp"

#include <array>
#include <cstring>
#include <string>
#include <string_view>

namespace atl {
namespace {

constexpr std::uint8_t kHello = 2;
constexpr std::uint8_t kWelcome = 3;
constexpr std::size_t kHelloHeaderBytes = 3 + 2 * 32;
constexpr std::size_t kWelcomeHeaderBytes = 3 + 32;

// Not inlined: GCC 12 then warns falsely about the vector's growth (GCC bug 105329).
[[gnu::noinline]] void append(Bytes& out, ByteView bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

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

NoiseKK noise_of(NoiseKK::Role role, ByteView hello, const BulkIdentity& self, const Key& peer) {
  Bytes prologue;
  append(prologue, as_bytes(std::string_view("atoll bulk link")));
  append(prologue, hello.first(kHelloHeaderBytes));
  return NoiseKK(role, prologue, NoiseKeys{self.public_key, self.secret_key}, peer);
}

// What stands in a message's place where nothing is sealed: other bytes each time.
void append_plain_message(Bytes& out) {
  append(out, make_noise_keys().secret_key);
  append(out, std::array<std::byte, kBoxTagBytes>{});
}

}  // namespace

BulkDialler::BulkDialler(const BulkIdentity& self, const Key& peer) : self_(self), peer_(peer) {
  append_le(hello_, kHello);
  append_le(hello_, kBulkVersion);
  append_le(hello_, mode_of(self));
  append(hello_, self.public_key);
  append(hello_, peer);
  if (self.plain) {
    append_plain_message(hello_);
    return;
  }
  NoiseKK noise = noise_of(NoiseKK::Role::initiator, hello_, self, peer);
  if (const Result<Bytes> message = noise.write({}, make_noise_keys()); message) {
    append(hello_, *message);
    noise_ = noise;
  }
}

Result<BulkKeys> BulkDialler::finish(ByteView welcome) const {
  ATOLL_TRY(check_prefix(self_, welcome, kWelcome, kWelcomeHeaderBytes + NoiseKK::kOverheadBytes));
  if (key_at(welcome, 3) != peer_) {
    return Error{Code::unauthorized, "another island answers at this address"};
  }
  BulkKeys keys;
  keys.peer = peer_;
  if (self_.plain) {
    return keys;
  }
  if (!noise_) {
    return Error{Code::unauthorized, "the island's key is none"};
  }
  NoiseKK noise = *noise_;
  if (!noise.read(welcome.subspan(kWelcomeHeaderBytes))) {
    return Error{Code::unauthorized, "the island at this address does not hold the key it claims"};
  }
  keys.send = noise.split().from_initiator;
  keys.receive = noise.split().from_responder;
  return keys;
}

Result<Key> dialler_of(const BulkIdentity& self, ByteView hello) {
  ATOLL_TRY(check_prefix(self, hello, kHello, kHelloHeaderBytes + NoiseKK::kOverheadBytes));
  if (key_at(hello, 3 + 32) != self.public_key) {
    return Error{Code::unauthorized, "a peer expected another island at this address"};
  }
  return key_at(hello, 3);
}

Result<BulkAcceptance> accept_bulk_hello(const BulkIdentity& self, ByteView hello) {
  ATOLL_ASSIGN(const Key peer, dialler_of(self, hello));
  BulkAcceptance acceptance;
  acceptance.keys.peer = peer;
  Bytes& welcome = acceptance.welcome;
  append_le(welcome, kWelcome);
  append_le(welcome, kBulkVersion);
  append_le(welcome, mode_of(self));
  append(welcome, self.public_key);
  if (self.plain) {
    append_plain_message(welcome);
    return acceptance;
  }
  NoiseKK noise = noise_of(NoiseKK::Role::responder, hello, self, peer);
  if (!noise.read(hello.subspan(kHelloHeaderBytes))) {
    return Error{Code::unauthorized, "who says hello does not hold the key it claims"};
  }
  ATOLL_ASSIGN(const Bytes message, noise.write({}, make_noise_keys()));
  append(welcome, message);
  acceptance.keys.send = noise.split().from_responder;
  acceptance.keys.receive = noise.split().from_initiator;
  return acceptance;
}

}  // namespace atl
