// What an exchange is: who takes part, with which weight, and where the exchanged vector is cut.
//
// The vector is cut into *pieces* that can be encoded, sent and decoded alone; consecutive pieces form shards, and every shard has an
// owner. On one level member j owns shard j. On two levels the owners are those of the grid (transport/base/exchange_grid.hpp), and the
// shards of one column of it, one after the other, are that column's strip. All islands must compute the same plan. Threads: plain values,
// pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/exchange_grid.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Where pieces begin: n+1 ascending numbers each, the last one the total. Encoding must be
// concatenative (strategies/codec.hpp is): the pieces' encodings one after the other are the encoding of the whole, so that a
// retained contribution serves the next attempt, whose shards are others.
struct ExchangeLayout {
  std::vector<std::uint64_t> elements;      // first element of each piece
  std::vector<std::uint64_t> contribution;  // first byte of each piece in an encoded contribution
  std::vector<std::uint64_t> reduced;       // first byte of each piece in an encoded sum
  std::vector<std::size_t> shards;          // first piece of each shard, and the number of pieces

  [[nodiscard]] std::size_t pieces() const { return elements.empty() ? 0 : elements.size() - 1; }
};

// Cuts `elements` into shards (split_shards in transport/base/shards.hpp; `granularity`: where a piece may begin, for both codecs), and
// each shard into pieces of at most `piece_elements`, rounded to granules. encoded_bytes(n): size of n elements encoded, for contributions
// and for sums. members, granularity ≥ 1: of a grid the number of its owners. shares: per member, 0 gives it an empty shard (at least one
// has another); none: everybody gets one.
ExchangeLayout cut_pieces(std::uint64_t elements, std::size_t members, std::uint64_t granularity,
                          const std::function<std::uint64_t(std::uint64_t)>& contribution_bytes,
                          const std::function<std::uint64_t(std::uint64_t)>& reduced_bytes, std::uint64_t piece_elements = 1ULL << 16,
                          std::span<const std::uint8_t> shares = {});

// Pieces of a layout: the first, and the one after the last.
struct PieceRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  [[nodiscard]] std::size_t count() const { return end - begin; }
};

struct ExchangePlan {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  std::vector<IslandId> members;       // in order, each once
  std::vector<std::uint64_t> weights;  // per member; 0: contributes nothing; where all are, the result has no parts
  IslandId self;
  ExchangeLayout layout;
  bool packed = false;                    // what is read travels packed (packing.hpp)
  std::optional<ExchangeGrid> grid = {};  // none: one level

  // What this member sums for all: its shard. Empty where it owns none.
  [[nodiscard]] PieceRange shard(std::size_t member) const;
  // What it gives others of the result: its shard, or on two levels its column's strip.
  [[nodiscard]] PieceRange given(std::size_t member) const;
};

// Errors: invalid_argument for a plan that cannot be, or an own contribution of so many bytes.
Status check_plan(const ExchangePlan& plan, std::uint64_t own_contribution_bytes);

// Payload bytes that the others read from member `self`, all of them together, unpacked.
std::uint64_t bytes_others_read(const ExchangePlan& plan, std::size_t self);

}  // namespace atl
