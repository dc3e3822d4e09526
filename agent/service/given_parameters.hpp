// [model].from on an island: the file or folder of the parameters that a run begins with, if this island has it.
//
// A path has to be allowed by the island's owner, as data have (data_access.hpp), and so has a commit of a model of the Hugging Face hub,
// in the cache of the agent's user: no agent fetches one. An address is downloaded and cached; another run's checkpoint lies in this
// agent's own folder, or not. An island without them begins as a joiner does, with a copy of its peers' state. Threads: plain; reads the
// whole file, so it is called on a thread of its own.
#pragma once

#include <filesystem>
#include <string>
#include <variant>

#include "agent/service/data_access.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/disk.hpp"

namespace atl {

// Why this island has them not.
struct Lacking {
  std::string why;
};

// Where huggingface_hub keeps this revision of a model, by HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME, whether it is there or not.
std::filesystem::path hub_snapshot(const HubModel& model);

// The file or folder with the digest that the specification names, or why it is not here. `runs`: STATE/runs.
// Errors: invalid_argument if the specification is not pinned, or the file at that path has another digest; io.
Result<std::variant<std::filesystem::path, Lacking>> resolve_parameters(const RunSpec& spec, const DataPermissions& permissions,
                                                                        const Downloader& download, const DiskPath& runs);

}  // namespace atl
