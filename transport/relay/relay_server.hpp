// A relay: joins the outward connections of two islands that cannot dial each other, and moves what they say, which is sealed end to end
// (transport/bulk/bulk_session.hpp). It has no key of a run and opens nothing.
//
// A connection asks by SOCKS (socks_door.hpp) for a meeting with another island, and shows a pass of its coordinator's (relay_pass.hpp).
// Its answer comes once the other island has asked for it, too; then bytes go both ways (relay_flow.hpp). Or it asks to be told the other
// island's address, so that the two dial each other through their routers (hole_words.hpp). Whoever has shown no pass yet is
// bounded in number and in time (connection_book.hpp); islands are bounded by relay_book.hpp, and by a rate for what each sends and one for
// all together. A pair in which one direction has moved nothing for `idle` is closed: bulk links say something every two seconds.
// Cost: two descriptors of sockets and four of pipes a pair; 256 KiB of the kernel's memory a direction at most.
// Threads: `run` on one; `figures` from any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/relay/relay_book.hpp"

namespace atl {

struct RelaySettings {
  std::string bind;  // "tcp://*:4402"
  Bytes secret;
  RelayLimits limits;
  double bits_per_second = 0;               // of all; 0: as fast as it goes
  double bits_per_second_of_an_island = 0;  // that it sends; 0: as fast as it goes
  std::size_t strangers = 256;
  Duration stranger_patience = std::chrono::seconds(10);
  Duration idle = std::chrono::seconds(90);
  bool carries = true;  // false: islands are told each other's address, and no data pass
};

struct RelayFigures {
  std::size_t islands = 0;
  std::size_t strangers = 0;  // connections that have shown no pass yet
  std::size_t waiting = 0;    // connections that wait for the other island's
  std::size_t pairs = 0;
  std::uint64_t joined = 0;  // pairs, since the start
  std::uint64_t refused = 0;
  std::uint64_t bytes = 0;
  std::uint64_t introduced = 0;                               // pairs that were told each other's address
  std::vector<std::pair<IslandId, std::uint64_t>> sent = {};  // by islands that are there
};

class RelayServer {
 public:
  // Listens at once; for islands that punch holes at the next port as well, if that is free. Errors: invalid_argument; conflict if the port
  // is in use; io.
  static Result<std::unique_ptr<RelayServer>> open(RelaySettings settings);
  virtual ~RelayServer() = default;
  RelayServer() = default;
  RelayServer(const RelayServer&) = delete;
  RelayServer& operator=(const RelayServer&) = delete;

  // Where it listens, with the real port.
  [[nodiscard]] virtual std::string bound_address() const = 0;
  // Until `stop_fd` is readable; all connections are closed then. Errors: io.
  virtual Status run(int stop_fd) = 0;
  // Not older than a second.
  [[nodiscard]] virtual RelayFigures figures() const = 0;
};

}  // namespace atl
