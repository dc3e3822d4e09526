// A network on virtual time, for both planes: whole clusters in one thread, thousands of seeds a minute.
//
// Hosts are named by text (an island's id; kCoordinatorHost). Each direction between two hosts is a *path* with its own latency, jitter,
// bandwidth, loss, duplication, reordering, replay of packets delivered long ago, and it can be cut alone. Everything is drawn from the
// seed and events run in the order of (time, insertion): one seed, one history.
// A crash is the end of a host's link objects: what is in flight to them is lost, and a link made later is another one. A restart
// is making them anew.
//   bulk     frames are lost, repeated and delayed one by one. A connection is there a round trip after both ends exist and name each
//            other, and ends with either of them or kDetection after a path was cut. Where `dial_by_address` was called, one of the two
//            must have an address of the other, as on real networks.
//   control  as the interface says, and in addition messages may be lost, repeated, late or replayed under the present connection, as
//            message.hpp allows. A connection breaks when its server or a path ends, which the client notices after
//            kDetection, and is made again when both paths work.
// Time moves only in advance_to. The caller then lets every endpoint receive, and what they send departs at that instant.
// Threads: one. The network outlives its links.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/bulk_link.hpp"
#include "transport/control/control_link.hpp"

namespace atl {

inline constexpr const char* kCoordinatorHost = "coordinator";

// One direction between two hosts.
struct PathConditions {
  Duration latency = std::chrono::milliseconds(20);
  Duration jitter{};            // uniform, on top
  double bytes_per_second = 0;  // 0: unlimited
  double loss = 0;              // probability a frame
  double duplication = 0;
  double reordering = 0;  // probability of an extra delay of up to `reordering_delay`
  Duration reordering_delay = std::chrono::milliseconds(500);
  double replay = 0;  // probability, a frame, that some earlier frame of this path is delivered once more
};

class SimulatedNetwork {
 public:
  static constexpr Duration kDetection = std::chrono::seconds(3);  // until a client notices a broken connection
  static constexpr Duration kRedial = std::chrono::milliseconds(500);

  explicit SimulatedNetwork(std::uint64_t seed, TimePoint start = from_unix_ms(1'700'000'000'000));
  ~SimulatedNetwork();
  SimulatedNetwork(const SimulatedNetwork&) = delete;
  SimulatedNetwork& operator=(const SimulatedNetwork&) = delete;

  [[nodiscard]] TimePoint now() const;
  // When something happens next; nothing if the network is at rest.
  [[nodiscard]] std::optional<TimePoint> next_event() const;
  // Runs everything due by then.
  void advance_to(TimePoint time);

  // For all paths without conditions of their own.
  void set_conditions(const PathConditions& conditions);
  void set_path(const std::string& from, const std::string& to, const PathConditions& conditions);
  // Drops all conditions of single paths.
  void clear_paths();
  // Nothing passes from one to the other (the way back is another path) until healed.
  void cut(const std::string& from, const std::string& to);
  void heal(const std::string& from, const std::string& to);
  void heal_all();

  // Before the first bulk link.
  void dial_by_address();
  // From now on this address alone leads to the host, and the empty one stands for none: it is behind a router. Before, any one does.
  void reach_at(const std::string& host, const std::string& address);

  // At most one bulk link an island at a time, and one server.
  std::unique_ptr<BulkLink> bulk_link(const IslandId& island, std::shared_ptr<BlobStore> store);
  std::unique_ptr<ControlServer> control_server();
  std::unique_ptr<ControlClient> control_client(const std::string& host, const std::string& public_key);

  struct State;  // for the links

 private:
  std::unique_ptr<State> state_;
};

}  // namespace atl
