// Names: what a run, an island, a task or a data set may be called, whoever says so.
//
// Names come from other machines and end up in paths, logs and terminals. So there is one rule, and it is about what a name may hold, not
// about what it may not: ASCII letters, digits, '-', '_' and '.', from a letter or digit on, at most 64 of them, and no two dots in a row.
// Such a name is one component of a path, leads to no other folder, cannot repaint a terminal and looks like what it is. Threads: pure
// functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::size_t kMaxNameLength = 64;
// The rule, for a person: "1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit and without '..'".
inline constexpr std::string_view kNameRule = "1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit and without '..'";

bool is_name(std::string_view text);
// The name of a task of a run of phases: a name, or a name, a slash and a number ("experts/2").
bool is_task_name(std::string_view text);
// What a key looks like: 40 characters of Z85. Whether it is one says is_key of transport/identity.
bool is_key_form(std::string_view text);

// What is no name, for a log: in quotes, of printable ASCII only, cut at 40 characters.
std::string shown_name(std::string_view text);

}  // namespace atl
