// The bulk link's handshake and boxes against somebody in the middle.
#include "transport/bulk/bulk_session.hpp"

#include <algorithm>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/identity.hpp"

namespace of_bulk_session_test {

namespace {

using namespace atl;

BulkIdentity identity() {
  const KeyPair keys = make_key_pair().value();
  return BulkIdentity{key_from_z85(keys.public_key).value(), key_from_z85(keys.secret_key).value(), false};
}

struct Handshake {
  BulkIdentity a = identity();
  BulkIdentity b = identity();
  BulkDialler dialler{a, b.public_key};
};

}  // namespace

TEST_CASE("both sides of a handshake get the same keys, other ones each time") {
  Handshake shake;
  BulkAcceptance accepted = accept_bulk_hello(shake.b, shake.dialler.hello()).value();
  const BulkKeys dialled = shake.dialler.finish(accepted.welcome).value();
  CHECK(dialled.send == accepted.keys.receive);
  CHECK(dialled.receive == accepted.keys.send);
  CHECK(dialled.send != dialled.receive);
  CHECK(accepted.keys.peer == shake.a.public_key);
  CHECK(dialled.next_receive == accepted.keys.next_send);
  CHECK(dialled.next_send == accepted.keys.next_receive);
  // The same hello replayed: another session.
  const BulkAcceptance again = accept_bulk_hello(shake.b, shake.dialler.hello()).value();
  CHECK(again.keys.receive != accepted.keys.receive);
}

TEST_CASE("any changed byte of hello or welcome ends in no session") {
  Rng rng(1);
  for (std::size_t at = 0; at < 115; ++at) {
    Handshake shake;
    Bytes hello(shake.dialler.hello().begin(), shake.dialler.hello().end());
    REQUIRE(hello.size() == 115);
    hello[at] ^= static_cast<std::byte>(1 + rng.below(255));
    CHECK_FALSE(accept_bulk_hello(shake.b, hello));  // nothing is kept, nothing is answered
  }
  for (std::size_t at = 0; at < 83; ++at) {
    Handshake shake;
    BulkAcceptance accepted = accept_bulk_hello(shake.b, shake.dialler.hello()).value();
    REQUIRE(accepted.welcome.size() == 83);
    accepted.welcome[at] ^= static_cast<std::byte>(1 + rng.below(255));
    CHECK_FALSE(shake.dialler.finish(accepted.welcome));
  }
}

TEST_CASE("who has not the secret key can neither answer nor speak") {
  Handshake shake;
  BulkIdentity thief = identity();
  thief.public_key = shake.b.public_key;  // claims to be b
  CHECK(accept_bulk_hello(thief, shake.dialler.hello()).error().code == Code::unauthorized);
  // It answers all the same, with a welcome that it can make: to a hello for the key that it holds.
  BulkIdentity own = identity();
  Bytes forged = accept_bulk_hello(own, BulkDialler(shake.a, own.public_key).hello()).value().welcome;
  std::copy(thief.public_key.begin(), thief.public_key.end(), forged.begin() + 3);
  const Result<BulkKeys> refused = shake.dialler.finish(forged);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::unauthorized);

  BulkIdentity impostor = identity();
  impostor.public_key = shake.a.public_key;  // claims to be a
  const BulkDialler dialler(impostor, shake.b.public_key);
  CHECK(accept_bulk_hello(shake.b, dialler.hello()).error().code == Code::unauthorized);
}

TEST_CASE("a point of low order is refused") {
  Handshake shake;
  Bytes hello(shake.dialler.hello().begin(), shake.dialler.hello().end());
  std::fill(hello.begin() + 3 + 64, hello.begin() + 3 + 96, std::byte{0});
  CHECK_FALSE(accept_bulk_hello(shake.b, hello));
}

TEST_CASE("modes and versions are compared, and both are named") {
  Handshake shake;
  BulkIdentity plain = shake.b;
  plain.plain = true;
  CHECK(accept_bulk_hello(plain, shake.dialler.hello()).error().code == Code::conflict);
  Bytes hello(shake.dialler.hello().begin(), shake.dialler.hello().end());
  hello[1] = std::byte{7};
  const Error error = accept_bulk_hello(shake.b, hello).error();
  CHECK(error.why.find("version 7") != std::string::npos);
  CHECK(error.why.find("2") != std::string::npos);
  CHECK_FALSE(dialler_of(shake.b, {}));
}

TEST_CASE("a box opens once, in its place, bound to what it was bound to") {
  AeadContext aead;
  Key key{};
  key[0] = std::byte{1};
  const Bytes plain(1000, std::byte{42});
  const Bytes bound(16, std::byte{3});
  Bytes sealed(plain.size() + kBoxTagBytes);
  aead.seal(key, 5, bound, plain, sealed);
  Bytes out(plain.size());
  REQUIRE(aead.open(key, 5, bound, sealed, out));
  CHECK(out == plain);
  CHECK_FALSE(aead.open(key, 6, bound, sealed, out));
  CHECK_FALSE(aead.open(key, 5, {}, sealed, out));
  Key other = key;
  other[31] = std::byte{1};
  CHECK_FALSE(aead.open(other, 5, bound, sealed, out));
  for (const std::size_t at : {std::size_t{0}, std::size_t{999}, std::size_t{1000}, std::size_t{1015}}) {
    Bytes flipped = sealed;
    flipped[at] ^= std::byte{1};
    CHECK_FALSE(aead.open(key, 5, bound, flipped, out));
  }
  CHECK_FALSE(aead.open(key, 5, bound, ByteView(sealed).first(10), std::span(out).first(0)));
}

}  // namespace of_bulk_session_test
