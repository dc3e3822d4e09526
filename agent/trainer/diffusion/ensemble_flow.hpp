// The flow of an ensemble, and its solution (Decentralized Diffusion Models, arXiv:2501.05450).
//
// Path (linear, "rectified flow"): x_t = (1 − t)·x_0 + t·ε, t in [0, 1], t = 1 noise; conditional velocity u_t(x_t | x_0) = ε − x_0. Over a
// finite data set the marginal velocity is linear in the data, so for a partition S_1 … S_K
//     u_t(x) = Σ_k w_k(x, t) · u_t^{(k)}(x),   w_k = p_{t,S_k}(x) / p_t(x),
// the posterior that x came from S_k: what the router learns. Samples follow dx/dt = u from t = 1 to 0.
// The arithmetic is that of the tensors' type, so that the identity is tested in double.
// Threads: as LibTorch's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/trainer/data/expert_choice.hpp"
#include "transport/base/result.hpp"

namespace atl {

// x [B, …], t [B] → [B, …].
using Flow = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& t)>;
// x [B, …], t [B] → log probabilities up to a constant, [B, K].
using Router = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& t)>;

struct EnsembleFlow {
  std::vector<Flow> experts;  // empty functions are absent; at least one is present
  Router router;              // may be empty with one expert
  ExpertChoice choice;
};

// The weights of the chosen experts, [B, K] of x's type, computed in double.
at::Tensor expert_weights(const EnsembleFlow& ensemble, const at::Tensor& x, const at::Tensor& t);
// Σ_k w_k·u_k(x, t); an expert sees only the rows that it has a weight for.
at::Tensor flow_of(const EnsembleFlow& ensemble, const at::Tensor& x, const at::Tensor& t);

enum class Solver : std::uint8_t { euler, heun };
Result<Solver> solver_named(std::string_view name);  // Errors: invalid_argument.

// Follows the flow from `noise` [B, …] at t = 1 to t = 0 in `steps` equal steps. Heun's method evaluates the flow twice a step, once in the
// last.
at::Tensor follow(const Flow& flow, const at::Tensor& noise, std::uint32_t steps, Solver solver);

}  // namespace atl
