#include "agent/trainer/diffusion/ensemble_flow.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <string>

namespace atl {
namespace {

// w [B] as [B, 1, 1, …] beside x.
at::Tensor beside(const at::Tensor& w, const at::Tensor& x) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = w.size(0);
  return w.reshape(shape);
}

}  // namespace

at::Tensor expert_weights(const EnsembleFlow& ensemble, const at::Tensor& x, const at::Tensor& t) {
  const std::int64_t batch = x.size(0);
  const auto experts = static_cast<std::int64_t>(ensemble.experts.size());
  std::vector<bool> present;
  for (const Flow& expert : ensemble.experts) {
    present.push_back(static_cast<bool>(expert));
  }
  at::Tensor weights =
      ensemble.router ? at::softmax(ensemble.router(x, t).to(at::kDouble), 1).cpu().contiguous() : at::ones({batch, experts}, at::kDouble);
  for (std::int64_t i = 0; i < batch; ++i) {
    choose_experts(ensemble.choice, present, {weights.data_ptr<double>() + i * experts, static_cast<std::size_t>(experts)});
  }
  return weights.to(x.device(), x.scalar_type());
}

at::Tensor flow_of(const EnsembleFlow& ensemble, const at::Tensor& x, const at::Tensor& t) {
  const at::NoGradGuard no_gradient;
  const at::Tensor weights = expert_weights(ensemble, x, t);
  at::Tensor sum = at::zeros_like(x);
  for (std::size_t k = 0; k < ensemble.experts.size(); ++k) {
    const at::Tensor weight = weights.select(1, static_cast<std::int64_t>(k));
    const at::Tensor rows = at::nonzero(weight).squeeze(1);
    if (rows.numel() == 0) {
      continue;
    }
    const at::Tensor its = ensemble.experts[k](x.index_select(0, rows), t.index_select(0, rows));
    sum.index_add_(0, rows, its * beside(weight.index_select(0, rows), its));
  }
  return sum;
}

Result<Solver> solver_named(std::string_view name) {
  if (name == "euler") {
    return Solver::euler;
  }
  if (name == "heun") {
    return Solver::heun;
  }
  return Error{Code::invalid_argument, "'" + std::string(name) + "' is no solver; there are euler and heun"};
}

at::Tensor follow(const Flow& flow, const at::Tensor& noise, std::uint32_t steps, Solver solver) {
  const at::NoGradGuard no_gradient;
  at::Tensor x = noise;
  const double step = 1.0 / steps;
  const auto at_time = [&](double t) { return at::full({x.size(0)}, t, x.options()); };
  for (std::uint32_t i = 0; i < steps; ++i) {
    const double t = 1.0 - static_cast<double>(i) * step;
    const at::Tensor first = flow(x, at_time(t));
    if (solver == Solver::euler || i + 1 == steps) {
      x = x - first * step;  // at t = 0 there is no noise left to be averaged over: Heun's second look is left out
      continue;
    }
    const at::Tensor second = flow(x - first * step, at_time(t - step));
    x = x - (first + second) * (step / 2);
  }
  return x;
}

}  // namespace atl
