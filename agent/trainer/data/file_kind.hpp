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

// Whether it is text: printable ASCII or UTF-8 in its first 64 KiB, several lines or a long one with blanks, of more than a few different
// characters.
bool looks_like_text(std::span<const std::byte> file);

// How many bytes its numbers rather have, where that is more than `width` (a power of two), else 0. In the first 64 KiB the upper half of
// such a number is 0 nearly always and the lower one is not: bytes that are uint16 tokens below 256 or UTF-16, uint16 that are uint32 or
// int64.
std::size_t wider_numbers(std::span<const std::byte> file, std::size_t width);

// Whether bytes are rather UTF-16, or numbers below 256, with the upper byte first.
bool looks_big_endian(std::span<const std::byte> file);

}  // namespace atl
