// A command called in process, with its streams caught.
#pragma once

#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/line/command_line.hpp"

namespace atl {

struct Called {
  int exit = 0;
  std::string out;
  std::string err;
};

inline Called call(const std::vector<std::string>& arguments, const std::map<std::string, std::string>& environment = {},
                   const std::string& in = {}) {
  std::istringstream input(in);
  std::ostringstream out;
  std::ostringstream err;
  const Streams streams{input, out, err, false, false, false, 100};
  const int exit = run_command_line(arguments, streams, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
  return {exit, out.str(), err.str()};
}

// The same, with standard output in a file of the system: /dev/full. What it wrote is not read back.
inline Called call_into(const std::string& file, const std::vector<std::string>& arguments,
                        const std::map<std::string, std::string>& environment = {}) {
  std::istringstream input;
  std::ofstream out(file);
  std::ostringstream err;
  const Streams streams{input, out, err, false, false, false, 100};
  const int exit = run_command_line(arguments, streams, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
  return {exit, "", err.str()};
}

}  // namespace atl
