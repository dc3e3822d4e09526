// StandingNotes: tells the log and the service manager what an island does in its run, whenever that changes.
// Threads: one.
#pragma once

#include <string>

#include "agent/core/core.hpp"

namespace atl::agent {

class StandingNotes {
 public:
  void note(const Standing& standing, const std::string& island);

 private:
  Standing told_;
};

}  // namespace atl::agent
