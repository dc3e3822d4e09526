// What a trainer has done since it last said so: steps, tokens and losses by fragment, as `published` tells them, and of late, as
// `progress` does. They are saved with the trainer's state, so that a contribution after a restart counts what was trained before it.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "agent/island_link/messages.hpp"
#include "transport/base/result.hpp"

namespace atl::island_link {

class StepCounts {
 public:
  // What one fragment's contribution counts.
  struct Tally {
    std::uint64_t steps = 0;
    std::uint64_t tokens = 0;
    std::uint64_t losses = 0;
    double loss_sum = 0.0;
    bool nonfinite = false;
    std::optional<std::uint64_t> bad_step = {};  // the first whose loss was not finite, where each step has one
    void fill(Published& report) const;
  };
  using Tallies = std::vector<std::shared_ptr<Tally>>;
  // The losses of these steps are asked for, and count there.
  struct Owed {
    Tallies where;
    std::vector<std::uint64_t> steps;
  };

  void begin(std::size_t fragments);
  // Steps are done, from number `first` on, of so many tokens together. Their losses may come later.
  void add_steps(std::uint64_t first, std::uint64_t steps, std::uint64_t tokens);
  [[nodiscard]] bool owes_losses() const { return !owed_.empty(); }
  // One of the steps that no contribution counts yet had a loss that was not finite.
  [[nodiscard]] bool nonfinite() const;
  // The losses of the steps so far were asked for, and are owed no longer: where they count, whatever has been closed when they come.
  [[nodiscard]] Owed take_owed();
  // Losses of those steps, in their order; steps may have none.
  void add_losses(const Owed& owed, std::span<const double> losses);
  // Starts anew: what was trained before belongs to no contribution.
  void forget();

  // What a fragment's contribution counts, once the losses that were asked for have come; from now on its next one is counted.
  [[nodiscard]] std::shared_ptr<const Tally> close(std::uint32_t fragment);
  // Fills in the tokens a second since the last progress, `seconds` ago.
  void pace(Progress& report, double seconds);
  // Fills in the newest loss and whether one since the last progress was not finite.
  void newest_loss(Progress& report);

  // JSON, and back. Errors: corrupt if it is broken. One of another number of fragments counts nothing: it was another strategy's.
  [[nodiscard]] std::string text() const;
  Status read(std::string_view text);

 private:
  Tallies tallies_;           // by fragment
  std::uint64_t tokens_ = 0;  // since the last progress
  std::optional<double> last_loss_;
  bool nonfinite_ = false;  // since the last progress
  std::vector<std::uint64_t> owed_;
};

}  // namespace atl::island_link
