// What an island keeps of a run of phases: files named by the SHA-256 of their bytes, in RUN/content/.
//
//   content/HEX            complete; written or fetched under another name, synced, renamed
//   content/.incoming/…    being fetched; resumed after a crash
// Threads: one at a time.
#pragma once

#include <string>
#include <vector>

#include "agent/storage/durable_file.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/bulk/piece.hpp"
#include "transport/control/message.hpp"

namespace atl {

// Its name on the bulk link.
BlobId content_blob(const RunId& run, const Digest& digest);
// The path of a digest below a run's folder.
DiskPath content_path(const DiskPath& run_folder, const Digest& digest);
// Where it is fetched to first.
DiskPath incoming_path(const DiskPath& run_folder, const Digest& digest);

// What lies complete in a run's folder. No folder is no content.
std::vector<Content> stored_content(const DiskPath& run_folder);
// Hashes a file, syncs it and gives it its place; the file itself is gone from `path` then. Errors: not_found, io.
Result<Content> adopt_content(const DiskPath& run_folder, const DiskPath& path);

}  // namespace atl
