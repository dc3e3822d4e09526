// The copy of a checkpoint that was fetched from a store becomes one of this island's own.
#include "agent/core/effect.hpp"
#include "agent/engine/island_run.hpp"

namespace atl {

Status IslandRun::take_fetched(Round round, const Digest& digest, const agent::FetchedCopy& fetched) {
  ATOLL_ASSIGN(const DiskPath partial, checkpoints_.begin(round));
  ATOLL_TRY((folder_ / agent::kFetchedCopy).rename_to(partial / kOuterFile));
  CheckpointMeta meta;
  meta.run = id_;
  meta.round = round;
  meta.epoch = fetched.epoch;
  meta.generation = fetched.generation;
  meta.digest = digest;
  meta.step = fetched.step;
  meta.part = fetched.part;
  meta.position = fetched.position;
  ATOLL_ASSIGN(const CheckpointMeta finished, checkpoints_.finish(std::move(meta)));
  if (finished.outer() == nullptr || finished.outer()->sha256 != fetched.file) {
    return Error{Code::corrupt, "the copy of round " + std::to_string(round.value) + " changed after it was fetched"};
  }
  return {};
}

}  // namespace atl
