// Progress of a run on stderr: one line that replaces itself on a terminal, elsewhere a line for every new state, and every ten seconds one
// while rounds go by.
// Threads: one.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/line/command_line.hpp"
#include "cli/views/parts/terminal.hpp"
#include "transport/base/time.hpp"

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
  std::string last_state_;  // that was shown
  double last_round_ = -1;
  TimePoint last_line_{};
  bool open_ = false;
};

}  // namespace atl
