// A forecast of a run: what a composition will cost on given islands and links, before anything is started.
//
// An event simulation of the whole group on virtual time, round by round in the order of the schedule. For island i with
// step time s_i, uplink u_i and downlink d_i (bits/s) and round-trip time r_i to the others and to the coordinator:
//   ready     island i is ready for a round when it has done the round's start step: its clock there, and the time to form
//             the contribution.
//   start     the coordinator hears the last Ready and tells everyone: max_i (ready_i + r_i/2), then + r_i/2.
//   exchange  the group's members exchange as strategies/diloco.hpp counts bytes: of a fragment of E encoded bytes (R reduced)
//             two members send E each; P ≥ 3 members send (P−1)/P·(E + R) each in two hops. Uplinks and downlinks are FIFO
//             across rounds in flight: the round's bytes leave island i not before those of earlier rounds have. A member
//             holds the result when its own downlink and the uplinks it reads from have passed their bytes, and one
//             round trip per hop.
//   commit    a member tells of a result once it has applied the round before (digests are chained); the coordinator hears the last
//             one and tells everyone: max_i (max(done_i, applied_i) + r_i/2), then + r_i/2, and the time of the outer step.
//   pairs     in place of the three above, where the group is pairs: partners as strategies/pairing.hpp draws them; the outer
//             parameters leave when the round before is applied, the gradient when the round is ready; both have the result when the later
//             one's bytes have passed, and two round trips (the gradient, the decision). Nobody else is waited for. The merge of all at the
//             end is not in it.
//   merge     island i goes on stepping until the round's apply step, by its own τ, and waits there if the result has not come.
//   quorum    with a quorum of K a round starts with the K-th Ready, no merge is waited for, and the schedule's steps take as long as the
//             K-th fastest island's; where contributions of any age are of the quorum, as long as all islands together take for K of them.
//             Slower islands take fewer of their own in that time. What is waited for is the end of the last rounds.
// Utilisation is steps·s_i / (time at the end). The sustained bound is the bandwidth below which no schedule can reach a
// given utilisation: the bytes of all rounds have to pass in the time that the run then lasts.
// A long run repeats itself period by period once it has got going: above kSimulatedRounds rounds two shorter runs with the same
// last, incomplete period are simulated, and what the longer one adds is repeated for the rest.
// What is not modelled: evaluation, checkpoints, islands that come and go, links that share a bottleneck, TCP's own start.
// Threads: pure functions. Cost: O(rounds · islands), of at most a few thousand rounds or three periods.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/composition.hpp"
#include "transport/base/result.hpp"

namespace atl {

// How long a step of the schedule takes that islands with steps of these lengths go by: as long as the slowest one's where all are waited
// for; with a quorum of K the K-th fastest one's; where contributions of any age are of the quorum p, of which Σ min(1, p / seconds_i) = K,
// as each island has one contribution at most in a round. seconds: not empty, each above 0. Cost: O(n log n).
double schedule_step_seconds(const Composition& composition, std::vector<double> seconds);

struct ForecastIsland {
  std::string name;
  double step_seconds = 0;
  double uplink_bits_per_second = 0;
  double downlink_bits_per_second = 0;
  double round_trip_seconds = 0;
  std::optional<std::uint64_t> overlap_steps = {};  // a τ of its own (Schedule::merged_after); without: the composition's
};

// How fast an agent's arithmetic is, per float32 value and core; measured by the benches.
struct AgentCosts {
  double form_seconds_per_value = 0;   // contribution, encoding
  double apply_seconds_per_value = 0;  // decoding, outer step, into the arena
  double round_overhead_seconds = 0;   // messages, digests, the ledger's sync
  double bytes_overhead = 1.0;         // bytes on the wire per payload byte: headers, encryption, TCP
};

struct ForecastQuestion {
  Composition composition;
  std::uint64_t total_steps = 0;
  std::vector<std::uint64_t> fragment_values;  // float32 values of each fragment
  std::vector<ForecastIsland> islands;
  AgentCosts costs;
};

struct IslandForecast {
  std::string name;
  std::uint64_t steps = 0;       // that it takes itself: fewer than the run's where rounds close without it
  std::uint64_t bytes_sent = 0;  // in the whole run
  std::uint64_t bytes_received = 0;
  double bytes_sent_per_step = 0;
  double bytes_sent_per_day = 0;
  double mean_bits_per_second = 0;  // sent, over the whole run
  // What its uplink would need so that no merge waits for bytes: of all stretches of rounds in a row that share the uplink, the most bytes
  // over the time from the first one's start to the last one's merge, by its own steps. Of one round alone that is its bytes / τ; where
  // τ > H/F it is more, and never less than all rounds' bytes over the time of their steps. Its whole uplink where τ = 0.
  double peak_bits_per_second = 0;
  double waiting_seconds = 0;
  double utilisation = 0;
  double sustained_bound_bits_per_second = 0;  // for the utilisation asked for
};

struct Forecast {
  std::uint64_t rounds = 0;
  std::uint64_t bytes_per_round = 0;     // sent by one island, the largest round
  double seconds = 0;                    // until the last island has merged the last round
  double utilisation = 0;                // of all islands' time
  std::uint64_t agent_memory_bytes = 0;  // beyond the trainer: outer state, momentum, arena, contribution and result in flight
  std::vector<IslandForecast> islands;
};

// Of runs with more rounds only the beginning is simulated.
constexpr std::uint64_t kSimulatedRounds = 4000;

// `bound_utilisation` is the share the sustained bounds are computed for.
// Errors: invalid_argument naming what is missing or impossible.
Result<Forecast> forecast(const ForecastQuestion& question, double bound_utilisation = 1.0);

}  // namespace atl
