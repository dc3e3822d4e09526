// Who waits at a relay for whom, who is joined with whom, and whether one more is served.
//
// Two islands meet where each has asked for the other: one connection of A for B and one of B for A become a pair, the oldest that waits
// first; those that punch among themselves. Limits: connections of one island and of all, and how many an island may open in ten seconds.
// An island that has had no connection for a while is gone. Sans-I/O. Cost: O(log n) a call, `sweep` O(n). Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/relay/relay_pass.hpp"

namespace atl {

struct RelayLimits {
  std::size_t connections = 4096;  // of all islands
  std::size_t connections_of_an_island = 256;
  std::size_t opened_in_a_window = 400;         // by an island, within kOpeningWindow
  Duration patience = std::chrono::minutes(1);  // that a connection waits for its peer's: it may ask again
};
inline constexpr Duration kOpeningWindow = std::chrono::seconds(10);
inline constexpr Duration kIslandGone = std::chrono::seconds(30);

class RelayBook {
 public:
  using Connection = std::uint64_t;

  explicit RelayBook(RelayLimits limits) : limits_(limits) {}

  struct Admission {
    std::optional<Connection> partner;  // joined with this one; nothing, and not refused: it waits
    std::string refused;                // why it is not served; empty: it is
    bool new_island = false;            // its first connection
  };
  // A connection that showed a pass.
  Admission admit(Connection connection, const MeetingRequest& request, TimePoint now);
  // It ended. Its partner is told apart: it ends by itself.
  void gone(Connection connection, TimePoint now);

  struct Sweep {
    std::vector<Connection> waited;  // for too long, and are out of the book
    std::vector<IslandId> left;      // islands without a connection for kIslandGone
  };
  Sweep sweep(TimePoint now);

  [[nodiscard]] std::size_t connections() const { return entries_.size(); }
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] std::size_t islands() const { return islands_.size(); }

 private:
  struct Entry {
    MeetingRequest request;
    TimePoint since;
    bool waits = true;
  };
  struct Island {
    std::size_t connections = 0;
    TimePoint last;  // when it had its last connection
    TimePoint window_from;
    std::size_t opened = 0;
  };
  void stop_waiting(Connection connection, Entry& entry);

  RelayLimits limits_;
  std::map<Connection, Entry> entries_;
  std::map<MeetingRequest, std::deque<Connection>> waiting_;
  std::map<IslandId, Island> islands_;
};

}  // namespace atl
