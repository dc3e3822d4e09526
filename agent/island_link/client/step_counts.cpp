#include "agent/island_link/client/step_counts.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace atl::island_link {

void StepCounts::begin(std::size_t fragments) {
  tallies_.clear();
  for (std::size_t i = 0; i < fragments; ++i) {
    tallies_.push_back(std::make_shared<Tally>());
  }
}

void StepCounts::add_steps(std::uint64_t first, std::uint64_t steps, std::uint64_t tokens) {
  for (const std::shared_ptr<Tally>& tally : tallies_) {
    tally->steps += steps;
    tally->tokens += tokens;
  }
  tokens_ += tokens;
  for (std::uint64_t step = first; step < first + steps; ++step) {
    owed_.push_back(step);
  }
}

bool StepCounts::nonfinite() const {
  return std::ranges::any_of(tallies_, [](const std::shared_ptr<Tally>& tally) { return tally->nonfinite; });
}

StepCounts::Owed StepCounts::take_owed() { return {tallies_, std::exchange(owed_, {})}; }

void StepCounts::add_losses(const Owed& owed, std::span<const double> losses) {
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double loss = losses[i];
    const bool bad = !std::isfinite(loss);
    for (const std::shared_ptr<Tally>& tally : owed.where) {
      if (bad && !tally->nonfinite && losses.size() == owed.steps.size()) {
        tally->bad_step = owed.steps[i];
      }
      tally->losses += bad ? 0 : 1;
      tally->loss_sum += bad ? 0.0 : loss;
      tally->nonfinite = tally->nonfinite || bad;
    }
    last_loss_ = bad ? std::nullopt : std::optional<double>(loss);
    nonfinite_ = nonfinite_ || bad;
  }
}

void StepCounts::forget() {
  begin(tallies_.size());
  tokens_ = 0;
}

std::shared_ptr<const StepCounts::Tally> StepCounts::close(std::uint32_t fragment) {
  return std::exchange(tallies_.at(fragment), std::make_shared<Tally>());
}

void StepCounts::Tally::fill(Published& report) const {
  report.steps = steps;
  report.tokens = tokens;
  report.nonfinite = report.nonfinite || nonfinite;
  report.bad_step = bad_step;
  if (losses > 0 && !nonfinite) {
    const double mean = loss_sum / static_cast<double>(losses);
    report.loss = std::isfinite(mean) ? std::optional<double>(mean) : std::nullopt;
  }
}

void StepCounts::pace(Progress& report, double seconds) {
  report.tokens_per_second = seconds > 0 ? static_cast<double>(std::exchange(tokens_, 0)) / seconds : 0.0;
}

void StepCounts::newest_loss(Progress& report) {
  report.loss = last_loss_;
  report.nonfinite = std::exchange(nonfinite_, false);
}

std::string StepCounts::text() const {
  nlohmann::json tallies = nlohmann::json::array();
  for (const std::shared_ptr<Tally>& tally : tallies_) {
    tallies.push_back({tally->steps, tally->tokens, tally->losses, tally->loss_sum, tally->nonfinite});
  }
  return tallies.dump();
}

Status StepCounts::read(std::string_view text) {
  const nlohmann::json tallies = nlohmann::json::parse(text, nullptr, false);
  if (!tallies.is_array()) {
    return Error{Code::corrupt, "cannot resume: the saved counters are broken"};
  }
  if (tallies.size() != tallies_.size()) {
    return {};
  }
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    const nlohmann::json& tally = tallies[i];
    const bool whole = tally.is_array() && tally.size() == 5 && tally[0].is_number_unsigned() && tally[1].is_number_unsigned() &&
                       tally[2].is_number_unsigned() && tally[3].is_number() && tally[4].is_boolean();
    if (!whole) {
      return Error{Code::corrupt, "cannot resume: the saved counters are broken"};
    }
    *tallies_[i] = {tally[0].get<std::uint64_t>(), tally[1].get<std::uint64_t>(), tally[2].get<std::uint64_t>(), tally[3].get<double>(),
                    tally[4].get<bool>()};
  }
  return {};
}

}  // namespace atl::island_link
