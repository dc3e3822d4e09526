// The inside of the simulated network that its links share: the event queue, the paths, and who is there.
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/rng.hpp"
#include "transport/simulated/simulated_network.hpp"

namespace atl {

class SimulatedBulkLink;
class SimulatedControlServer;
class SimulatedControlClient;

struct SimulatedNetwork::State {
  using Path = std::pair<std::string, std::string>;
  using Event = std::function<void()>;

  // A frame in its sender's queue, on a path of limited rate.
  struct Queued {
    TimePoint departs;
    TimePoint arrives;
    bool ordered = false;
    unsigned moves = 0;  // how often both changed with the path's rate
    Event event;
  };
  struct Traffic {
    TimePoint free_at;       // of the sender's queue
    TimePoint last_arrival;  // of ordered frames
    std::deque<std::shared_ptr<Queued>> queue;
    std::vector<Event> past;  // a ring of deliveries, to be replayed
    std::size_t next_past = 0;
  };

  State(std::uint64_t seed, TimePoint start) : now(start), rng(seed) {}

  TimePoint now;
  Rng rng;
  std::uint64_t sequence = 0;
  std::map<std::pair<TimePoint, std::uint64_t>, Event> events;
  PathConditions defaults;
  std::map<Path, PathConditions> conditions;
  std::set<Path> cuts;
  std::map<Path, Traffic> traffic;
  std::uint64_t next_serial = 1;  // of links and connections
  std::map<std::string, SimulatedBulkLink*> bulk;
  bool addresses_needed = false;
  std::map<std::string, std::string> reached_at;  // hosts that one address alone leads to; empty: none does
  SimulatedControlServer* server = nullptr;
  std::map<std::uint64_t, SimulatedControlClient*> clients;  // by serial

  void at(TimePoint time, Event event);
  [[nodiscard]] const PathConditions& path(const Path& path) const;
  [[nodiscard]] bool open(const std::string& a, const std::string& b) const { return !cuts.contains({a, b}) && !cuts.contains({b, a}); }
  // Sends one frame: `deliver` runs on arrival, not at all, or several times. Returns when its last byte leaves the sender.
  // ordered: frames that were not drawn for reordering arrive in the order they were sent.
  TimePoint transmit(const Path& path, std::uint64_t bytes, bool ordered, const Event& deliver);
  // Runs the frame's event when it arrives, unless it is moved before.
  void arrive(const std::shared_ptr<Queued>& frame);
  // Changes conditions; what waits in a sender's queue leaves at the rate that its path has then.
  void change_conditions(const std::function<void()>& change);
  // Links, cuts or peers changed: connections are made or broken.
  void reconsider();
};

std::unique_ptr<BulkLink> make_simulated_bulk_link(SimulatedNetwork::State& network, const IslandId& island,
                                                   std::shared_ptr<BlobStore> store);
std::unique_ptr<ControlServer> make_simulated_control_server(SimulatedNetwork::State& network);
std::unique_ptr<ControlClient> make_simulated_control_client(SimulatedNetwork::State& network, const std::string& host,
                                                             const std::string& public_key);
// Reconsiders what concerns the bulk links, or the control links.
void reconsider_bulk_links(SimulatedNetwork::State& network);
void reconsider_control_links(SimulatedNetwork::State& network);
// After rates changed: when the bulk links' pieces leave is not known any more.
void forget_departures(SimulatedNetwork::State& network);

}  // namespace atl
