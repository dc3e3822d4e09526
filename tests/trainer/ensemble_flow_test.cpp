// The identity that ensembles of flows rest on, with data whose every density is analytic, and who is run for what.
#include "agent/trainer/diffusion/ensemble_flow.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

#include "agent/trainer/diffusion/flow_matching.hpp"
#include "transport/base/rng.hpp"

#undef CHECK  // LibTorch's logging has one, too
#include "tests/catch.hpp"

using namespace atl;

namespace {

// A data set whose every density is analytic: points, with x_t | x_0 normal around (1 − t)·x_0 with deviation t.
struct PointSet {
  at::Tensor points;  // [N, D] double

  // log Σ_i N(x; (1 − t)·x_i, t²) for the points chosen, up to the constant that all subsets share. [B]
  [[nodiscard]] at::Tensor log_density(const at::Tensor& x, const at::Tensor& t, const at::Tensor& chosen) const {
    return at::logsumexp(log_terms(x, t, chosen), {1});
  }
  // E[ε − x_0 | x_t] over the points chosen: with ε = (x − (1 − t)·x_0)/t.
  [[nodiscard]] at::Tensor flow(const at::Tensor& x, const at::Tensor& t, const at::Tensor& chosen) const {
    const at::Tensor posterior = at::softmax(log_terms(x, t, chosen), 1);
    const at::Tensor clean = points.index_select(0, chosen);
    const at::Tensor s = t.view({-1, 1, 1});
    const at::Tensor noise = (x.unsqueeze(1) - clean.unsqueeze(0) * (1.0 - s)) / s;
    return (posterior.unsqueeze(2) * (noise - clean.unsqueeze(0))).sum(1);
  }

 private:
  [[nodiscard]] at::Tensor log_terms(const at::Tensor& x, const at::Tensor& t, const at::Tensor& chosen) const {
    const at::Tensor s = t.view({-1, 1, 1});
    const at::Tensor away = x.unsqueeze(1) - points.index_select(0, chosen).unsqueeze(0) * (1.0 - s);
    return away.square().sum(2) / (s.squeeze(2).square() * -2.0);
  }
};

at::Tensor doubles(at::IntArrayRef shape, Rng& rng) {
  at::Tensor values = at::empty(shape, at::kDouble);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    values.data_ptr<double>()[i] = rng.normal();
  }
  return values;
}
}  // namespace

// Decentralized Diffusion Models (arXiv:2501.05450): the marginal flow is linear in the data, so the experts' flows weighted by the
// posterior of their part are the whole set's flow, for any partition.
TEST_CASE("the router-weighted sum of experts' flows is the marginal flow, to machine precision") {
  Rng rng(17);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t count = 12 + static_cast<std::int64_t>(rng.below(20));
    const auto experts = static_cast<std::int64_t>(2 + rng.below(4));
    const PointSet set{doubles({count, 3}, rng)};
    std::vector<std::vector<std::int64_t>> parts(static_cast<std::size_t>(experts));
    for (std::int64_t i = 0; i < count; ++i) {
      parts[static_cast<std::size_t>(i < experts ? i : static_cast<std::int64_t>(rng.below(static_cast<std::uint64_t>(experts))))]
          .push_back(i);
    }
    EnsembleFlow ensemble;
    std::vector<at::Tensor> chosen;
    for (const auto& part : parts) {
      chosen.push_back(at::tensor(part, at::kLong));
      ensemble.experts.emplace_back([&set, own = chosen.back()](const at::Tensor& x, const at::Tensor& t) { return set.flow(x, t, own); });
    }
    ensemble.router = [&](const at::Tensor& x, const at::Tensor& t) {
      std::vector<at::Tensor> logs;
      for (const at::Tensor& part : chosen) {
        logs.push_back(set.log_density(x, t, part));
      }
      return at::stack(logs, 1);
    };
    at::Tensor t = at::empty({50}, at::kDouble);
    for (std::int64_t i = 0; i < 50; ++i) {
      t.data_ptr<double>()[i] = 0.05 + 0.95 * rng.uniform();
    }
    const at::Tensor x = doubles({50, 3}, rng);
    const at::Tensor truth = set.flow(x, t, at::arange(count, at::kLong));
    const double scale = truth.abs().max().item<double>();
    ensemble.choice = *expert_choice_named("full");
    CHECK((flow_of(ensemble, x, t) - truth).abs().max().item<double>() < 1e-12 * scale);
    // A nucleus of everything is everything; so is the top K of K.
    ensemble.choice = *expert_choice_named("nucleus:1");
    CHECK((flow_of(ensemble, x, t) - truth).abs().max().item<double>() < 1e-12 * scale);
    ensemble.choice = *expert_choice_named("top-" + std::to_string(experts));
    CHECK((flow_of(ensemble, x, t) - truth).abs().max().item<double>() < 1e-12 * scale);

    // Top-2 and a threshold: by hand from the densities.
    for (const char* rule : {"top-2", "threshold:0.2"}) {
      ensemble.choice = *expert_choice_named(rule);
      const at::Tensor probabilities = at::softmax(ensemble.router(x, t), 1);
      const at::Tensor sorted = std::get<0>(probabilities.sort(1, true));
      const at::Tensor least =
          std::string(rule) == "top-2" ? sorted.select(1, 1) : at::minimum(sorted.select(1, 0), at::full({50}, 0.2, at::kDouble));
      at::Tensor kept = at::where(probabilities >= least.unsqueeze(1), probabilities, at::zeros_like(probabilities));
      kept = kept / kept.sum(1, true);
      at::Tensor by_hand = at::zeros_like(x);
      for (std::int64_t k = 0; k < experts; ++k) {
        by_hand += kept.select(1, k).unsqueeze(1) * ensemble.experts[static_cast<std::size_t>(k)](x, t);
      }
      CHECK((flow_of(ensemble, x, t) - by_hand).abs().max().item<double>() < 1e-12 * scale);
    }
  }
}

TEST_CASE("the analytic flow carries noise to the data") {
  Rng rng(2);
  const PointSet set{doubles({5, 2}, rng) * 3.0};
  const Flow flow = [&](const at::Tensor& x, const at::Tensor& t) { return set.flow(x, t, at::arange(5, at::kLong)); };
  const at::Tensor noise = doubles({40, 2}, rng);
  for (const Solver solver : {Solver::euler, Solver::heun}) {
    const at::Tensor made = follow(flow, noise, 400, solver);
    const at::Tensor nearest = std::get<0>((made.unsqueeze(1) - set.points.unsqueeze(0)).square().sum(2).min(1));
    CHECK(nearest.max().item<double>() < 0.02);
  }
  // Heun's error falls faster: against a fine solution, at equal evaluations.
  const at::Tensor fine = follow(flow, noise, 4000, Solver::heun);
  const double euler = (follow(flow, noise, 40, Solver::euler) - fine).norm().item<double>();
  const double heun = (follow(flow, noise, 20, Solver::heun) - fine).norm().item<double>();
  CHECK(heun < euler);
}

TEST_CASE("an expert is run only on what it was chosen for") {
  std::vector<std::int64_t> rows(3, 0);
  EnsembleFlow ensemble;
  for (std::size_t k = 0; k < 3; ++k) {
    ensemble.experts.emplace_back([&rows, k](const at::Tensor& x, const at::Tensor&) {
      rows[k] += x.size(0);
      return at::full_like(x, static_cast<double>(k));
    });
  }
  ensemble.router = [](const at::Tensor& x, const at::Tensor&) { return at::cat({x * 0.0, x, x * -1.0}, 1); };
  const at::Tensor x = at::tensor(std::vector<double>{5, 5, -5, 5}, at::kDouble).view({4, 1});
  const at::Tensor t = at::full({4}, 0.5, at::kDouble);
  ensemble.choice = *expert_choice_named("top-1");
  CHECK(at::equal(flow_of(ensemble, x, t).view({4}), at::tensor(std::vector<double>{1, 1, 2, 1}, at::kDouble)));
  CHECK(rows == std::vector<std::int64_t>{0, 3, 1});
  ensemble.experts[1] = {};  // absent: the next likeliest
  CHECK(at::equal(flow_of(ensemble, x, t).view({4}), at::tensor(std::vector<double>{0, 0, 2, 0}, at::kDouble)));
}
