// How deep a text nests, before a parser or its values recurse as deep: a megabyte of '[' must not become a megabyte of stack frames.
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace atl {

// Whether brackets outside strings are nested deeper than that. The text need not be JSON: one that is not is for the parser to refuse.
[[nodiscard]] bool json_nests_deeper(std::string_view json, std::size_t levels);

}  // namespace atl
