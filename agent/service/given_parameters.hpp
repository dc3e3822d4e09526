// [model].from on an island: the file of the parameters that a run begins with, if this island has it.
//
// A path has to be allowed by the island's owner, as data have (data_access.hpp); an address is downloaded and cached; another run's
// checkpoint lies in this agent's own folder, or not. An island without the file begins as a joiner does, with a copy of its peers' state.
// Threads: plain; reads the whole file, so it is called on a thread of its own.
#pragma once

#include <filesystem>
#include <string>
#include <variant>

#include "agent/service/data_access.hpp"
#include "transport/base/disk.hpp"

namespace atl {

// Why this island has them not.
struct Lacking {
  std::string why;
};

// The file with the digest that the specification names, or why it is not here. `runs`: STATE/runs.
// Errors: invalid_argument if the specification is not pinned, or the file at that path has another digest; io.
Result<std::variant<std::filesystem::path, Lacking>> resolve_parameters(const RunSpec& spec, const DataPermissions& permissions,
                                                                        const Downloader& download, const DiskPath& runs);

}  // namespace atl
