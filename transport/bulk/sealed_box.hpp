// Boxes: bytes that only the holder of a key can open, and that cannot be changed unnoticed.
//
// AES-256-GCM (NIST SP 800-38D). Box number n of a key has the nonce u32 0 ‖ u64 n big-endian, as the Noise protocol framework has it (rev.
// 34, §12.4): each number is used once for a key, in order, and is not sent.
// Cost: about 4 GB/s on a core with AES instructions. Threads: a BoxContext belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::size_t kBoxTagBytes = 16;

using Key = std::array<std::byte, 32>;

// 32 bytes of a key's 40 characters Z85. Errors: invalid_argument.
Result<Key> key_from_z85(std::string_view text);

// Seals and opens boxes; holds OpenSSL's context between calls.
class AeadContext {
 public:
  AeadContext();
  ~AeadContext();
  AeadContext(const AeadContext&) = delete;
  AeadContext& operator=(const AeadContext&) = delete;

  // out: plain.size() + kBoxTagBytes bytes, not overlapping plain. `bound` is authenticated with it and not sealed.
  void seal(const Key& key, std::uint64_t number, ByteView bound, ByteView plain, std::span<std::byte> out);
  // out: sealed.size() − kBoxTagBytes bytes. Errors: corrupt, `out` then holds garbage.
  Status open(const Key& key, std::uint64_t number, ByteView bound, ByteView sealed, std::span<std::byte> out);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace atl
