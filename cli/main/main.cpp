// The executable `atoll`: arguments, streams and environment of the process.
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "cli/command_line.hpp"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  winsize size{};
  const bool out_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const bool sized = out_is_terminal && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20;
  const atl::Streams streams{std::cin,
                             std::cout,
                             std::cerr,
                             ::isatty(STDIN_FILENO) == 1,
                             out_is_terminal,
                             ::isatty(STDERR_FILENO) == 1,
                             sized             ? size.ws_col
                             : out_is_terminal ? std::size_t{80}
                                               : atl::kNoEdge};
  return atl::run_command_line(arguments, streams, [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}
