// Heads of bulk frames: every value survives, no bytes crash the reader.
#include <string>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/bulk/piece.hpp"

namespace {

using namespace atl;

BlobId random_blob(Rng& rng) {
  BlobId blob;
  blob.run = RunId(std::string(rng.below(65), 'r'));
  blob.epoch = Epoch(rng.next_u64());
  blob.round = Round(rng.next_u64());
  blob.attempt = Attempt(rng.next_u32());
  blob.kind = static_cast<BlobKind>(1 + rng.below(8));
  blob.part = rng.next_u32();
  return blob;
}

Frame random_frame(Rng& rng) {
  switch (rng.below(3)) {
    case 0:
      return Want{random_blob(rng), rng.next_u64() >> 1, 1 + static_cast<std::uint32_t>(rng.below(kMaxPieceBytes)), rng.chance(0.5)};
    case 1: {
      const auto length = static_cast<std::uint32_t>(rng.below(kMaxPieceBytes + 1ULL));
      const std::uint64_t offset = rng.next_u64() >> 2;
      return BlobPiece{random_blob(rng), offset, offset + length + rng.below(1000), length,
                       length > 1 && rng.chance(0.5) ? 1 + static_cast<std::uint32_t>(rng.below(length - 1)) : 0};
    }
    default:
      return Gone{random_blob(rng), static_cast<Code>(rng.below(10)), std::string(rng.below(513), 'w')};
  }
}

}  // namespace

TEST_CASE("a head decodes to what was encoded, and no prefix or extension of it does") {
  Rng rng(1);
  for (int i = 0; i < 3000; ++i) {
    const Frame frame = random_frame(rng);
    Bytes head = encode_head(frame);
    REQUIRE(head.size() <= kMaxPieceHeadBytes);
    const Result<Frame> decoded = decode_head(head);
    REQUIRE(decoded);
    CHECK(*decoded == frame);
    CHECK_FALSE(decode_head(ByteView(head).first(rng.below(head.size()))));
    head.push_back(std::byte{0});
    CHECK_FALSE(decode_head(head));
  }
}

TEST_CASE("mutated and random heads are errors or valid frames, never anything else") {
  Rng rng(2);
  int accepted = 0;
  for (int i = 0; i < 100'000; ++i) {
    Bytes head = rng.chance(0.8) ? encode_head(random_frame(rng)) : Bytes(rng.below(200));
    const std::uint64_t flips = 1 + rng.below(6);
    for (std::uint64_t flip = 0; flip < flips && !head.empty(); ++flip) {
      head[rng.below(head.size())] = static_cast<std::byte>(rng.below(256));
    }
    const Result<Frame> decoded = decode_head(head);
    if (!decoded) {
      REQUIRE(decoded.error().code == Code::corrupt);
      continue;
    }
    ++accepted;
    REQUIRE(encode_head(*decoded) == head);  // one form for each value
    if (const auto* piece = std::get_if<BlobPiece>(&*decoded)) {
      REQUIRE(piece->length <= kMaxPieceBytes);
      REQUIRE(piece->offset <= piece->total);
      REQUIRE(piece->length <= piece->total - piece->offset);
    }
    if (const auto* want = std::get_if<Want>(&*decoded)) {
      REQUIRE(want->length >= 1);
      REQUIRE(want->length <= kMaxPieceBytes);
      REQUIRE(want->offset + want->length > want->offset);
    }
  }
  CHECK(accepted > 1000);
}

TEST_CASE("another version and an over-long reason are handled") {
  Bytes head = encode_head(Want{BlobId{}, 0, 1});
  head[0] = std::byte{9};
  const Result<Frame> decoded = decode_head(head);
  REQUIRE_FALSE(decoded);
  CHECK(decoded.error().why.find("version 9") != std::string::npos);
  const Result<Frame> cut = decode_head(encode_head(Gone{BlobId{}, Code::io, std::string(5000, 'x')}));
  REQUIRE(cut);
  CHECK(std::get<Gone>(*cut).why.size() == 512);
}
