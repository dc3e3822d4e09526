// Sync engines by themselves: real engines over simulated links, disks and clocks, and a script in the place of the cores.
//
// Rounds are exchanged while frames are lost, repeated, late and out of order; islands die in the middle, with or without their disks'
// power, come back from what their disks kept, and catch up from the others. Checked from outside: whatever is committed is the mean of
// what its members formed, an island that loaded a checkpoint or caught up is where the others were at that round, and nothing hangs.
#pragma once

#include <cstdint>
#include <string>

namespace atl::sim {

struct EngineWorldCounts {
  std::uint64_t rounds = 0;
  std::uint64_t attempts = 0;
  std::uint64_t caught_up = 0;
  std::uint64_t loaded = 0;  // checkpoints
  std::uint64_t broken = 0;  // checkpoints and catch-ups that an engine refused or gave up
  std::uint64_t crashes = 0;
};

// What went wrong first in the world of this seed; empty: nothing.
std::string run_engine_world(std::uint64_t seed, EngineWorldCounts& counts);

}  // namespace atl::sim
