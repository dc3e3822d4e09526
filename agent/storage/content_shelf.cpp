#include "agent/storage/content_shelf.hpp"

#include <cstring>

namespace atl {

BlobId content_blob(const RunId& run, const Digest& digest) {
  BlobId blob;
  blob.run = run;
  blob.kind = BlobKind::content;
  std::memcpy(&blob.epoch.value, digest.bytes.data(), sizeof blob.epoch.value);
  std::memcpy(&blob.round.value, digest.bytes.data() + 8, sizeof blob.round.value);
  std::memcpy(&blob.attempt.value, digest.bytes.data() + 16, sizeof blob.attempt.value);
  std::memcpy(&blob.part, digest.bytes.data() + 20, sizeof blob.part);
  return blob;
}

DiskPath content_path(const DiskPath& run_folder, const Digest& digest) { return run_folder / "content" / to_hex(digest); }
DiskPath incoming_path(const DiskPath& run_folder, const Digest& digest) { return run_folder / "content" / ".incoming" / to_hex(digest); }

std::vector<Content> stored_content(const DiskPath& run_folder) {
  std::vector<Content> all;
  for (const DiskEntry& entry : (run_folder / "content").list().value_or({})) {
    const Result<Digest> digest = digest_from_hex(entry.name);
    if (digest && entry.kind == EntryKind::file) {
      all.push_back(Content{*digest, entry.bytes, {}});
    }
  }
  return all;
}

Result<Content> adopt_content(const DiskPath& run_folder, const DiskPath& path) {
  ATOLL_ASSIGN(const FileFacts facts, facts_of(path));
  ATOLL_TRY(sync_file(path));
  ATOLL_TRY(make_folders_durably(run_folder / "content"));
  ATOLL_TRY(rename_durably(path, content_path(run_folder, facts.sha256)));
  return Content{facts.sha256, facts.bytes, {}};
}

}  // namespace atl
