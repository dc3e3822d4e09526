// Fetching a file by URL into a cache, by libcurl: what arrives is exactly what the digest says, or nothing.
//
// CACHE/<sha256> is a whole, verified file; CACHE/<sha256>.partial is one that is being fetched or was interrupted, and is resumed with a
// Range request. Whatever the server sends, a file is renamed to its final name only after its digest is right.
// Several processes may share a cache: one fetches, the others wait for it.
// Threads: any; each call is on its own. It blocks until the file is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct FetchProgress {
  std::uint64_t received_bytes = 0;  // of the file, those of earlier calls included
  std::uint64_t total_bytes = 0;     // 0: not known
};

struct FetchSettings {
  std::string url;  // https
  Digest sha256;
  std::filesystem::path cache;  // a folder; made if missing
  std::uint64_t max_bytes = 1ULL << 40;
  std::uint64_t leave_free_bytes = 64'000'000;     // to others, on the cache's disk
  bool allow_loopback_http = false;                // take http:// too, from this machine only
  unsigned attempts = 5;                           // in a row without a mebibyte gained
  Duration retry_first = std::chrono::seconds(1);  // doubles with each attempt in a row
  Duration connect_timeout = std::chrono::seconds(15);
  Duration stall_timeout = std::chrono::seconds(30);   // slower than kLeastRate
  std::function<bool(const FetchProgress&)> progress;  // called about once a second and more; false cancels
};

// The verified file's path. At most five redirects, never to a less safe protocol.
// Errors: invalid_argument (a URL or digest that cannot be; a file over the bound, of which nothing is kept), not_found, unauthorized (the
// server says so), unavailable (after all attempts; the partial file is kept for the next call), corrupt naming both digests (the partial
// file is removed), io (a full disk; kept, unless the server says no length, as one that never ends does), cancelled (kept). A file whose
// length says that it does not fit the disk is refused before its first byte. Cost: hashes a file that is already there once more before it
// is returned.
Result<std::filesystem::path> fetch(const FetchSettings& settings);

}  // namespace atl
