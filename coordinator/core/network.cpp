#include "coordinator/core/network.hpp"

#include <algorithm>

namespace atl::coordinator {
namespace {

Settings settings_with(Duration heartbeat, int heartbeats_to_death) {
  Settings settings;
  settings.heartbeat = heartbeat;
  settings.dead_after = heartbeat * heartbeats_to_death;
  settings.stall_after = settings.dead_after * 4;
  settings.resend = heartbeat * 2;
  settings.probe = heartbeat * 2;
  settings.accusation_grace = settings.dead_after / 5;
  settings.join_hold = std::max(settings.join_hold, settings.dead_after * 2);
  settings.restore_grace = std::max(settings.restore_grace, settings.dead_after * 2);
  return settings;
}

}  // namespace

Result<Settings> settings_for_network(std::string_view network) {
  if (network == "local") {
    return settings_with(std::chrono::milliseconds(250), 5);
  }
  if (network == "lan") {
    return settings_with(std::chrono::seconds(1), 5);
  }
  if (network == "wan") {
    return settings_with(std::chrono::seconds(2), 10);
  }
  return Error{Code::invalid_argument,
               "there is no network preset '" + std::string(network.substr(0, 40)) + "'; the presets are local, lan and wan"};
}

}  // namespace atl::coordinator
