// A command called in process, with its streams caught.
#pragma once

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command_line.hpp"

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

}  // namespace atl
