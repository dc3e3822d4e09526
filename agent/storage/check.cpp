#include "agent/storage/check.hpp"

#include <string>
#include <system_error>

#include "agent/storage/checkpoint.hpp"
#include "agent/storage/content_shelf.hpp"
#include "agent/storage/membership_file.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/identity.hpp"

namespace atl::agent {
namespace {

namespace fs = std::filesystem;

void note(AgentCheck& check, const Status& sound) {
  if (!sound) {
    check.faults.push_back(sound.error());
  }
}

// A file that is named by the SHA-256 of its bytes.
Status verify_named(const DiskPath& path, AgentCheck& check) {
  ATOLL_ASSIGN(const Digest named, digest_from_hex(path.name()));
  ATOLL_ASSIGN(const FileFacts facts, facts_of(path));
  ++check.files;
  check.bytes += facts.bytes;
  return facts.sha256 == named ? Status() : Error{Code::corrupt, path.text() + ": its SHA-256 is not the one that is its name"};
}

void check_named_files(const DiskPath& folder, AgentCheck& check) {
  for (const DiskEntry& entry : folder.list().value_or({})) {
    if (entry.kind == EntryKind::file && digest_from_hex(entry.name)) {
      note(check, verify_named(folder / entry.name, check));
    }
  }
}

void check_run(const DiskPath& folder, AgentCheck& check) {
  ++check.runs;
  CheckpointStore::Faults found = CheckpointStore::look_at(folder / "checkpoints").faults();
  check.checkpoints += found.checkpoints;
  check.bytes += found.bytes;
  check.faults.insert(check.faults.end(), found.found.begin(), found.found.end());
  check_named_files(folder / "content", check);
}

// An island that has not joined has no place yet.
Status check_place(const fs::path& state) {
  const Result<CoordinatorPlace> place = read_coordinator(state);
  return place || place.error().code == Code::not_found ? Status() : Status(place.error());
}

}  // namespace

Result<AgentCheck> check_state(const fs::path& state) {
  const DiskPath key = on_this_machine(state / "keys" / "island");
  if (!key.exists()) {
    return Error{Code::not_found, "there is no agent's state in " + state.string() + "; give its state directory with --state"};
  }
  ATOLL_ASSIGN(const StateLock lock, StateLock::take(state));
  AgentCheck check;
  const Result<KeyPair> keys = read_key_file(state / "keys" / "island");
  note(check, keys ? Status() : Status(keys.error()));
  note(check, check_place(state));
  const DiskPath runs = on_this_machine(state / "runs");
  if (runs.exists()) {
    ATOLL_ASSIGN(const std::vector<DiskEntry> entries, runs.list());
    for (const DiskEntry& entry : entries) {
      if (entry.kind == EntryKind::folder) {
        check_run(runs / entry.name, check);
      }
    }
  }
  check_named_files(on_this_machine(state / "cache"), check);
  return check;
}

}  // namespace atl::agent
