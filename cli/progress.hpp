// Progress of a run on stderr: one line that replaces itself on a terminal, a line for every new round or state elsewhere.
// Threads: one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/command_line.hpp"
#include "cli/views/terminal.hpp"

namespace atl {

class Progress {
 public:
  Progress(const Streams& streams, const Terminal& terminal) : streams_(streams), terminal_(terminal) {}
  // Takes a status document.
  void show(const nlohmann::json& document);
  // Ends the line.
  void finish();

 private:
  const Streams& streams_;
  Terminal terminal_;
  std::string last_;  // state and round that were shown
  bool open_ = false;
};

}  // namespace atl
