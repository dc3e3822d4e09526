// What a file is by its first bytes, whatever its name says: so that no archive, array or image is trained on as if it were text or tokens.
//
// Tokens are bytes of any kind, and a shard of them may begin like anything. So each kind is recognised by all that its format fixes
// (lengths that fit the file, fields with few values, an end), and not by two bytes of magic. Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace atl {

// A token shard of llm.c: a head of 256 int32, of which the first is this, and the third the number of tokens.
inline constexpr std::size_t kShardHeadBytes = 256 * sizeof(std::int32_t);
inline constexpr std::int32_t kShardMagic16 = 20240520;  // uint16 tokens
inline constexpr std::int32_t kShardMagic32 = 20240801;  // uint32 tokens

// "a NumPy array", "a gzip file": what the file is, if that is a kind that holds neither text nor bare tokens; empty otherwise.
std::string_view kind_of_file(std::span<const std::byte> file);

// "uint16" or "uint32" of one of llm.c's shards; empty of another file.
std::string_view shard_tokens(std::span<const std::byte> file);

// Whether it is text: several lines of printable ASCII or UTF-8 in its first 64 KiB, of more than a few different characters.
bool looks_like_text(std::span<const std::byte> file);

// Whether numbers of `width` bytes are rather of twice that: in the first 64 KiB every second one is 0 and most others are not, as in bytes
// that are uint16 tokens below 256 or UTF-16, or in uint16 that are uint32.
bool looks_wider(std::span<const std::byte> file, std::size_t width);

}  // namespace atl
