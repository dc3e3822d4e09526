// Runs that are over leave the disk.
#include <algorithm>
#include <optional>

#include "agent/engine/sync_engine_state.hpp"
#include "agent/storage/stored_runs.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace {

// How long ago the newest of its checkpoints was written; nothing: there is none, or the disk does not say.
std::optional<Duration> age_of_newest(const DiskPath& folder, TimePoint now) {
  TimePoint newest;
  for (const DiskEntry& entry : (folder / "checkpoints").list().value_or({})) {
    newest = std::max(newest, entry.written);
  }
  return newest == TimePoint() ? std::nullopt : std::optional(std::max(now - newest, Duration::zero()));
}

}  // namespace

// In one step the run is here no more; its bytes are given back beside what the engine does.
void SyncEngine::State::carry_out(const RemoveStored& order) {
  StoredRemoved answer{order.run, order.all, {}, std::nullopt};
  if (find(order.run) != nullptr) {
    answer.error = Error{Code::conflict, "it is open"};
  } else if (const std::optional<Duration> age = age_of_newest(settings.runs / order.run.text, now()); age && *age < order.least_age) {
    answer.error = Error{Code::conflict, order.why + ", says the coordinator; by this machine's clock its newest checkpoint was written " +
                                             human_duration(*age) + " ago"};
  } else if (order.all) {
    withdraw(order.run);
    if (const Status gone = remove_stored(order); !gone) {
      answer.error = gone.error();
    }
  } else {
    remove_older(order);
    return;
  }
  say(std::move(answer));
}

// Nobody reads it here any more.
void SyncEngine::State::withdraw(const RunId& run) {
  std::erase_if(content_fetches, [&](const auto& fetch) { return fetch.second.run == run; });
  link->store().forget(run);
  served.erase(run);
  content_received.erase(run);
  unopened.erase(run);
  if (audiences.erase(run) > 0) {
    set_peers();
  }
}

Status SyncEngine::State::remove_stored(const RemoveStored& order) const {
  const DiskPath folder = settings.runs / order.run.text;
  if (!folder.exists()) {
    return {};
  }
  const DiskPath doomed = settings.runs / doomed_name(order.run);
  ATOLL_TRY(doomed.remove());  // of a crash
  ATOLL_TRY(folder.rename_to(doomed));
  ATOLL_TRY(settings.runs.sync_folder());
  beside([doomed, order] {
    const std::uint64_t bytes = bytes_below(doomed);
    if (const Status removed = doomed.remove(); !removed) {
      log_warning("run " + order.run.text + ": " + removed.error().why + "; it is removed at the agent's next start");
    } else {
      log_info("run " + order.run.text + ": removed from this disk, " + human_bytes(bytes) + ": " + order.why);
    }
    return false;
  });
  return {};
}

// All but the newest checkpoint, and the newest good one; which that is only reading it shows, beside what the engine does.
void SyncEngine::State::remove_older(const RemoveStored& order) {
  auto work = std::make_shared<Pruning>();
  work->order = order;
  prunings.push_back(work);
  beside([work, folder = settings.runs / order.run.text] {
    const DiskPath checkpoints = folder / "checkpoints";
    if (checkpoints.exists()) {
      const std::uint64_t before = bytes_below(folder);
      if (Result<CheckpointStore> store = CheckpointStore::open(checkpoints)) {
        (void)store->newest_good();
        store->prune(1);
        log_info("run " + work->order.run.text + ": older checkpoints removed from this disk, " +
                 human_bytes(before - std::min(before, bytes_below(folder))) + ": " + work->order.why);
      } else {
        work->error = store.error();
      }
    }
    work->done = true;
    return false;
  });
}

void SyncEngine::State::settle_prunings() {
  while (!prunings.empty() && prunings.front()->done) {
    const std::shared_ptr<Pruning> work = prunings.front();
    prunings.pop_front();
    StoredRemoved answer{work->order.run, false, {}, work->error};
    const DiskPath folder = settings.runs / work->order.run.text / "checkpoints";
    if (!work->error && folder.exists() && find(work->order.run) == nullptr) {
      const CheckpointStore store = CheckpointStore::look_at(folder);
      const std::vector<CheckpointMeta> kept = store.list();
      for (const CheckpointMeta& meta : kept) {
        answer.left.push_back(meta.round);
      }
      serve_checkpoints(work->order.run, kept, folder);
    } else if (!work->error) {
      answer.error = Error{Code::conflict, "the run is open again"};
    }
    say(std::move(answer));
  }
}

}  // namespace atl::agent
