// The command line, callable in process: arguments, streams and environment in, an exit code out.
// Threads: one call at a time (it installs the log sink).
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>

#include "cli/views/parts/terminal.hpp"

namespace atl {

struct WindowSize {
  std::size_t columns = 0;
  std::size_t rows = 0;
};

// stdout is data, stderr is talk.
struct Streams {
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  bool in_is_terminal = false;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  std::size_t columns = 100;  // of the terminal behind `out`; kNoEdge where there is none
  // That terminal's size now, which its user may change; empty where there is none, or its size is not known.
  std::function<std::optional<WindowSize>()> window = {};
};

// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Runs `atoll ARGUMENTS…` (without the program's name). Never throws; returns one of cli/line/exit_code.hpp.
int run_command_line(std::span<const std::string> arguments, const Streams& streams, const Environment& environment);

}  // namespace atl
