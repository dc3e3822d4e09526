// Packed pieces: there and back, and what is no packed piece.
#include "transport/bulk/packing.hpp"

#include <algorithm>
#include <vector>

#include "strategies/codec.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_packing_test {

namespace {

using namespace atl;

Bytes random_bytes(std::size_t size, std::uint64_t seed) {
  Rng rng(seed);
  Bytes bytes(size);
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(rng.below(256)); });
  return bytes;
}

// Normally distributed values, encoded: what a contribution looks like to a codec, a share of it zero.
Bytes contribution(CodecKind kind, double zero_share) {
  Rng rng(7);
  std::vector<float> values(1 << 16);
  for (float& value : values) {
    value = rng.chance(zero_share) ? 0.0F : static_cast<float>(rng.normal());
  }
  const CodecSettings codec{kind};
  Bytes bytes(encoded_bytes(codec, values.size()));
  REQUIRE(encode(codec, values, bytes));
  return bytes;
}

}  // namespace

TEST_CASE("what is packed unpacks to the same bytes, and what has nothing to take out stays as it is") {
  for (const std::size_t size : {2U, 100U, 4'096U, 300'000U}) {
    Bytes bytes(size);
    bytes[size / 2] = std::byte{1};
    const std::optional<Bytes> packed = pack(bytes);
    if (packed) {
      CHECK(packed->size() < size);
      Bytes back(size, std::byte{9});
      REQUIRE(unpack(*packed, back));
      CHECK(back == bytes);
    } else {
      CHECK(size <= 100);
    }
    CHECK_FALSE(pack(random_bytes(size, size)));
  }
  CHECK_FALSE(pack(Bytes{}));
  CHECK_FALSE(pack(Bytes(1)));
}

TEST_CASE("codecs that quantise leave something to take out, the more the more values are zero") {
  const auto share = [](const Bytes& bytes) {
    const std::optional<Bytes> packed = pack(bytes);
    return packed ? static_cast<double>(packed->size()) / static_cast<double>(bytes.size()) : 1.0;
  };
  CHECK(share(contribution(CodecKind::fp4, 0)) < 0.93);
  CHECK(share(contribution(CodecKind::int8, 0)) < 0.97);
  CHECK(share(contribution(CodecKind::int8, 0.9)) < 0.35);
  CHECK(share(contribution(CodecKind::fp4, 0.97)) < 0.2);
}

TEST_CASE("what is no packed piece of the size that belongs there is corrupt, and writes nowhere else") {
  const Bytes bytes(10'000);
  const Bytes packed = pack(bytes).value();
  Bytes small(9'999);
  CHECK(unpack(packed, small).error().code == Code::corrupt);
  Bytes large(10'001);
  CHECK(unpack(packed, large).error().code == Code::corrupt);
  CHECK(unpack(random_bytes(500, 3), large).error().code == Code::corrupt);
  CHECK(unpack({}, large).error().code == Code::corrupt);
  // A few bytes that claim to be a gigabyte.
  const Bytes huge = pack(Bytes(1U << 30)).value();
  CHECK(huge.size() < 200'000);
  CHECK(unpack(huge, large).error().code == Code::corrupt);
  Rng rng(5);
  for (int i = 0; i < 2'000; ++i) {
    Bytes mutated = packed;
    mutated[rng.below(mutated.size())] ^= static_cast<std::byte>(1 + rng.below(255));
    Bytes room(10'000);
    const Status status = unpack(mutated, room);
    CHECK((status.ok() || status.error().code == Code::corrupt));
  }
}

}  // namespace of_packing_test
