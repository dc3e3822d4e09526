// What a trainer has done since it last said so: steps, tokens and losses by fragment, as `published` tells them, and of late, as
// `progress` does. They are saved with the trainer's state, so that a contribution after a restart counts what was trained before it.
// Threads: plain values.
#pragma once

#include <cstdint>
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
  void begin(std::size_t fragments) { tallies_.assign(fragments, {}); }
  // Steps are done, of so many tokens together. Their losses may come later.
  void add_steps(std::uint64_t steps, std::uint64_t tokens);
  // Losses of steps that were added, in their order.
  void add_losses(std::span<const double> losses);
  // No loss is owed: those of steps without one are not asked for again.
  [[nodiscard]] bool owes_losses() const { return owed_; }
  // Starts anew: what was trained before belongs to no contribution.
  void forget();

  // Fills in what a fragment's contribution counts, and starts its next one.
  void publish(std::uint32_t fragment, Published& report);
  // Fills in the newest loss and whether one since the last progress was not finite.
  void progress(Progress& report, double seconds);
  void skip_progress() { tokens_ = 0; }

  // JSON, and back. Errors: corrupt if it is broken. One of another number of fragments counts nothing: it was another strategy's.
  [[nodiscard]] std::string text() const;
  Status read(std::string_view text);

 private:
  struct Tally {
    std::uint64_t steps = 0;
    std::uint64_t tokens = 0;
    std::uint64_t losses = 0;
    double loss_sum = 0.0;
    bool nonfinite = false;
  };
  std::vector<Tally> tallies_;
  std::uint64_t tokens_ = 0;  // since the last progress
  std::optional<double> last_loss_;
  bool nonfinite_ = false;  // since the last progress
  bool owed_ = false;
};

}  // namespace atl::island_link
