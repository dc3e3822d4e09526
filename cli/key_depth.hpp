// Dotted TOML keys that name too many tables, found before toml++ sees them: it makes a table for every part and destroys them one
// inside the other, which half a megabyte of "a.a.a.…" turns into a stack overflow.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace atl {

inline constexpr std::size_t kMostKeyParts = 8;  // no file of ours needs more than two

struct DeepKey {
  std::uint32_t line = 1;  // of the dot before the part that is one too many, both from 1; columns are bytes
  std::uint32_t column = 1;
};

// The first key of more than kMostKeyParts parts. The text need not be TOML: one that is not is for the parser to refuse.
[[nodiscard]] std::optional<DeepKey> find_deep_key(std::string_view toml);

}  // namespace atl
