// The port at which the other islands reach this one: the same at every start, so that a firewall's rule stays good.
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "transport/base/result.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl::agent {

inline constexpr std::uint16_t kAgentPort = 4401;

// Opens the bulk link where `settings.bind` says. With no bind, on every interface: at the port of the last time (STATE/port), at first at
// 4401, and at any free one, with a warning that names it, if that is in use. The first port that was had is remembered. Errors: those of
// ZmqBulkLink::open.
Result<std::unique_ptr<ZmqBulkLink>> open_bulk_link(ZmqBulkSettings settings, const std::filesystem::path& state,
                                                    std::shared_ptr<BlobStore> blobs);

// At which address a router passes others on to that port, "" for none: kept for `doctor` (STATE/mapped) while an agent runs.
void remember_mapping(const std::filesystem::path& state, const std::string& address);
std::string remembered_mapping(const std::filesystem::path& state);

}  // namespace atl::agent
