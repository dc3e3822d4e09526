// A committed round's result as bytes: what the digest covers, and what a joiner is sent.
//
//   u32 magic "ATLR" · u32 version · u64 round · u32 fragment · u32 codec (CodecKind) · u32 block · u32 rounding
//   u64 values · u32 terms · then for each term: u32 weight (bits of the float32) · u64 bytes · of version 2 u64 norm (bits of the float64)
//   and the terms' encoded bytes, one after another. All little-endian. Version 1 where no term has a norm, else 2.
//
// The digest D_r covers D_{r-1} and these bytes (result_digest.hpp). The bytes follow from (round, fragment, contributors in member order,
// their encoded contributions and norms) alone, so equal digests mean equal histories. D_0 covers the manifest and the initial parameters.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "agent/storage/durable_file.hpp"
#include "strategies/outer_optimizer.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/in_parts.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::uint32_t kMaxTerms =
    2;  // a gathered exchange has at most two; a reduced one is one term; a round that is skipped has none

// A result in memory; the terms view bytes that somebody else keeps.
struct RoundResult {
  Round round;
  std::uint32_t fragment = 0;
  std::uint64_t values = 0;
  CodecSettings codec;
  std::vector<EncodedTerm> terms;
  // buffers: of the fragment, kept by the caller.
  [[nodiscard]] ReducedResult reduced(Aggregator aggregator, std::span<const BufferRange> buffers) const {
    return {codec, terms, aggregator, buffers};
  }
};

// The bytes before those of the terms.
Bytes header_of(const RoundResult& result);
// D_r from D_{r-1}. Cost: hashes the encoded result once.
Digest digest_after(const Digest& previous, const RoundResult& result, const InParts& in_parts = one_after_another);
// D_0.
Digest initial_digest(std::string_view manifest, std::span<const float> parameters);

// A result read from a file, which stays mapped as long as this value.
class StoredResult {
 public:
  // Verifies every length. Errors: io, corrupt.
  static Result<StoredResult> open(const DiskPath& path);
  [[nodiscard]] const RoundResult& result() const { return result_; }

 private:
  RoundResult result_;
  std::shared_ptr<const void> mapping_;
};

// Reads a result; the terms view `bytes`. Errors: corrupt.
Result<RoundResult> parse_result(ByteView bytes);
// Writes one, durably. Errors: io.
Status write_result(const DiskPath& path, const RoundResult& result);
// The same for readers of this process only: what lies there after a crash means nothing.
Status write_result_for_now(const DiskPath& path, const RoundResult& result);

}  // namespace atl
