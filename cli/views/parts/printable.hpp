// Printable: text from a file, a peer or a person, made safe for a terminal.
// Threads: pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atl {

// Control characters (an escape sequence, a line end) and bytes that are not UTF-8 become \xNN; what is longer than
// `limit` bytes is cut at a character and ends with "…".
std::string printable(std::string_view text, std::size_t limit = 200);
// The same in double quotes, for a word somebody wrote; at most 60 bytes.
std::string in_quotes(std::string_view text);
// Characters as a terminal counts them: UTF-8 code points.
std::size_t columns_of(std::string_view text);
// The first `columns` characters.
std::string_view first_columns(std::string_view text, std::size_t columns);

}  // namespace atl
