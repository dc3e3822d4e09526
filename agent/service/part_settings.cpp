#include "agent/service/part_settings.hpp"

#include <memory>
#include <utility>

#include "agent/faults/rehearsed_links.hpp"
#include "agent/service/joining.hpp"
#include "agent/service/surroundings.hpp"
#include "agent/storage/membership_file.hpp"
#include "strategies/codec.hpp"
#include "transport/base/address.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/random_number.hpp"

namespace atl::agent {

Result<ZmqBulkSettings> settings_of_link(const AgentOptions& options, const KeyPair& keys, const std::string& coordinator_address) {
  ZmqBulkSettings bulk;
  bulk.island = island_of(keys.public_key);
  bulk.public_key = keys.public_key;
  bulk.secret_key = keys.secret_key;
  bulk.insecure = options.insecure;
  bulk.hole_punching = options.hole_punching;
  bulk.interfaces = options.interfaces;
  bulk.link_memory_bytes = options.link_memory_bytes;
  ATOLL_ASSIGN(const Address coordinator, parse_address(coordinator_address));
  const bool here = coordinator.is_loopback() && options.advertise.empty();
  bulk.bind = !options.bind.empty() ? options.bind : here || options.insecure ? "tcp://127.0.0.1:*" : "";
  return bulk;
}

Result<EngineSettings> settings_of_engine(const AgentOptions& options, const IslandId& island) {
  EngineSettings settings;
  settings.self = island;
  settings.spans = std::make_shared<SpanLog>();
  settings.probe_paths = true;
  settings.link_memory_bytes = options.link_memory_bytes;
  ATOLL_ASSIGN(settings.runs, confined_to(options.state / "runs"));
  settings.check_arena = options.check_arena;
  settings.make_arena = shared_arenas(island, options.state / "runs");
  settings.rehearsal = options.faults.empty() ? nullptr : std::make_shared<Rehearsal>(options.faults);
  return settings;
}

Result<SessionSettings> settings_of_sessions(const AgentOptions& options, const EngineSettings& engine) {
  SessionSettings session;
  session.spans = engine.spans;
  session.runs = engine.runs;
  session.memory_limit_bytes = options.trainer_memory_bytes;
  session.hang_after = options.trainer_hang_after;
  session.program = options.program;
  session.trainers = options.trainers;
  if (session.program.empty()) {
    ATOLL_ASSIGN(session.program, own_program());
  }
  return session;
}

Identity identity_of(const AgentOptions& options, const std::string& coordinator_key) {
  Identity identity;
  identity.version = options.version;
  identity.boot = random_number();
  identity.platform = platform_text();
  identity.codec_version = kCodecVersion;
  identity.uplink_bits_per_second = options.uplink.rate_at(local_week_time());
  identity.link_memory_bytes = options.link_memory_bytes;
  if (const Result<CoordinatorPlace> place = read_coordinator(options.state); place && place->key == coordinator_key) {
    identity.generation = place->generation;
  }
  for (const auto& [set, path] : options.data.sets) {
    identity.data_sets.push_back(set);
  }
  for (const auto& [trainer, program] : options.trainers) {
    identity.trainers.push_back(trainer);
  }
  identity.copies = options.copies;
  return identity;
}

}  // namespace atl::agent
