#include "agent/storage/content_shelf.hpp"

#include <cstring>
#include <system_error>

namespace atl {
namespace fs = std::filesystem;

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

fs::path content_path(const fs::path& run_folder, const Digest& digest) { return run_folder / "content" / to_hex(digest); }
fs::path incoming_path(const fs::path& run_folder, const Digest& digest) { return run_folder / "content" / ".incoming" / to_hex(digest); }

std::vector<Content> stored_content(const fs::path& run_folder) {
  std::vector<Content> all;
  std::error_code failure;
  for (const fs::directory_entry& entry : fs::directory_iterator(run_folder / "content", failure)) {
    const Result<Digest> digest = digest_from_hex(entry.path().filename().string());
    if (digest && entry.is_regular_file(failure)) {
      all.push_back(Content{*digest, entry.file_size(failure), {}});
    }
  }
  return all;
}

Result<Content> adopt_content(const fs::path& run_folder, const fs::path& path) {
  ATOLL_ASSIGN(const FileFacts facts, facts_of(path));
  ATOLL_TRY(sync_path(path));
  ATOLL_TRY(make_folders(run_folder / "content"));
  ATOLL_TRY(rename_durably(path, content_path(run_folder, facts.sha256)));
  return Content{facts.sha256, facts.bytes, {}};
}

}  // namespace atl
