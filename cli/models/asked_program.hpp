// A program of somebody else's that is started for one answer.
// Threads: the calling one, which waits for the program.
#pragma once

#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct ProgramAnswer {
  int status = -1;  // of its exit; -1: it was killed
  Bytes out;
  Bytes said;  // on standard error, unless that is the caller's
};

// What its standard error is.
enum class ProgramTalk { kept, shown };

// Runs `words`, the first of which is looked up in PATH, with `in` as its standard input. `environment`: NAME=VALUE. Errors: not_found
// where it cannot be started; timeout where it had not ended by then, and was killed; io.
Result<ProgramAnswer> ask_program(std::vector<std::string> words, ByteView in, std::vector<std::string> environment, ProgramTalk talk,
                                  Duration patience);

// This process's variables.
std::vector<std::string> own_environment();

}  // namespace atl
