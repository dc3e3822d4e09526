// What the owner of one island sees of the coordinator's documents: that island, how the others wait for it, and how fast the fastest is.
// Of other islands there is no name (but of those for which this one waited), no address, and no figure but their speed. Where words for
// people have one, as the reason why this island was away, "another, no. 2" and "an address" stand for it.
// Threads: pure.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace atl::coordinator {

// The document of all islands, with this one alone. Nothing: it is not there.
std::optional<nlohmann::json> islands_for_owner(const nlohmann::json& islands, const std::string& island);
// The document of a run. Nothing: the island has no part in it.
std::optional<nlohmann::json> status_for_owner(const nlohmann::json& status, const std::string& island);

}  // namespace atl::coordinator
