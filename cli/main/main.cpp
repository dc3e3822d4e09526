// The executable `atoll`: arguments, streams and environment of the process.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <vector>

#include "cli/line/command_line.hpp"

namespace {

std::optional<atl::WindowSize> window() {
  winsize size{};
  const bool sized = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 && size.ws_row >= 2;
  return sized ? std::optional(atl::WindowSize{size.ws_col, size.ws_row}) : std::nullopt;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool out_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::optional<atl::WindowSize> size = out_is_terminal ? window() : std::nullopt;
  const atl::Streams streams{std::cin,
                             std::cout,
                             std::cerr,
                             ::isatty(STDIN_FILENO) == 1,
                             out_is_terminal,
                             ::isatty(STDERR_FILENO) == 1,
                             size              ? size->columns
                             : out_is_terminal ? std::size_t{80}
                                               : atl::kNoEdge,
                             out_is_terminal ? window : std::function<std::optional<atl::WindowSize>()>()};
  return atl::run_command_line(arguments, streams, [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}
