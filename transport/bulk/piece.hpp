// The frames of the bulk link: Want, Piece, Gone. Everything that moves parameters is made of these three.
//
// The link is *pull*: every byte range that another island may need belongs to a named blob. A reader says
// Want{blob, offset, length}; the owner answers Piece{blob, offset, total} followed by the bytes, keeps the want parked while
// the blob is expected but not ready, or answers Gone{blob, code, why}. So back-pressure is the reader's window of wants, data
// never arrives early, and a lost frame, a reconnect or a replay is handled by asking again: wants and pieces are idempotent.
//
// A frame is a *head* (below) and, for a Piece, a *payload* that travels beside the head and is never copied into it.
//
//   head, little-endian:
//     u8  version = 2
//     u8  type        1 want, 2 piece, 3 gone
//     u8  kind        BlobKind
//     u8  n           length of the run id, at most 64
//     u64 epoch  u64 round  u32 attempt  u32 part
//     u8[n] run
//     want:  u64 offset  u32 length  u8 packed              1 ≤ length ≤ kMaxPieceBytes; packed 0 or 1
//     piece: u64 offset  u64 total  u32 length  u32 packed  offset + length ≤ total; payload: packed = 0: `length` bytes,
//                                                           else `packed` < `length` bytes, which unpack to them (packing.hpp)
//     gone:  u8 code (value of atl::Code)  u16 m (≤ 512)  u8[m] why, UTF-8
//   and nothing after it.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::uint8_t kPieceVersion = 2;
inline constexpr std::uint32_t kMaxPieceBytes = 4U << 20;
inline constexpr std::size_t kMaxPieceHeadBytes = 640;

// Of the blob `probe`: some fifty full-size packets.
inline constexpr std::uint32_t kProbeBytes = 64U << 10;

enum class BlobKind : std::uint8_t {
  contribution = 1,  // the owner's encoded contribution to (round, attempt): part 0; its outer parameters, where they are sent too: part 1
  reduced = 2,       // the encoded sum of shard `part` of (round, attempt), owned by member number `part`
  result = 3,        // the result of committed `round`, for those who catch up; attempt 0, `part` chosen by the owner's engine
  checkpoint_file = 4,  // a file of the checkpoint of `round`: part 0 is outer.safetensors; epoch and attempt 0
  trainer_file = 5,     // file number `part` of what the trainer saved with the checkpoint of `round`; epoch and attempt 0
  // How the two of a pair come to one decision (agent/engine/pair_exchange.hpp); members only, one byte: 1 yes, 0 no.
  promise = 6,   // "I have all of yours and will do what you decide", or that this will not come
  verdict = 7,   // the decision, by the one of the two who decides; kept as long as the run is open
  standing = 8,  // the round that the owner works on, u64; epoch, round and attempt 0; replaced with every round
  content = 9,   // of a run of phases, named by the first 24 bytes of its SHA-256: epoch, round, attempt and part, little-endian
  probe = 10,    // kProbeBytes of no meaning, to see whether data pass; for every peer, of whatever run. Part 1: by who watches the path
  // Of an exchange on two levels: the encoded sum of the contributions of the owner's group to the strip of its column (transport/base/
  // exchange_grid.hpp), in (round, attempt); `part` is the owner's member number. Its `reduced` is the result of that strip.
  partial = 11,
};

// "contribution", "reduced", …: for messages and logs.
std::string_view to_string(BlobKind kind);
// It is of one attempt of a round, and stale with it.
constexpr bool belongs_to_exchange(BlobKind kind) {
  return kind == BlobKind::contribution || kind == BlobKind::partial || kind == BlobKind::reduced;
}

// The name of a byte string that an owner serves. The owner is whoever is asked.
struct BlobId {
  RunId run;
  Epoch epoch;
  Round round;
  Attempt attempt;
  BlobKind kind = BlobKind::contribution;
  std::uint32_t part = 0;
  friend auto operator<=>(const BlobId&, const BlobId&) = default;
};

// "reduced 2 of run r-7f3a9c12, epoch 3, round 17, attempt 1".
std::string describe(const BlobId& blob);

// "Send me these bytes." The owner shortens a range that passes the blob's end.
struct Want {
  BlobId blob;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  bool packed = false;  // the reader would rather have them packed
  friend auto operator<=>(const Want&, const Want&) = default;
};

// The head of a piece: a range of a blob, and in how many bytes it travels.
struct BlobPiece {
  BlobId blob;
  std::uint64_t offset = 0;
  std::uint64_t total = 0;  // size of the whole blob
  std::uint32_t length = 0;
  std::uint32_t packed = 0;  // bytes of the payload; 0: it is not packed, and has `length`
  [[nodiscard]] std::uint32_t payload_bytes() const { return packed > 0 ? packed : length; }
  friend bool operator==(const BlobPiece&, const BlobPiece&) = default;
};

// "You will not get this blob from me." `why` is for a person.
struct Gone {
  BlobId blob;
  Code code = Code::not_found;
  std::string why;
  friend bool operator==(const Gone&, const Gone&) = default;
};

using Frame = std::variant<Want, BlobPiece, Gone>;

// The head's bytes. The run id must be at most 64 bytes (a broken invariant otherwise); a longer `why` is cut.
Bytes encode_head(const Frame& frame);

// Trusts nothing: garbage, bounds exceeded, bytes left over or another version are `corrupt`. The caller compares a BlobPiece's
// `payload_bytes` with the payload it got.
Result<Frame> decode_head(ByteView head);

}  // namespace atl
