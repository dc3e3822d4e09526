// Checkpoints on a disk whose power goes at any instant: what a seed draws, and what has to hold whatever it draws.
#pragma once

#include <cstdint>
#include <string>

namespace atl::sim {

struct CheckpointWorldCounts {
  std::uint64_t written = 0;  // checkpoints
  std::uint64_t refused = 0;  // by a full disk, or one without power
  std::uint64_t crashes = 0;
};

// An agent writes checkpoints and prunes them; it is killed, the disk is full for a while, or loses its power in the middle of anything.
// A checkpoint that was said to be written is there afterwards, or a newer one is, and what verifies is what was written.
// Returns what went wrong first; empty: nothing.
std::string run_checkpoint_world(std::uint64_t seed, CheckpointWorldCounts& counts);

}  // namespace atl::sim
