// Checkpoints: the outer state is written while the engine goes on, and once the trainer has saved its own beside it the folder is hashed,
// synced and named. With nobody to work beside it the engine does all of it at once.
//
//   BeginCheckpoint ─► the outer state's snapshot is being written ─┐
//   WriteCheckpoint ─► sealed: nothing is added ────────────────────┤
//   EndTrainerState, where the trainer saves beside its steps ──────┴─► the folder is completed ─► it takes its name ─► CheckpointWritten
#include <algorithm>

#include "agent/engine/sync_engine_state.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {

void CheckpointFolder::complete() {
  const std::lock_guard lock(mutex_);
  if (!completed_) {
    outcome_ = complete_checkpoint(partial_, meta_);
    completed_ = true;
  }
}

void SyncEngine::State::beside(std::function<bool()> some) const {
  if (settings.beside) {
    settings.beside(std::move(some));
    return;
  }
  while (some()) {
  }
}

Status SyncEngine::State::begin_checkpoint(OpenedRun& open) const {
  ATOLL_ASSIGN(const std::shared_ptr<SnapshotFile> outer, open.run->begin_checkpoint(settings.snapshots));
  beside([outer] { return outer->write_some(); });
  return outer->failure();
}

void SyncEngine::State::carry_out(const BeginCheckpoint& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr || !open->run->has_state() || open->run->round() != order.round || open->run->digest() != order.digest) {
    return;  // WriteCheckpoint says that there is none
  }
  if (std::ranges::any_of(open->closing, [&](const ClosingCheckpoint& closing) { return closing.order.round == order.round; })) {
    complete_checkpoints(*open);
  }
  const TimePoint start = now();
  if (const Status begun = begin_checkpoint(*open); !begun) {
    log_warning("run " + order.run.text + ": the checkpoint of " + round_text(order.round) + " cannot be begun: " + begun.error().why);
    open->run->give_up_checkpoint(order.round);
    open->not_begun.insert_or_assign(order.round, begun.error());
    return;
  }
  log_debug("run " + order.run.text + ": checkpoint of " + round_text(order.round) + " begun in " + human_duration(now() - start));
}

void SyncEngine::State::carry_out(const WriteCheckpoint& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  if (std::ranges::any_of(open->closing, [&](const ClosingCheckpoint& closing) { return closing.order.round == order.round; })) {
    complete_checkpoints(*open);
  }
  IslandRun& run = *open->run;
  const Status begun = run.checkpoint_begun(order.round, order.digest);
  const std::vector<CheckpointMeta> stored = run.checkpoints().list();
  const auto same = std::find_if(stored.begin(), stored.end(), [&](const CheckpointMeta& meta) {
    return meta.round == order.round && meta.digest == order.digest &&
           (meta.has_trainer_state() || order.trainer_save != TrainerSave::done);
  });
  if (!begun && same != stored.end() && run.checkpoints().verify(order.round)) {
    serve_checkpoints(order.run, stored, run.checkpoints().folder());
    say_written(order, *same);
    return;
  }
  const auto cause = open->not_begun.extract(order.round);
  if (!begun && (!run.has_state() || run.round() != order.round || run.digest() != order.digest)) {
    say_failed(order, cause ? cause.mapped()
                      : begun.error().code == Code::not_found
                          ? Error{Code::conflict, "the outer state is no longer that of " + round_text(order.round)}
                          : begun.error());
    return;
  }
  reach(RoundPhase::checkpointing, order.round);
  const TimePoint start = now();
  if (const Status again = begun ? begun : begin_checkpoint(*open); !again) {
    run.give_up_checkpoint(order.round);
    say_failed(order, again.error());
    return;
  }
  Result<SealedCheckpoint> sealed =
      run.seal_checkpoint(order.round, order.epoch, order.trainer_save != TrainerSave::none, order.step, {order.part, order.position});
  if (!sealed) {
    say_failed(order, sealed.error());
    return;
  }
  sealed->meta.generation = order.generation;
  open->closing.push_back(ClosingCheckpoint{order, start, *std::move(sealed), nullptr});
  settle_checkpoints(*open);
}

void SyncEngine::State::carry_out(const EndTrainerState& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  for (ClosingCheckpoint& closing : open->closing) {
    if (closing.order.round == order.round && closing.order.trainer_save == TrainerSave::going_on) {
      end_trainer_state(*open, closing, order.saved);
    }
  }
  settle_checkpoints(*open);
}

void SyncEngine::State::end_trainer_state(OpenedRun& open, ClosingCheckpoint& closing, bool saved) {
  closing.order.trainer_save = saved ? TrainerSave::done : TrainerSave::none;
  if (!saved) {
    open.run->checkpoints().drop_trainer_state(closing.order.round);
  }
}

// What was written meanwhile.
void SyncEngine::State::settle_checkpoints(OpenedRun& open) {
  while (!open.closing.empty() && settle_checkpoint(open, open.closing.front())) {
    open.closing.pop_front();
  }
}

// True: it is written, or will not be.
bool SyncEngine::State::settle_checkpoint(OpenedRun& open, ClosingCheckpoint& closing) {
  if (!closing.folder) {
    const std::optional<Result<FileFacts>> outer = closing.sealed.outer->outcome();
    if (!outer || (*outer && closing.order.trainer_save == TrainerSave::going_on)) {
      return false;
    }
    if (!*outer) {
      open.run->give_up_checkpoint(closing.order.round);
      say_failed(closing.order, outer->error());
      return true;
    }
    CheckpointMeta meta = closing.sealed.meta;
    meta.files[kOuterFile] = **outer;
    closing.folder = std::make_shared<CheckpointFolder>(open.run->checkpoints().partial_of(closing.order.round), std::move(meta));
    beside([folder = closing.folder] {
      folder->complete();
      return false;
    });
  }
  if (!closing.folder->completed()) {
    return false;
  }
  CheckpointStore& checkpoints = open.run->checkpoints();
  const Result<CheckpointMeta> meta = checkpoints.take(closing.folder->meta(), closing.folder->outcome());
  if (!meta) {
    say_failed(closing.order, meta.error());
    return true;
  }
  checkpoints.prune(closing.order.keep, closing.order.needed);
  if (settings.rehearsal) {
    settings.rehearsal->checkpoint_written((checkpoints.folder_of(closing.order.round) / kOuterFile).text());
  }
  note(closing.order.run, SpanKind::checkpoint, closing.order.round, 0, closing.since, meta->outer()->bytes);
  log_info("run " + closing.order.run.text + ": checkpoint of " + round_text(closing.order.round) + ", " +
           human_bytes(meta->outer()->bytes) + " in " + human_duration(now() - closing.since));
  serve_checkpoints(closing.order.run, checkpoints.list(), checkpoints.folder());
  say_written(closing.order, *meta);
  return true;
}

// Their folders are about to be somebody else's: nobody works beside this.
void SyncEngine::State::complete_checkpoints(OpenedRun& open) {
  while (!open.closing.empty()) {
    ClosingCheckpoint& closing = open.closing.front();
    while (closing.sealed.outer->write_some()) {
    }
    if (closing.order.trainer_save == TrainerSave::going_on) {  // what it has written so far is of no use
      end_trainer_state(open, closing, false);
    }
    settle_checkpoints(open);
    if (!open.closing.empty() && open.closing.front().folder) {
      open.closing.front().folder->complete();
    }
  }
}

void SyncEngine::State::say_written(const WriteCheckpoint& order, const CheckpointMeta& meta) {
  say(CheckpointWritten{order.run, order.round, meta.digest, meta.outer()->sha256, meta.outer()->bytes, meta.has_trainer_state(), meta.step,
                        meta.position, meta.part});
}

void SyncEngine::State::say_failed(const WriteCheckpoint& order, const Error& error) {
  log_warning("run " + order.run.text + ": " + error.why + "; older checkpoints are still good");
  say(CheckpointFailed{order.run, order.round, error});
}

}  // namespace atl::agent
