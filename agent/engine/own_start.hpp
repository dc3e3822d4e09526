// What an island's trainer goes on from where the exchange of a fragment takes its whole period (Composition::whole_period): the outer
// parameters of the newest result, and with eager updates the island's own term (strategies/eager.hpp).
//
// It keeps what is this island's alone: per fragment which result the trainer was handed, by how much the island's newest contribution
// counted, and with eager updates v. Memory: 4 bytes a parameter for v. v and the weights are part of the island's own checkpoints; they
// are zero again once the outer state was taken over from peers.
// Threads: owned by an IslandRun.
#pragma once

#include <optional>
#include <vector>

#include "agent/engine/float_buffer.hpp"
#include "agent/engine/parameter_layout.hpp"
#include "agent/storage/checkpoint.hpp"
#include "strategies/composition.hpp"
#include "strategies/eager.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl {

class OwnStart {
 public:
  // Errors: io; invalid_argument if the schedule is impossible.
  static Result<OwnStart> make(const Composition& composition, const RunSpec& spec, const ParameterLayout& layout);

  // The trainer has the outer parameters of this round, and of no later one.
  void load(Round committed);
  // It gets the result of `round`.
  void hand(Round round, std::uint32_t fragment) { handed_[fragment] = round; }
  // Whether the trainer takes an earlier result of the fragment as soon as it has published for this round. If not, it goes on from what
  // it has published.
  [[nodiscard]] bool result_follows(Round round) const;
  // The fragment's first of all.
  [[nodiscard]] bool is_first(Round round) const;
  // What was this island's is another's, or was never counted.
  void forget();

  // `own`: what the island contributed to a fragment's round that is committed, encoded, and the weight by which it counts; empty and 0
  // where it does not. Errors: as eager_absorb.
  Status absorb(std::uint32_t fragment, ByteView own, float weight, const ParameterLayout& layout);
  // start <- what the trainer goes on from. newest: its contribution to the fragment that is under way, encoded; empty for none. Errors: as
  // eager_start.
  Status start(std::uint32_t fragment, ByteView newest, const ParameterLayout& layout, std::span<const float> outer,
               std::span<float> start) const;

  // Into the partial folder of a checkpoint, and back; one that has no such file leaves zeros. Errors: io, corrupt.
  Status write(const ParameterLayout& layout, const DiskPath& folder) const;
  Status read(const ParameterLayout& layout, const DiskPath& folder, const CheckpointMeta& meta);

 private:
  OwnStart(const Composition& composition, Schedule schedule)
      : composition_(composition), schedule_(schedule), handed_(schedule.fragments()), weights_(schedule.fragments()) {}
  [[nodiscard]] std::span<const float> momentum(const island_link::Fragment& range) const;
  [[nodiscard]] std::vector<TensorView> tensors(const ParameterLayout& layout) const;

  Composition composition_;
  Schedule schedule_;
  std::vector<Round> handed_;   // by fragment
  std::vector<float> weights_;  // by fragment; of the newest round in which this island counted
  FloatBuffer momentum_;        // empty without a momentum of its own
};

}  // namespace atl
