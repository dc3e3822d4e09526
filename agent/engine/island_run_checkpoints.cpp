// A run's checkpoints on this island: what goes into one, and what is taken out of it again.
#include "agent/engine/island_run.hpp"

namespace atl {

Result<std::shared_ptr<SnapshotFile>> IslandRun::begin_checkpoint(const SnapshotTerms& terms) {
  if (!has_state_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state to write"};
  }
  for (const auto& earlier : snapshots_) {  // the disk is slower than checkpoints come: what is copied for them stays bounded
    while (earlier->write_some()) {
    }
  }
  if (const auto again = begun_.find(round_); again != begun_.end()) {
    again->second.outer->close();
    begun_.erase(again);
  }
  ATOLL_ASSIGN([[maybe_unused]] const DiskPath partial, checkpoints_.resume(round_));
  std::map<std::string, std::string> metadata = outer_metadata(id_, round_, digest_, spec_, layout_->manifest_text());
  if (const std::optional<std::string>& description = layout_->manifest().description) {
    metadata[kDescriptionKey] = *description;
  }
  if (own_start_) {
    if (const Status own = own_start_->write(*layout_, checkpoints_.partial_of(round_)); !own) {
      checkpoints_.abandon(round_);
      return own.error();
    }
  }
  const std::uint64_t state_bytes = parameters().size() * outer_state_bytes(composition_.outer.kind, composition_.outer_state);
  Result<std::shared_ptr<SnapshotFile>> outer =
      checkpoints_.begin_outer(round_, layout_->tensors(outer_.all().buffers()), metadata, state_bytes / terms.kept_share, terms.slice);
  if (!outer) {
    checkpoints_.abandon(round_);
    return outer.error();
  }
  BegunCheckpoint begun{digest_, {}, std::nullopt, *outer};
  for (auto later = contributions_.upper_bound(round_); later != contributions_.end() && !merges(later->first); ++later) {
    if (const Status kept = keep_pending(round_, later->first, later->second); !kept) {
      checkpoints_.abandon(round_);
      return kept.error();
    }
    begun.pending.push_back({later->first, later->second.facts});
  }
  begun_[round_] = std::move(begun);
  snapshots_.push_back(*outer);
  return outer;
}

Status IslandRun::checkpoint_begun(Round round, const Digest& digest) const {
  const auto begun = begun_.find(round);
  if (begun == begun_.end() || begun->second.digest != digest) {
    return Error{Code::not_found, "no checkpoint of round " + std::to_string(round.value) + " was begun"};
  }
  return begun->second.outer->failure();
}

void IslandRun::give_up_checkpoint(Round round) {
  if (const auto begun = begun_.find(round); begun != begun_.end()) {
    begun->second.outer->close();
    begun_.erase(begun);
  }
  checkpoints_.abandon(round);
}

Result<SealedCheckpoint> IslandRun::seal_checkpoint(Round round, Epoch epoch, bool trainer_state, Step step, DataPosition data) {
  const auto found = begun_.find(round);
  if (found == begun_.end()) {
    return Error{Code::conflict, "no checkpoint of round " + std::to_string(round.value) + " was begun"};
  }
  BegunCheckpoint begun = std::move(found->second);
  begun_.erase(found);
  if (!trainer_state) {
    checkpoints_.drop_trainer_state(round);
  }
  if (const Status residual = write_residual(round); !residual && !begun.failure) {
    begun.failure = residual.error();
  }
  if (begun.failure) {
    begun.outer->close();
    checkpoints_.abandon(round);
    return *begun.failure;
  }
  CheckpointMeta meta;
  meta.run = id_;
  meta.round = round;
  meta.epoch = epoch;
  meta.digest = begun.digest;
  meta.step = step;
  meta.part = data.part;
  meta.position = data.position;
  meta.pending = std::move(begun.pending);
  return SealedCheckpoint{std::move(meta), std::move(begun.outer)};
}

Status IslandRun::keep_pending(Round checkpoint, Round round, const Contribution& contribution) const {
  const DiskPath rounds = checkpoints_.partial_of(checkpoint) / kRoundsFolder;
  ATOLL_TRY(rounds.make_folders());
  RoundResult term;
  term.round = round;
  term.fragment = contribution.facts.fragment;
  term.values = layout_->fragments()[contribution.facts.fragment].count;
  term.codec = composition_.codec;
  term.terms = {{contribution.encoded.bytes, 1.0F}};
  return write_result(rounds / std::to_string(round.value), term);
}

Result<Contribution> IslandRun::read_pending(Round checkpoint, const PendingRound& pending) const {
  const DiskPath path = checkpoints_.folder_of(checkpoint) / kRoundsFolder / std::to_string(pending.round.value);
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(pending.facts.fragment));
  ATOLL_ASSIGN(StoredResult opened, StoredResult::open(path));
  const auto stored = std::make_shared<StoredResult>(std::move(opened));
  const RoundResult& term = stored->result();
  if (term.round != pending.round || term.fragment != pending.facts.fragment || term.values != range.count || term.terms.size() != 1 ||
      term.codec != composition_.codec) {
    return Error{Code::corrupt, path.text() + ": is not the contribution that the checkpoint names"};
  }
  Contribution contribution{pending.facts, Payload{term.terms.front().bytes, stored}};
  if (pending.facts.base == Round()) {
    contribution.facts.base = checkpoint;
  }
  if (forms_anew_) {
    contribution.values = std::make_shared<std::vector<float>>(range.count);
    ATOLL_TRY(decode_result({term.codec, term.terms, Aggregator::weighted_mean}, *contribution.values));
  }
  return contribution;
}

Status IslandRun::write_residual(Round checkpoint) const {
  if (residual_.empty()) {
    return {};
  }
  ATOLL_ASSIGN(DurableFile file, DurableFile::create(checkpoints_.partial_of(checkpoint) / kResidualFile));
  ATOLL_TRY(
      write_safetensors(layout_->tensors({residual_buffer()}), {{"atoll.format", "1"}}, [&](ByteView bytes) { return file.write(bytes); }));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts, file.finish());
  return {};
}

Status IslandRun::read_residual(const CheckpointMeta& meta) {
  if (residual_.empty() || !meta.files.contains(kResidualFile)) {
    return {};
  }
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(checkpoints_.folder_of(meta.round) / kResidualFile));
  const Status read = layout_->read(file, {residual_buffer()});
  return read ? read : with_context(read.error(), kResidualFile);
}

Result<std::vector<PendingRound>> IslandRun::load_checkpoint(Round round, const Digest& digest) {
  ATOLL_ASSIGN(const CheckpointMeta meta, checkpoints_.verify(round));
  if (meta.digest != digest || meta.run != id_) {
    return Error{Code::corrupt, "the checkpoint of round " + std::to_string(round.value) + " belongs to another history"};
  }
  ATOLL_TRY(load_outer(checkpoints_.folder_of(round) / kOuterFile));
  stepped_.clear();
  Status read = round_ == round && digest_ == digest
                    ? read_residual(meta)
                    : Status(Error{Code::corrupt, "the outer state of round " + std::to_string(round.value) + " says it is another one"});
  for (const PendingRound& pending : meta.pending) {
    if (!read) {
      break;
    }
    Result<Contribution> contribution = read_pending(round, pending);
    if (contribution) {
      contributions_[pending.round] = *std::move(contribution);
    } else {
      read = contribution.error();
    }
  }
  if (read && own_start_) {
    read = own_start_->read(*layout_, checkpoints_.folder_of(round), meta);
    read = read ? restore_starts() : read;
  }
  if (!read) {
    has_state_ = false;
    forget_rounds();
    return read.error();
  }
  return meta.pending;
}

Status IslandRun::load_outer(const DiskPath& path, const std::vector<std::string>& islands) {
  ATOLL_ASSIGN(const SafetensorsFile file, SafetensorsFile::open(path));
  const auto& metadata = file.header().metadata;
  const auto text = [&](const char* key) { return metadata.contains(key) ? metadata.at(key) : std::string(); };
  const Result<Digest> digest = digest_from_hex(text("atoll.digest"));
  const std::string round = text("atoll.round");
  if (text("atoll.run") != id_.text || !digest || round.empty() || round.size() > 19 ||
      round.find_first_not_of("0123456789") != std::string::npos) {
    return Error{Code::corrupt, path.text() + ": its metadata is not that of a checkpoint of run " + id_.text};
  }
  ATOLL_ASSIGN(ParameterLayout layout, ParameterLayout::from_checkpoint(file.header(), composition_.fragments));
  std::string where;
  for (const std::string& island : islands) {
    where += (where.empty() ? "on " : ", ") + island;
  }
  ATOLL_TRY(use_layout(std::move(layout), where.empty() ? "in the run" : where));
  has_state_ = false;
  close_snapshots();
  const Status read = layout_->read(file, outer_.all().buffers());
  if (!read) {
    return with_context(read.error(), path.text());
  }
  round_ = Round(std::stoull(round));
  digest_ = *digest;
  has_state_ = true;
  forget_rounds();
  return {};
}

}  // namespace atl
