// Plain text: UTF-8 that is safe to print, to store and to put into JSON, whoever sent it.
//
// Strings come from other machines, from trainers' last words and from file names; in here is the one rule of what they may
// hold. A control character could repaint an operator's terminal, a character that sets the direction of writing could make a line read
// as another one, two texts that differ in what nobody sees look the same, and JSON takes no broken UTF-8.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atl {

enum class TextRule {
  name,  // UTF-8 without control characters, marks of direction and invisible characters
  text,  // UTF-8 without control characters but newline and tab, and without marks of direction
  json,  // UTF-8
};

// True if all of `text` is well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates) and obeys the rule.
bool is_plain(std::string_view text, TextRule rule);
// `text` made plain: what is not becomes U+FFFD, and what is longer than `max_bytes` is cut and ends in "…".
std::string make_plain(std::string_view text, TextRule rule, std::size_t max_bytes);

// A text file as an editor of another system may have saved it. A mark of UTF-8 at the beginning is taken away; of UTF-16 and UTF-32 the
// value says so, with what to do ("is UTF-16 text, …"). Empty: it may be read.
std::string settle_encoding(std::string& text);

}  // namespace atl
