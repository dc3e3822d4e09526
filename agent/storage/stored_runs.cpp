#include "agent/storage/stored_runs.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "agent/storage/checkpoint.hpp"
#include "agent/storage/content_shelf.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {

namespace {

constexpr std::string_view kDoomed = ".removed";

bool is_doomed(const std::string& name) { return name.starts_with(".") && name.ends_with(kDoomed); }

}  // namespace

std::string doomed_name(const RunId& run) { return "." + run.text + std::string(kDoomed); }

std::uint64_t bytes_below(const DiskPath& folder) {
  std::uint64_t bytes = 0;
  for (const DiskEntry& entry : folder.list().value_or({})) {
    bytes += entry.kind == EntryKind::folder ? bytes_below(folder / entry.name) : entry.bytes;
  }
  return bytes;
}

void remove_doomed(const DiskPath& runs) {
  for (const DiskEntry& entry : runs.list().value_or({})) {
    if (is_doomed(entry.name)) {
      if (const Status removed = (runs / entry.name).remove(); !removed) {
        log_warning(removed.error().why);
      }
    }
  }
}

std::vector<StoredRun> stored_runs(const DiskPath& folder) {
  std::vector<StoredRun> runs;
  for (const DiskEntry& entry : folder.list().value_or({})) {
    if (is_doomed(entry.name)) {
      continue;
    }
    const DiskPath path = folder / entry.name;
    if (!(path / "checkpoints").exists()) {
      if (!stored_content(path).empty()) {
        runs.push_back({RunId(entry.name), {}});  // of a run of phases
      }
      continue;
    }
    Result<CheckpointStore> store = CheckpointStore::open(path / "checkpoints");
    if (!store) {
      log_warning("the checkpoints of run " + entry.name + " cannot be read: " + store.error().why);
      continue;
    }
    (void)store->newest_good();  // refuses those that do not verify
    StoredRun run;
    run.run = RunId(entry.name);
    for (const CheckpointMeta& meta : store->list()) {
      if (meta.outer() != nullptr && meta.run == run.run) {
        run.checkpoints.push_back({meta.round, meta.digest, meta.epoch, meta.has_trainer_state(), meta.step, meta.position,
                                   meta.outer()->sha256, meta.outer()->bytes, meta.part, meta.generation});
      }
    }
    std::reverse(run.checkpoints.begin(), run.checkpoints.end());
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace atl::agent
