// Where a command takes a join token from.
//
// A token on the command line is seen by everybody on the machine (`ps`), so it can come from a file, standard input or the environment.
// Threads: one; takes the variable out of the environment.
#pragma once

#include <string>

#include "cli/line/command.hpp"
#include "transport/base/result.hpp"

namespace atl {

inline constexpr const char* kJoinTokenVariable = "ATOLL_JOIN_TOKEN";

// The token given as an argument; else the first line of `file` ("-": of standard input); else that of $ATOLL_JOIN_TOKEN, which processes
// that are started later do not see; else "". Errors: invalid_argument for both an argument and a file, and for a file without a token;
// not_found, io.
Result<std::string> join_token_text(const Invocation& invocation, const std::string& argument, const std::string& file);

}  // namespace atl
