#include "strategies/planning/goodput.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr double kYearSeconds = 365.0 * 24 * 3600;

// As they reached us (second-hand), in per cent, by method and number of chips.
constexpr std::array<std::array<double, 5>, 6> kPrintedGoodput = {
    {{72, 57, 38, 27, 18}, {88, 80, 69, 58, 40}, {94, 88, 80, 70, 54}, {96, 93, 89, 82, 73}, {98, 96, 94, 88, 80}, {99, 98, 96, 93, 86}}};

// One island's times up and away, in order; time only goes on.
class Interruptions {
 public:
  Interruptions(const GoodputQuestion& question, std::uint32_t island)
      : rng_(question.seed, stream_of("goodput", island)),
        up_(kYearSeconds * question.islands / (question.chips * question.interruptions_per_chip_year)),
        mu_(std::log(question.pause_seconds) - question.pause_sigma * question.pause_sigma / 2),
        sigma_(question.pause_sigma) {
    next();
  }
  // The time up between the last call's `to` and this one.
  double up_until(double to) {
    double up = 0;
    while (back_ <= to) {
      up += std::max(0.0, away_ - at_);
      at_ = std::max(at_, back_);
      next();
    }
    up += std::max(0.0, std::min(to, away_) - at_);
    at_ = to;
    return up;
  }
  // When it is back, if it is away at this time (not before the last `to`); else that time.
  double back_from(double time) {
    Interruptions later = *this;
    (void)later.up_until(time);
    return later.away_ <= time ? later.back_ : time;
  }

 private:
  void next() {
    away_ = back_ - up_ * std::log(1 - rng_.uniform());
    back_ = away_ + std::exp(mu_ + sigma_ * rng_.normal());
  }
  Rng rng_;
  double up_;
  double mu_;
  double sigma_;
  double at_ = 0;
  double away_ = 0;
  double back_ = 0;
};

}  // namespace

double simulate_goodput(const GoodputQuestion& question) {
  ATOLL_CHECK(question.islands >= 1 && question.chips > 0 && question.rounds > 0 && question.pause_seconds > 0,
              "a goodput question has islands, chips and rounds");
  std::vector<Interruptions> islands;
  for (std::uint32_t i = 0; i < question.islands; ++i) {
    islands.emplace_back(question, i);
  }
  const double length = question.inner_steps * question.step_seconds;
  const double hidden = question.overlap_steps * question.step_seconds;
  const double patience = question.straggler_factor >= 1 ? question.straggler_factor * length : std::numeric_limits<double>::infinity();
  double begin = 0;
  double trained = 0;
  for (std::uint32_t round = 0; round < question.rounds; ++round) {
    const double due = begin + length;
    double end = due;
    if (question.quorum > 0) {
      std::vector<double> there;
      there.reserve(islands.size());
      for (Interruptions& island : islands) {
        there.push_back(island.back_from(due));
      }
      std::ranges::sort(there);
      end = std::max(due, there[std::min<std::size_t>(question.quorum, there.size()) - 1]);
      for (Interruptions& island : islands) {
        trained += island.up_until(end);
      }
      begin = end;
      continue;
    }
    for (Interruptions& island : islands) {
      end = std::max(end, islands.size() > 1 ? std::min(island.back_from(due), begin + patience) : due);  // one alone waits for nobody
    }
    const double works_until = std::min(end, due + hidden);
    for (Interruptions& island : islands) {
      trained += island.up_until(works_until);
      (void)island.up_until(end);
    }
    begin = end;
  }
  return trained / (begin * question.islands);
}

std::vector<GoodputCell> goodput_table() {
  std::vector<GoodputCell> cells;
  for (std::uint32_t method = 0; method < kGoodputMethods.size(); ++method) {
    for (std::uint32_t chips = 0; chips < kGoodputChips.size(); ++chips) {
      GoodputQuestion question;
      question.islands = kGoodputMethods[method].islands;
      question.chips = kGoodputChips[chips];
      question.pause_seconds = kGoodputMethods[method].pause_seconds;
      GoodputQuestion alone = question;
      alone.islands = 1;
      alone.chips = question.chips / question.islands;
      GoodputQuestion waiting = question;
      waiting.straggler_factor = 0;
      GoodputQuestion quorum = question;
      quorum.quorum = 1;
      cells.push_back({method, chips, kPrintedGoodput[method][chips] / 100, simulate_goodput(question), simulate_goodput(alone),
                       simulate_goodput(waiting), simulate_goodput(quorum)});
    }
  }
  return cells;
}

}  // namespace atl
