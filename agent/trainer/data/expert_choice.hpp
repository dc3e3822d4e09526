// Which experts of an ensemble are run, and with what weight, given the router's probabilities (Decentralized Diffusion Models,
// arXiv:2501.05450, inference): the flow of the ensemble is Σ_k w_k · u_k with w from here.
//
//   full         every expert, with its probability
//   top-K        the K likeliest; top-1 runs one expert a step
//   threshold:P  those with a probability of at least P; the likeliest if there is none
//   nucleus:P    the fewest likeliest whose probabilities add up to at least P
// Experts that are absent have no weight, whatever the router says; the weights of those that are left are scaled so that they add up to 1.
// Of equal probabilities the lower expert counts as likelier.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

struct ExpertChoice {
  enum class Kind : std::uint8_t { full, top, threshold, nucleus };
  Kind kind = Kind::top;
  std::uint32_t k = 1;     // of top
  double probability = 0;  // of threshold and nucleus
};

// Reads "full", "top-1", "threshold:0.1", "nucleus:0.9". Errors: invalid_argument naming what there is.
Result<ExpertChoice> expert_choice_named(std::string_view text);
// Errors: invalid_argument for top-K of fewer than K experts.
Status check_choice(const ExpertChoice& choice, std::size_t experts);

// Turns probabilities (not negative, finite) into weights, in place. `present`: an entry for each expert, at least one of them true.
// If all the mass is on absent experts, those present count as equally likely.
void choose_experts(const ExpertChoice& choice, const std::vector<bool>& present, std::span<double> probabilities);

}  // namespace atl
