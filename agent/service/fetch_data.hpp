// The data of a run that are behind an address.
// Threads: any; it waits for the network, and the log tells how far it is.
#pragma once

#include <filesystem>
#include <string>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl::agent {

// The file in the cache that the address's content is in, fetched if it is not there. `loopback_http`: of this machine plain http will do.
// Errors: corrupt naming both digests; those of fetch().
Result<std::filesystem::path> fetch_data(const std::string& url, const std::string& sha256, const std::filesystem::path& cache,
                                         bool loopback_http, const RunId& run);

}  // namespace atl::agent
