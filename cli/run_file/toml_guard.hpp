// What toml++ must not see, found before it does. Dotted keys that name too many tables: it makes a table for every part and destroys them
// one inside the other, which half a megabyte of "a.a.a.…" turns into a stack overflow. And letters beyond ASCII outside of quotes and
// comments, which TOML has no place for: what the parser says of them helps nobody (cli/run_file/toml.hpp has more of them). Threads: pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atl {

inline constexpr std::size_t kMostKeyParts = 8;  // no file of ours needs more than two

struct TomlFault {
  std::uint32_t line = 1;  // both from 1; columns are bytes
  std::uint32_t column = 1;
  std::string why;
};

// The first of them. The text need not be TOML: one that is not is for the parser to refuse.
[[nodiscard]] std::optional<TomlFault> find_toml_fault(std::string_view toml);

}  // namespace atl
