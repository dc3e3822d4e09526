// What arrivals, silence and departures of islands mean for the runs.
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "coordinator/core/services.hpp"

namespace atl::coordinator {

class Presence : protected Services {
 public:
  explicit Presence(Core::State& core) : Services(core) {}

  // The newest time in which nobody was heard, for longer than a heartbeat takes.
  [[nodiscard]] const std::pair<TimePoint, TimePoint>& deaf() const { return deaf_; }
  // A message of an island, from this instance of its agent.
  void hear(const IslandId& id, std::uint64_t boot, const Message& message);
  void on_heartbeat(const IslandId& island, const Heartbeat& heartbeat);
  // Whose silence is too long, or whose successor has waited for it. At each look at all runs.
  void watch();
  // It is away.
  void lose(const IslandId& island, const std::string& cause);
  // Nobody serves this key any more.
  void withdraw_reader(const std::string& reader_key);

 private:
  void heed_generation(const IslandId& id, const Generation& met);
  void announce_move(Run& run, const IslandId& id);
  void greet_in_runs(const IslandId& id, const std::optional<Arrival>& arrival);
  void watch_idle_members(Run& run);
  void watch_unheard_members(Run& run);

  TimePoint heard_anybody_;
  std::pair<TimePoint, TimePoint> deaf_;
};

}  // namespace atl::coordinator
