// The digest of a committed round, taken while its result comes in.
//
//   D_r = SHA-256(D_{r-1} ‖ header ‖ SHA-256 of each MiB of each term, in order; a term's last may be shorter)
//
// The header (round_result.hpp) has the terms' sizes. So that what has come can be hashed in any order, beside the exchange, and the rest
// by several threads once it has ended. Cost: hashes each byte once.
// Threads: one; with `in_parts` the terms are read by whoever that lets work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/in_parts.hpp"

namespace atl {

inline constexpr std::uint64_t kDigestLeaf = 1ULL << 20;

class ResultDigest {
 public:
  // Of terms of so many bytes each.
  explicit ResultDigest(std::span<const std::uint64_t> sizes);

  // Bytes of this term are there and will not change. Each byte at most once.
  void ready(std::size_t term, std::uint64_t offset, std::uint64_t length);
  // Hashes one MiB that is there. False: none is.
  bool hash_one(std::span<const ByteView> terms);
  // Once all bytes are there, whether `ready` was told or not; hashes what is left.
  Digest after(const Digest& previous, ByteView header, std::span<const ByteView> terms, const InParts& in_parts);
  // Of a range of a term, once `after` was called: whatever else the term holds. Cost: hashes at most two MiB.
  [[nodiscard]] Digest of_range(std::size_t term, std::uint64_t offset, std::uint64_t length, std::span<const ByteView> terms) const;

 private:
  struct Leaf {
    std::size_t term = 0;
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    std::uint64_t missing = 0;  // bytes that are not there
    bool hashed = false;
    Digest digest;
  };
  static void hash(Leaf& leaf, std::span<const ByteView> terms);

  std::vector<Leaf> leaves_;
  std::vector<std::size_t> first_;   // of each term
  std::deque<std::size_t> waiting_;  // leaves that are there, not hashed
};

}  // namespace atl
