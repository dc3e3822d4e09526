#include "strategies/planning/utilisation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <vector>

namespace atl {
namespace {

struct Arrival {
  std::uint64_t needed_in_step;
  double at;
};

// Compute stream and link of one island, step by step.
class Island {
 public:
  explicit Island(const UtilisationQuestion& question)
      : question_(question),
        piece_(question.step_seconds / (3.0 * question.layers)),
        reduction_(question.bits_per_parameter * question.parameters / question.layers / question.link_bits_per_second),
        pending_(question.layers) {}

  void step() {
    ++step_;
    for (std::deque<Arrival>& arrivals : pending_) {
      while (!arrivals.empty() && arrivals.front().needed_in_step <= step_) {
        now_ = std::max(now_, arrivals.front().at);
        arrivals.pop_front();
      }
      compute();
    }
    for (std::uint32_t layer = question_.layers; layer-- > 0;) {
      compute();
      if (due(layer)) {
        link_free_ = std::max(link_free_, now_) + reduction_;
        pending_[layer].push_back({step_ + 1 + overlap(), link_free_ + question_.latency_seconds});
      }
      if (layer > 0) {
        compute();
      }
    }
  }

  [[nodiscard]] double now() const { return now_; }
  [[nodiscard]] double computed() const { return computed_; }

 private:
  void compute() {
    now_ += piece_;
    computed_ += piece_;
  }

  [[nodiscard]] std::uint64_t overlap() const { return question_.pattern == SyncPattern::streaming ? question_.overlap_steps : 0; }

  [[nodiscard]] bool due(std::uint32_t layer) const {
    switch (question_.pattern) {
      case SyncPattern::every_step:
        return true;
      case SyncPattern::whole_model:
        return step_ % question_.inner_steps == 0;
      case SyncPattern::streaming: {
        const std::uint64_t fragment = layer % question_.fragments;
        const std::uint64_t offset = fragment * question_.inner_steps / question_.fragments;
        return step_ > offset && (step_ - offset) % question_.inner_steps == 0;
      }
    }
    return true;
  }

  UtilisationQuestion question_;
  double piece_;
  double reduction_;
  std::vector<std::deque<Arrival>> pending_;  // per layer, in order of arrival
  std::uint64_t step_ = 0;
  double now_ = 0;
  double computed_ = 0;
  double link_free_ = 0;
};

Status check(const UtilisationQuestion& question) {
  const auto refuse = [](const char* why) { return Error{Code::invalid_argument, why}; };
  if (question.layers == 0) {
    return refuse("layers must be at least 1");
  }
  if (!(question.step_seconds > 0) || !std::isfinite(question.step_seconds)) {
    return refuse("step time must be positive");
  }
  if (!(question.parameters >= 0) || !(question.bits_per_parameter >= 0) || !(question.latency_seconds >= 0)) {
    return refuse("parameters, bits per parameter and latency must not be negative");
  }
  if (!(question.link_bits_per_second > 0)) {
    return refuse("the link's bandwidth must be positive");
  }
  if (question.inner_steps == 0) {
    return refuse("inner_steps must be at least 1");
  }
  if (question.pattern == SyncPattern::streaming) {
    if (question.fragments == 0 || question.fragments > question.layers) {
      return refuse("fragments must be between 1 and the number of layers");
    }
    if (question.overlap_steps >= question.inner_steps) {
      return refuse("overlap_steps must be less than inner_steps");
    }
  }
  return {};
}

}  // namespace

Result<double> compute_utilisation(const UtilisationQuestion& question) {
  ATOLL_TRY(check(question));
  const std::uint64_t period = question.pattern == SyncPattern::every_step ? 1 : question.inner_steps;
  // Data-parallel has no long period: average a few steps instead.
  const std::uint64_t warm_up = question.pattern == SyncPattern::every_step ? 10 : 2 * period;
  const std::uint64_t measured = question.pattern == SyncPattern::every_step ? 40 : 2 * period;
  Island island(question);
  for (std::uint64_t i = 0; i < warm_up; ++i) {
    island.step();
  }
  const double began = island.now();
  const double computed = island.computed();
  for (std::uint64_t i = 0; i < measured; ++i) {
    island.step();
  }
  const double simulated = (island.computed() - computed) / (island.now() - began);
  const double all = sustained_bound_bits_per_second(question, 1.0);
  return all > question.link_bits_per_second ? std::min(simulated, question.link_bits_per_second / all) : simulated;
}

double sustained_bound_bits_per_second(const UtilisationQuestion& question, double utilisation) {
  const double period = question.pattern == SyncPattern::every_step ? 1.0 : question.inner_steps;
  return question.bits_per_parameter * question.parameters * utilisation / (period * question.step_seconds);
}

}  // namespace atl
