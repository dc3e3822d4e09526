// What a seed draws: the cluster, its run, and how bad its world is until it is healed.
#pragma once

#include <cstdint>

#include "strategies/schedule.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/exchange_grid.hpp"
#include "transport/base/rng.hpp"

namespace atl::sim {

struct Scenario {
  std::uint64_t seed = 0;
  std::uint32_t islands = 3;
  std::size_t parameters = 12;  // of the model; fragments are equal parts
  RunSpec spec;
  double loss = 0;  // of a message
  double duplication = 0;
  double replay = 0;  // of a message: some earlier one on this way comes again
  Duration latency = std::chrono::milliseconds(20);
  Duration jitter = std::chrono::milliseconds(20);
  Duration trouble = std::chrono::seconds(60);        // how long faults go on
  Duration between_faults = std::chrono::seconds(4);  // on average; 0: none
  double nonfinite = 0;                               // of a contribution
  double exploding = 0;                               // of a contribution: a thousand times its size
  double broken_disk = 0;                             // of a checkpoint: cannot be written
  Duration saving{};                                  // how long a trainer writes its state beside its steps, at most; 0: it stands still
  double lost_disks = 0;                              // of a killed agent: its island's disk is lost with it
  bool coordinator_faults = true;
  bool agent_faults = true;
  bool partitions = true;
  bool clogs = false;                                  // a way carries one message after the other, slowly
  bool full_disks = false;                             // the ledger's, and those of islands
  bool skewed_clocks = false;                          // off by up to an hour, another hour after each restart, and up to 1 % fast or slow
  double flipped_bits = 0;                             // of an exchange: its result is another one on this island
  Duration step_time = std::chrono::milliseconds(40);  // of the first island's trainer, and
  Duration step_lag = std::chrono::milliseconds(30);   // how much longer each further one takes
  Duration pair_poll = std::chrono::milliseconds(50);  // how often an island looks after its pairs
  std::size_t one_level_members = kOneLevelMembers;    // beyond so many an exchange has two levels
  std::uint32_t without_images = 0;                    // the first so many islands have none to pack
  Duration at_least{};                                 // virtual time that passes, also if the run is over before
  bool wan = false;                                    // the coordinator's preset for slow networks, not that of `lan`
  Duration patience = std::chrono::minutes(30);        // after healing, until the run must be over
};

Scenario draw_scenario(std::uint64_t seed);
// The same world, with islands that meet in pairs.
Scenario draw_pair_scenario(std::uint64_t seed);
// The same world, with a strategy that no name stands for: more fragments than inner steps, an overlap of a whole period, an offset,
// parameters among all, outer steps alone.
Scenario draw_free_scenario(std::uint64_t seed);
// The same world, with rounds that close with a quorum, and islands of more unequal speed.
Scenario draw_quorum_scenario(std::uint64_t seed);
// The same world, whose quorum is of contributions of any age.
Scenario draw_buffer_scenario(std::uint64_t seed);
// The same world, or one with a quorum, with more islands, whose exchanges have two levels from four members on.
Scenario draw_two_level_scenario(std::uint64_t seed);
// A world of any of these kinds, that of two levels aside, with trainers of one's own, which go back after what was not finite, often.
Scenario draw_own_trainer_scenario(std::uint64_t seed);
// Islands that meet in pairs, more of them, of which each dials the last few that it met.
Scenario draw_many_pairs_scenario(std::uint64_t seed);
// The same world, with a run of phases.
Scenario draw_phase_scenario(std::uint64_t seed);
// The same with more islands than tasks, so that groups train experts.
Scenario draw_group_scenario(std::uint64_t seed);
// Either of the two, with a data set that is spread over islands.
Scenario draw_spread_scenario(std::uint64_t seed);
// A larger and longer one: up to sixteen islands of any strategy, ten virtual minutes and more, and what draw_scenario() has no use for:
// clogged links, full disks, clocks that are wrong, flipped bits.
Scenario draw_long_scenario(std::uint64_t seed);
// That of the run, whose fragments are [strategy].fragments equal parts; one if it has none.
Schedule schedule_of_spec(const RunSpec& spec);

}  // namespace atl::sim
