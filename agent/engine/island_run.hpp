// One run on this island: its outer state, its arena, its contributions and its checkpoints.
//
// Everything that touches parameters and needs no link. Memory for N parameters: outer parameters 4N, momentum 4N, or 2N in bf16 (only
// where the outer optimiser has one), arena 4N, residuals 4N (only with error feedback). Where the exchange takes a whole period, also 4N
// for what the trainer went on from, 4N for a contribution in f32, and what OwnStart has. A contribution in f32 is formed in the arena over
// what the trainer published and sent from there; in another codec it is encoded into a buffer of its own. Copies of a parameter in a
// round: trainer → arena; then, in place, the difference; the outer step; outer parameters → arena. No other. Rounds of different fragments
// may be in flight together: contributions are formed in any order and touch only their own range; results are applied in the order of the
// rounds. Residuals (strategies/error_feedback.hpp) live as long as the island's outer state follows its own contributions: they are kept
// over repeated attempts and new trainers, are part of the checkpoint and come back with it, and are zero again once the state was taken
// over from peers, for then what they hold belongs to contributions that the others may never have counted. Threads: one at a time.
// Payloads handed out keep their memory alive, but the arena's content changes with the next order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/engine/arena_watch.hpp"
#include "agent/engine/float_buffer.hpp"
#include "agent/engine/outer_buffers.hpp"
#include "agent/engine/own_start.hpp"
#include "agent/engine/parameter_layout.hpp"
#include "agent/engine/round_result.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/storage/checkpoint.hpp"
#include "strategies/composition.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/disk.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/bulk/blob_store.hpp"

namespace atl::agent {
struct FetchedCopy;  // agent/core/effect.hpp
}

namespace atl {

// What an island sends into a round, retained until the round is committed.
struct Contribution {
  // norm: before it is encoded, all of it; with radial_directional of what is decoded, without buffers. fingerprint: before it is encoded.
  ContributionFacts facts;
  Payload encoded;
  std::shared_ptr<std::vector<float>> values = {};  // where it may be formed anew against a newer one (Anchor::newest): before encoding
};

// Where a trainer is in the data.
struct DataPosition {
  std::uint32_t part = 0;
  std::uint64_t position = 0;
};

// Makes the arena of a run, so many bytes of zeros. Errors: io.
using MakeArena = std::function<Result<island_link::Arena>(const RunId& run, std::uint64_t bytes)>;
// In /dev/shm, or where that has no room in the run's folder below `runs`; under a name that no other run or agent on this machine has.
MakeArena shared_arenas(IslandId island, std::filesystem::path runs);

// How the outer state is written while it may change.
struct SnapshotTerms {
  std::size_t slice = SnapshotFile::kSlice;  // bytes at a time
  std::uint64_t kept_share = 4;              // one part in so many of the outer state may be copied
};

// A checkpoint to which nothing is added any more: once its outer state is written its folder can be completed.
struct SealedCheckpoint {
  CheckpointMeta meta;  // without files
  std::shared_ptr<SnapshotFile> outer;
};

class IslandRun {
 public:
  ~IslandRun();
  IslandRun(const IslandRun&) = delete;
  IslandRun& operator=(const IslandRun&) = delete;
  // `folder` is that of the run: checkpoints, incoming and kept results lie there. Errors: invalid_argument, io.
  static Result<std::unique_ptr<IslandRun>> open(RunId run, RunSpec spec, IslandId island, DiskPath folder, MakeArena make_arena);

  // ---- arena
  // Lays out and maps the arena for a trainer's manifest; again for the same one after a restart of the trainer.
  // Errors: invalid_argument if the model does not fit [run].arena_limit, or is another than the run's; io.
  Result<island_link::ArenaLayout> prepare_arena(const island_link::Manifest& manifest, const std::string& island);
  // From now on a trainer that writes into the arena out of turn is noticed; take_misuse() says so, once.
  void watch_arena() { watch_.emplace(); }
  std::optional<std::string> take_misuse() { return std::exchange(misuse_, std::nullopt); }
  // Outer parameters → arena, all fragments. Retained contributions in the arena are gone then. Errors: conflict without state.
  Status fill_arena();

  // ---- outer state
  // The arena's parameters, or those of a safetensors file, become the outer state of round 0. Errors: conflict without an arena; corrupt
  // if not finite; invalid_argument if the file lacks a parameter or has it in another shape or type.
  Result<Digest> form_initial_state(const std::string& file = "");
  [[nodiscard]] bool has_state() const { return has_state_; }
  [[nodiscard]] Round round() const { return round_; }
  [[nodiscard]] const Digest& digest() const { return digest_; }
  [[nodiscard]] std::span<const float> parameters() const { return outer_.parameters(); }
  [[nodiscard]] const OuterBuffers& outer() const { return outer_; }
  // Payload gradient: the arena holds the parameters after the optimiser's step.
  Status adopt_parameters();

  // ---- rounds
  // From what the trainer published. It is also written into the checkpoints that are begun and not finished.
  // Errors: conflict without state or arena; corrupt if it is not finite: the residual is unchanged then.
  Result<Contribution> form_contribution(Round round, ContributionFacts facts);
  // The island's own outer parameters as its contribution to a round that merges all islands' into one model; in float32. Part of no
  // checkpoint: it can be formed again.
  Result<Contribution> form_merge_contribution(Round round, std::uint32_t fragment);
  // The outer parameters of a fragment, encoded for the partner of a pair, in memory of their own.
  [[nodiscard]] Result<Payload> encode_parameters(std::uint32_t fragment) const;
  // A round that merges all islands' outer parameters (Composition::merge_rounds).
  [[nodiscard]] bool merges(Round round) const;
  // How the contributions to a round are combined.
  [[nodiscard]] Aggregator aggregator(Round round, std::uint32_t fragment) const;
  // What the coordinator is told of a contribution's size, and every member weighs it with: where lengths are averaged apart, of what the
  // others decode.
  [[nodiscard]] Result<double> counted_norm(Round round, const island_link::Fragment& range, std::uint32_t fragment, double norm,
                                            std::span<const std::byte> encoded) const;
  // What the digest of this round's result begins with: the digest, or the same digest on all islands for the first merging round.
  [[nodiscard]] Digest digest_before(Round round) const;
  // A few hundred bytes that tell how far islands are apart (strategies/projection.hpp).
  [[nodiscard]] std::vector<float> projection() const;
  [[nodiscard]] const Contribution* contribution(Round round) const;
  void drop_contributions_before(Round round);
  // A round closed before this contribution to it was there: it is one to the later round `to` now.
  void postpone_contribution(Round round, Round to);
  // The outer state is about to become another one: contributions, residuals and begun checkpoints lead nowhere.
  void forget_rounds();
  // By whom large fragments' outer steps are taken; until it is said, by the caller alone.
  void let_work(InParts in_parts) { in_parts_ = std::move(in_parts); }
  // Takes the outer step of the round after `round()`, and puts the outcome into the arena for the trainer.
  // Errors: conflict for another round; corrupt if the result is not finite: the state is unchanged then.
  // `group`: with whose outer parameters the step is taken, in pairs. A result without terms changes nothing but the round.
  // own_weight: by which this island's own contribution counted. Where the exchange takes a whole period the arena stays the trainer's
  // until hand_over.
  Status apply(const RoundResult& result, const Digest& digest, const GroupParameters* group = nullptr, float own_weight = 0.0F);
  // Where the exchange takes a whole period: the newest result of the fragment, that of `round`, is the trainer's, which has published for
  // the next one or will not. What it goes on from is put into the arena. Errors: conflict without state or arena.
  Status hand_over(Round round, std::uint32_t fragment);
  // As apply, while the trainer has the fragment's range of the arena: that stays as it is, and the parameters from before the first such
  // step are kept until the trainer gets newer ones: with Anchor::own, what it publishes is formed against them. Memory: a copy of the
  // fragment.
  Status apply_behind(const RoundResult& result, const Digest& digest);
  // The fragment's outer parameters into the arena, for the trainer to take. Errors: conflict without state or arena.
  Status offer(std::uint32_t fragment);
  // Contributions that were formed anew since this was asked last, with their norms; NaN: it could not be (Anchor::newest).
  std::vector<std::pair<Round, double>> take_reformed() { return std::exchange(reformed_, {}); }

  // ---- checkpoints
  [[nodiscard]] CheckpointStore& checkpoints() { return checkpoints_; }
  // Begins one of the present outer state, which the caller lets be written (SnapshotFile::write_some) while the outer state may move on;
  // the contributions to later rounds go into the partial folder at once, and until the checkpoint is sealed every contribution that is
  // formed goes there too: the trainer is still on its way to the merge at which it saves. Errors: conflict without state, io.
  Result<std::shared_ptr<SnapshotFile>> begin_checkpoint(const SnapshotTerms& terms = {});
  // Errors: not_found; why its outer state could not be written.
  [[nodiscard]] Status checkpoint_begun(Round round, const Digest& digest) const;
  void give_up_checkpoint(Round round);
  // Nothing is added to the begun one any more; `trainer_state`: what the trainer saved in the partial folder goes with it. Errors:
  // conflict if none was begun; io, and it is given up then.
  Result<SealedCheckpoint> seal_checkpoint(Round round, Epoch epoch, bool trainer_state, Step step, DataPosition data);
  // folder()/kFetchedCopy becomes the checkpoint of this round, in place of what there is of it. Errors: io; corrupt if it is another file.
  Status take_fetched(Round round, const Digest& digest, const agent::FetchedCopy& fetched);
  // The outer state, the residuals and the contributions to rounds in flight (which it returns) from an own checkpoint, every byte
  // verified.
  Result<std::vector<PendingRound>> load_checkpoint(Round round, const Digest& digest);
  // The outer state from a verified outer.safetensors, which came from the islands of these names (none: it is this island's own); the
  // digest is the file's. Errors: corrupt; invalid_argument if its parameters are not those of this island's trainer.
  Status load_outer(const DiskPath& file, const std::vector<std::string>& islands = {});

  [[nodiscard]] const RunId& id() const { return id_; }
  [[nodiscard]] const RunSpec& spec() const { return spec_; }
  [[nodiscard]] const Composition& composition() const { return composition_; }
  [[nodiscard]] const std::optional<ParameterLayout>& layout() const { return layout_; }
  [[nodiscard]] const DiskPath& folder() const { return folder_; }

 private:
  IslandRun(RunId run, RunSpec spec, Composition composition, IslandId island, DiskPath folder, CheckpointStore checkpoints,
            MakeArena make_arena);
  // The outer parameters that the trainer had of a fragment, where they are not the present ones.
  struct Base {
    Round round;
    FloatBuffer parameters;
  };
  Status use_layout(ParameterLayout layout, const std::string& where);
  Result<island_link::Fragment> range_of(std::uint32_t fragment) const;
  Result<island_link::Fragment> next_range(const RoundResult& result) const;
  Status take_step(const RoundResult& result, const island_link::Fragment& range, const GroupParameters* group);
  // The outer parameters that the trainer has of the fragment are the present ones; a copy of them stays.
  Status keep_base(std::uint32_t fragment, const island_link::Fragment& range);
  // Where the exchange takes a whole period (hand_over.cpp).
  Status start_of(std::uint32_t fragment, const island_link::Fragment& range, std::span<float> start) const;
  Status go_on_from_published(const Contribution& formed, const island_link::Fragment& range);
  Status restore_starts();
  void advance_to(Round round, const Digest& digest, std::uint32_t fragment);
  Result<Payload> encode_contribution(Round round, const island_link::Fragment& range);
  Result<Contribution> form_apart(Round round, const island_link::Fragment& range, ContributionFacts facts);
  Result<Payload> encode_values(Round round, const std::shared_ptr<std::vector<float>>& values) const;
  void form_anew(std::uint32_t fragment, std::span<const float> before, Round round);
  Status keep_pending(Round checkpoint, Round round, const Contribution& contribution) const;
  Result<Contribution> read_pending(Round checkpoint, const PendingRound& pending) const;
  [[nodiscard]] OuterBuffer residual_buffer() const {
    return {kResidualPrefix, OuterStateFormat::f32, std::as_writable_bytes(residual_.floats())};
  }
  Status write_residual(Round checkpoint) const;
  void before_change(const OuterState& state);
  void close_snapshots();
  Status read_residual(const CheckpointMeta& meta);

  RunId id_;
  RunSpec spec_;
  Composition composition_;
  bool apart_;  // contributions lie apart from the arena, as the trainer goes on meanwhile: they are copied, and kept beside its ranges
  bool forms_anew_;  // … with their values, to be formed against each newer result of their fragment
  IslandId island_;
  DiskPath folder_;
  CheckpointStore checkpoints_;
  InParts in_parts_ = one_after_another;
  MakeArena make_arena_;

  std::optional<ParameterLayout> layout_;
  std::string layout_where_;  // for messages: whose parameters these are, "on lyon"
  std::shared_ptr<island_link::Arena> arena_;
  OuterBuffers outer_;
  FloatBuffer residual_;  // empty without error feedback
  bool has_state_ = false;
  Round round_;
  Digest digest_;
  std::map<Round, Contribution> contributions_;
  std::map<std::uint32_t, Base> bases_;  // by fragment
  std::vector<std::pair<Round, double>> reformed_;
  std::map<std::uint32_t, Round> stepped_;  // by fragment: its newest round whose step was taken since the outer state was loaded
  std::optional<OwnStart> own_start_;       // where the exchange takes a whole period
  std::optional<ArenaWatch> watch_;
  std::optional<std::string> misuse_;
  struct BegunCheckpoint {
    Digest digest;
    std::vector<PendingRound> pending;
    std::optional<Error> failure;  // of adding a contribution
    std::shared_ptr<SnapshotFile> outer;
  };
  std::map<Round, BegunCheckpoint> begun_;
  std::vector<std::shared_ptr<SnapshotFile>> snapshots_;  // of the outer state, that are being written
};

}  // namespace atl
