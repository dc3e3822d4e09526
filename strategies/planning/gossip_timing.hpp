// What gossip saves in time (NoLoCo, arXiv:2506.10911, §5.3): messages in a chain, and waiting.
//
// Averaging. A message takes t, log-normal: ln t ~ N(μ, σ²). A tree all-reduce of n = 2^k islands goes up k levels and down again,
// an island on each level waiting for the later of two messages on the way up; a pair exchanges one message each way, twice (there,
// and the mean back, as the paper counts), and waits for the later of the two:
//     σ = 0: 2·t·log2(n) against 2·t.       In general a pair takes 2·E[max(t1, t2)], E[max] = (1 + erf(σ/2))·exp(μ + σ²/2).
// Blocking. An inner step takes a log-normal time. When all islands synchronise, a round ends for everyone with the slowest
// island; when pairs do, for two islands with the later of the two. Messages take no time here: what remains is waiting alone.
// Our simulations draw every message and every inner step; the paper shows the second as figure 5B.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <vector>

namespace atl {

struct LogNormal {
  double mu = 1.0;               // mean of the logarithm
  double sigma = 0.70710678118;  // its standard deviation; the paper's σ² = 0.5
};

double mean_of(const LogNormal& times);
// E[max(t1, t2)] of two independent times, in closed form.
double mean_of_later(const LogNormal& times);

struct AveragingTimes {
  double tree = 0;  // mean until every island has the mean of all
  double pair = 0;  // mean until both have the pair's
};
// Monte Carlo over `trials` reductions; islands is a power of two, at least 2. Cost: O(trials · islands).
AveragingTimes simulate_averaging(const LogNormal& message, std::uint32_t islands, std::uint32_t trials, std::uint64_t seed);

struct BlockingQuestion {
  std::uint32_t islands = 1024;
  std::uint32_t inner_steps = 100;
  std::uint32_t rounds = 250;
  LogNormal step;
  std::uint64_t seed = 1;
};
struct BlockingTimes {
  double all = 0;    // all islands synchronise in every round: time until the last has done all rounds
  double pairs = 0;  // random pairs do, as strategies/pairing.hpp draws them
  double alone = 0;  // nobody waits: mean time of an island
};
// Cost: O(rounds · islands · inner_steps), about 80 ns each.
BlockingTimes simulate_blocking(const BlockingQuestion& question);

// One row of the table: the paper's figures 5A and 5B at one number of islands.
struct GossipTimingRow {
  std::uint32_t islands = 0;
  double constant_ratio = 0;  // tree / pair with messages that all take the same time: log2(islands)
  double tree = 0;            // with random messages, in units of the median message e^μ
  double pair = 0;
  double pair_closed_form = 0;
  double blocking = 0;        // all / pairs
  double blocking_alone = 0;  // all / alone
};
// For 2, 4, 8 … 1,024 islands with the paper's log-normal, 100 inner steps. Cost: about five seconds.
std::vector<GossipTimingRow> gossip_timing_table(std::uint32_t rounds = 250);

}  // namespace atl
