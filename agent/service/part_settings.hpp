// What an agent's parts are made with, from the options that its owner gave. Threads: pure, but for what they read from the system.
#pragma once

#include <string>

#include "agent/core/settings.hpp"
#include "agent/engine/sync_engine.hpp"
#include "agent/host/trainer_session.hpp"
#include "agent/service/driver.hpp"
#include "transport/identity/identity.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl::agent {

// Errors: invalid_argument for an address of the coordinator that is none.
Result<ZmqBulkSettings> settings_of_link(const AgentOptions& options, const KeyPair& keys, const std::string& coordinator_address);
// Errors: io.
Result<EngineSettings> settings_of_engine(const AgentOptions& options, const IslandId& island);
// What sessions with trainers need besides the island's name and the folder of its sockets. Errors: io.
Result<SessionSettings> settings_of_sessions(const AgentOptions& options, const EngineSettings& engine);
// As which the island introduces itself.
Identity identity_of(const AgentOptions& options, const std::string& coordinator_key);

}  // namespace atl::agent
