// Whether what an agent keeps is sound: every checkpoint and every record in its state directory is read and verified.
//
// Checked are the key, the coordinator's place, every file of every checkpoint of every run against the digest that it was written with,
// the content of runs of phases and the downloads against the digests that are their names. What an interrupted write left is no fault: the
// next start removes it.
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "transport/base/result.hpp"

namespace atl::agent {

struct AgentCheck {
  std::uint64_t runs = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t files = 0;  // of content, and downloads
  std::uint64_t bytes = 0;  // read
  std::vector<Error> faults;
};

// Of a state directory whose agent does not run. Changes nothing. Errors: not_found (no agent's state there), conflict (its agent runs),
// io.
Result<AgentCheck> check_state(const std::filesystem::path& state);

}  // namespace atl::agent
