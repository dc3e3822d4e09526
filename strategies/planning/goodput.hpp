// Goodput under interruptions: the part of all chips' time that ends in the model, when islands synchronise in rounds and when all chips
// are one data-parallel job.
//
// The settings are those of Decoupled DiLoCo's table (arXiv:2604.21428): every chip is interrupted once a year on average. An island of n
// chips trains data-parallel inside; an interruption stops it, whole, until it has regrouped: up for an exponential time of mean 1 year /
// n, then away for a log-normal pause; what is interrupted while it regroups does not lengthen that. So one job alone reaches u / (u + p),
// u its mean time up and p the mean pause.
//   rounds    a round's synchronisation is due when the islands that were never away have done `inner_steps`; whoever is up contributes
//   what it has done
//             (pace = "adaptive"). For islands that are away the round waits until they are back, at most until straggler_factor × its
//             length has passed (0: without end). Meanwhile the others do `overlap_steps`, then they wait. Nobody's steps are lost: who was
//             left out contributes next time.
//   quorum    with a quorum of K a round closes with K contributions and nobody waits: every island trains whenever it is up, and what it
//             has done goes into the next round that it is there for.
//   no wait   where the overlap hides all waiting, islands are independent: goodput(M islands, N chips) = goodput(1, N / M), the paper's
//   rule.
// What is not modelled: bytes (strategies/planning/forecast.hpp does), islands that grow and shrink, which a year's interruptions hardly
// change. The printed figures reached us second-hand; of the pauses behind them nothing is known. kRegroupSeconds and kRestartSeconds are
// fitted to the two data-parallel rows, so those are no prediction; the rows of islands are. Threads: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace atl {

inline constexpr double kRegroupSeconds = 23;  // mean: the elastic row within 5 points
inline constexpr double kRestartSeconds = 80;  // mean: the row that is not elastic within 5 points

struct GoodputQuestion {
  std::uint32_t islands = 1;
  double chips = 0;  // of all islands together
  double interruptions_per_chip_year = 1;
  double pause_seconds = kRegroupSeconds;  // mean
  double pause_sigma = 0.5;                // of its logarithm
  double step_seconds = 2;
  std::uint32_t inner_steps = 24;
  std::uint32_t overlap_steps = 2;
  double straggler_factor = 1.05;
  std::uint32_t quorum = 0;       // 0: rounds wait as straggler_factor has it
  std::uint32_t rounds = 20'000;  // simulated
  std::uint64_t seed = 1;
};

// From 0 to 1. Cost: about 50 ns an island and round, and as much an interruption.
double simulate_goodput(const GoodputQuestion& question);

struct GoodputMethod {
  std::string_view name;
  std::uint32_t islands = 1;
  double pause_seconds = kRegroupSeconds;
};
inline constexpr std::array<GoodputMethod, 6> kGoodputMethods = {{{"data-parallel, not elastic", 1, kRestartSeconds},
                                                                  {"data-parallel, elastic", 1, kRegroupSeconds},
                                                                  {"2 islands", 2, kRegroupSeconds},
                                                                  {"4 islands", 4, kRegroupSeconds},
                                                                  {"8 islands", 8, kRegroupSeconds},
                                                                  {"16 islands", 16, kRegroupSeconds}}};
inline constexpr std::array<double, 5> kGoodputChips = {150e3, 300e3, 600e3, 1.2e6, 2.4e6};

struct GoodputCell {
  std::uint32_t method = 0;  // indices into the arrays above
  std::uint32_t chips = 0;
  double printed = 0;
  double ours = 0;
  double rule = 0;     // goodput(1, N / M)
  double waiting = 0;  // ours with straggler_factor = 0: every round waits for all
  double quorum = 0;   // ours with a quorum of one: nobody waits
};

// All 30 cells, by method and number of chips. Cost: about a second.
std::vector<GoodputCell> goodput_table();

}  // namespace atl
