// The digest of a round's result, taken as its bytes come.
#include "agent/engine/result_digest.hpp"

#include <algorithm>
#include <vector>

#include "agent/engine/round_result.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"

namespace of_result_digest_test {

using namespace atl;

namespace {

Bytes random_bytes(std::uint64_t seed, std::size_t count) {
  Rng rng(seed);
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng.below(256)); });
  return bytes;
}

struct Piece {
  std::size_t term = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// Both terms cut at random, in random order.
std::vector<Piece> pieces_of(std::span<const ByteView> terms, Rng& rng) {
  std::vector<Piece> pieces;
  for (std::size_t term = 0; term < terms.size(); ++term) {
    for (std::uint64_t at = 0; at < terms[term].size();) {
      const std::uint64_t length = std::min<std::uint64_t>(terms[term].size() - at, 1 + rng.below(2 * kDigestLeaf));
      pieces.push_back({term, at, length});
      at += length;
    }
  }
  for (std::size_t i = pieces.size(); i > 1; --i) {
    std::swap(pieces[i - 1], pieces[rng.below(i)]);
  }
  return pieces;
}

}  // namespace

TEST_CASE("a result's digest is the same however its bytes came, and by whomever the rest is hashed") {
  const Bytes first = random_bytes(1, 5 * kDigestLeaf + 7);
  const Bytes second = random_bytes(2, 2 * kDigestLeaf);
  const std::vector<ByteView> terms = {first, second};
  RoundResult result;
  result.round = Round(3);
  result.values = first.size();
  result.terms = {{first, 0.5F, 0.0}, {second, 0.5F, 0.0}};
  const Digest previous = sha256(as_bytes("before"));
  const Digest expected = digest_after(previous, result);
  SECTION("what its definition says") {
    Sha256 hash;
    hash.update(previous.bytes);
    hash.update(header_of(result));
    for (const ByteView term : terms) {
      for (std::size_t at = 0; at < term.size(); at += kDigestLeaf) {
        hash.update(sha256(term.subspan(at, std::min<std::size_t>(kDigestLeaf, term.size() - at))).bytes);
      }
    }
    CHECK(hash.finish() == expected);
  }
  SECTION("some of it beside the exchange") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Rng rng(seed);
      std::vector<std::uint64_t> sizes = {first.size(), second.size()};
      ResultDigest digest(sizes);
      std::size_t beside = 0;
      for (const Piece& piece : pieces_of(terms, rng)) {
        digest.ready(piece.term, piece.offset, piece.length);
        while (rng.below(2) == 0 && digest.hash_one(terms)) {
          ++beside;
        }
      }
      std::size_t left = 0;
      const auto backwards = [&](std::size_t count, const std::function<void(std::size_t)>& part) {
        left = count;
        while (count-- > 0) {
          part(count);
        }
      };
      CAPTURE(seed, beside, left);
      CHECK(digest.after(previous, header_of(result), terms, backwards) == expected);
      CHECK(beside + left == 8);  // each MiB once
      CHECK_FALSE(digest.hash_one(terms));
    }
  }
  SECTION("of a range, whatever else the terms hold") {
    const auto of = [&](std::span<const ByteView> all, std::uint64_t offset, std::uint64_t length) {
      const std::vector<std::uint64_t> sizes = {all[0].size(), all[1].size()};
      ResultDigest digest(sizes);
      (void)digest.after(previous, header_of(result), all, one_after_another);
      return digest.of_range(0, offset, length, all);
    };
    Bytes changed = first;
    changed[2 * kDigestLeaf - 1] ^= std::byte{1};
    const std::vector<ByteView> others = {changed, second};
    CHECK(of(terms, 100, kDigestLeaf) == of(others, 100, kDigestLeaf));
    CHECK(of(terms, 100, 2 * kDigestLeaf - 100) != of(others, 100, 2 * kDigestLeaf - 100));
    CHECK(of(terms, 2 * kDigestLeaf, 5) == of(others, 2 * kDigestLeaf, 5));
    CHECK(of(terms, 2 * kDigestLeaf - 1, 1) != of(others, 2 * kDigestLeaf - 1, 1));
  }
  SECTION("every bit counts") {
    Bytes changed = second;
    changed[kDigestLeaf] ^= std::byte{1};
    result.terms[1].bytes = changed;
    CHECK(digest_after(previous, result) != expected);
  }
}

}  // namespace of_result_digest_test
