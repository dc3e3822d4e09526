#include "agent/island_link/client/run_progress.hpp"

namespace atl::island_link {

void RunProgress::hear(std::uint64_t committed, std::uint64_t of, std::uint64_t step) {
  const bool first = of_ == 0;  // what was committed before says nothing of the pace
  of_ = of;
  if (!first && committed > committed_ && step > step_) {
    gain_ = committed - committed_;
    over_ = step - step_;
  }
  if (first || committed != committed_) {
    committed_ = committed;
    step_ = step;
    then_ = trained_;
  }
}

double RunProgress::after(std::uint64_t step, std::uint64_t steps) {
  double done = steps == 0 ? 0.0 : static_cast<double>(step) / static_cast<double>(steps);
  if (of_ > 0) {
    const double beyond = static_cast<double>(step - std::min(step, step_));
    const double pace = over_ == 0 ? 0.0 : static_cast<double>(gain_) / static_cast<double>(over_);
    const double own = static_cast<double>(trained_ - then_);
    const double since = std::max(own, std::min(pace * beyond, static_cast<double>(gain_)));
    done = std::max(done, (static_cast<double>(committed_) + since) / static_cast<double>(of_));
  }
  furthest_ = std::max(furthest_, std::min(done, 1.0));
  return furthest_;
}

}  // namespace atl::island_link
