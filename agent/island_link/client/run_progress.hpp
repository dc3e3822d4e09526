// How far a run is, as a trainer's learning rate needs it: from 0 to 1, and never back.
//
// A run ends by its steps, or by the tokens that its islands have committed together, whichever comes first. The agent tells of these
// tokens when a round is committed. In between, progress goes on as fast as it did between the last two of those: at most as far as it came
// there, and at least as far as this trainer has come by itself since.
// Threads: a plain value. Cost: O(1).
#pragma once

#include <algorithm>
#include <cstdint>

namespace atl::island_link {

class RunProgress {
 public:
  // This trainer did steps with so many tokens.
  void train(std::uint64_t tokens) { trained_ += tokens; }
  // At this step of its own it hears that `committed` tokens of the run's `of` are committed.
  void hear(std::uint64_t committed, std::uint64_t of, std::uint64_t step);
  // The share of the run that is done after this step, of `steps` at most.
  double after(std::uint64_t step, std::uint64_t steps);

 private:
  std::uint64_t trained_ = 0;
  std::uint64_t committed_ = 0;
  std::uint64_t of_ = 0;    // 0: the run ends by its steps
  std::uint64_t step_ = 0;  // at which the newest was heard,
  std::uint64_t then_ = 0;  // and what this trainer had trained
  std::uint64_t gain_ = 0;  // tokens between the last two times,
  std::uint64_t over_ = 0;  // and steps
  double furthest_ = 0;
};

}  // namespace atl::island_link
