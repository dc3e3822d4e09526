#include "agent/core/stored_runs.hpp"

#include <algorithm>

namespace atl::agent {

StoredRuns::StoredRuns(std::vector<StoredRun> found) {
  for (StoredRun& run : found) {
    const RunId id = run.run;
    runs_[id] = std::move(run);
  }
}

const std::vector<StoredCheckpoint>& StoredRuns::checkpoints(const RunId& run) const {
  static const std::vector<StoredCheckpoint> kNone;
  const auto found = runs_.find(run);
  return found == runs_.end() ? kNone : found->second.checkpoints;
}

const StoredCheckpoint* StoredRuns::find(const RunId& run, Round round, const Digest& digest) const {
  for (const StoredCheckpoint& checkpoint : checkpoints(run)) {
    if (checkpoint.round == round && checkpoint.digest == digest) {
      return &checkpoint;
    }
  }
  return nullptr;
}

const StoredCheckpoint* StoredRuns::newest_trainer_state(const RunId& run, std::optional<Round> until) const {
  const StoredCheckpoint* newest = nullptr;
  for (const StoredCheckpoint& checkpoint : checkpoints(run)) {
    if (checkpoint.trainer_state && (!until || checkpoint.round <= *until)) {
      newest = &checkpoint;
    }
  }
  return newest;
}

void StoredRuns::add(const RunId& run, const StoredCheckpoint& checkpoint, std::size_t keep) {
  StoredRun& held = runs_[run];
  held.run = run;
  std::erase_if(held.checkpoints, [&](const StoredCheckpoint& old) { return old.round == checkpoint.round; });
  held.checkpoints.push_back(checkpoint);
  if (held.checkpoints.size() > keep) {
    held.checkpoints.erase(held.checkpoints.begin(), held.checkpoints.end() - static_cast<std::ptrdiff_t>(keep));
  }
}

void StoredRuns::remove(const RunId& run, Round round) {
  if (const auto held = runs_.find(run); held != runs_.end()) {
    std::erase_if(held->second.checkpoints, [&](const StoredCheckpoint& old) { return old.round == round; });
  }
}

void StoredRuns::keep(const RunId& run, Readers readers) {
  runs_[run].run = run;
  readers_[run] = std::move(readers);
}

std::optional<AllowPeers> StoredRuns::heed(const Serve& message) {
  if (!runs_.contains(message.run)) {
    return std::nullopt;
  }
  Readers& readers = readers_[message.run];
  readers.heed(message);
  return AllowPeers{message.run, Epoch(0), {}, readers.all()};
}

bool StoredRuns::being_read(const RunId& run, TimePoint now) const {
  const auto found = read_until_.find(run);
  return found != read_until_.end() && now < found->second;
}

void StoredRuns::forget(const RunId& run) {
  runs_.erase(run);
  readers_.erase(run);
  read_until_.erase(run);
}

void StoredRuns::keep_only(const RunId& run, const std::vector<Round>& rounds) {
  if (const auto held = runs_.find(run); held != runs_.end()) {
    std::erase_if(held->second.checkpoints,
                  [&](const StoredCheckpoint& old) { return std::find(rounds.begin(), rounds.end(), old.round) == rounds.end(); });
  }
}

std::vector<RunId> StoredRuns::runs() const {
  std::vector<RunId> ids;
  for (const auto& [id, run] : runs_) {
    ids.push_back(id);
  }
  return ids;
}

std::vector<HeldCheckpoint> StoredRuns::held(const RunId& run) const {
  std::vector<HeldCheckpoint> held;
  for (const StoredCheckpoint& checkpoint : checkpoints(run)) {
    held.push_back(HeldCheckpoint{checkpoint.round, checkpoint.digest, checkpoint.epoch, checkpoint.generation});
  }
  return held;
}

std::vector<HeldRun> StoredRuns::held_runs(const std::optional<RunId>& except, std::size_t most) const {
  std::vector<HeldRun> held_runs;
  for (const auto& [id, run] : runs_) {
    if (except == id || run.checkpoints.empty() || held_runs.size() >= most) {
      continue;
    }
    const StoredCheckpoint& newest = run.checkpoints.back();
    held_runs.push_back(
        HeldRun{id, newest.epoch, false, Round(0), Digest{}, held(id), newest.part, newest.position, newest.generation, newest.epoch});
  }
  return held_runs;
}

}  // namespace atl::agent
