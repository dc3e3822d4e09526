// A model of the Hugging Face hub, in the cache of this machine's user.
//
// The user's own huggingface_hub fetches it, so HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE, HF_TOKEN and the rest mean what they mean elsewhere.
// Threads: the calling one, which waits for it.
#pragma once

#include <filesystem>

#include "cli/line/command_line.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

inline constexpr Duration kHubPatience = std::chrono::hours(12);  // a connection that hangs huggingface_hub ends by itself

// The folder of the revision's newest commit, which is its name: fetched as far as it is not there. Python is ATOLL_PYTHON, else python3.
// Errors: not_found where there is no Python, or no huggingface_hub for it; unavailable in huggingface_hub's words; timeout.
Result<std::filesystem::path> fetch_hub_model(const HubModel& model, const Environment& environment, Duration patience = kHubPatience);

}  // namespace atl
