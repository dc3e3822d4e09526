// What the coordinator's islands show at its relays: a pass for each island and relay, made anew before it runs out.
//
// After the coordinator's own relays and those whose tickets it has come those of islands (`agent --relay`): the first kMostIslandRelays
// of them, in the order in which they came, so that nobody leaves one for another that has come just now. One whose island is not heard any
// more stays for kRelayKept, for it may be the coordinator that cannot hear it while others exchange there; one whose island is gone for
// good goes at once. Sans-I/O. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"
#include "transport/relay/relay_ticket.hpp"

namespace atl::coordinator {

inline constexpr std::size_t kMostIslandRelays = 8;
inline constexpr Duration kRelayKept = std::chrono::minutes(1);
inline constexpr Duration kTellRelaysAgain = std::chrono::seconds(5);  // however often they change

class RelayPasses {
 public:
  // In the order in which islands try them.
  explicit RelayPasses(std::vector<RelayTicket> tickets) : tickets_(std::move(tickets)) {}

  // What to say to an island that has become welcome; nothing: there are no relays.
  std::optional<Relays> welcome(const IslandId& island, TimePoint now);
  // What to say to an island that is heard; nothing: its passes are good for long, or it is not welcome.
  std::optional<Relays> renewed(const IslandId& island, TimePoint now);
  // Passes for one that asks with the island's key beside the island itself, which gets its own all the same. None for its own relay.
  [[nodiscard]] Relays made_for(const IslandId& island, TimePoint now) const;

  // An island that people call `name` says that it has a relay. `seen_host`: where its connection comes from; others dial it there where
  // the address that it gives means something in its own network only.
  void offer(const IslandId& island, const std::string& name, const OwnRelay& relay, const std::string& seen_host);
  enum class Presence { here, away, gone };
  // Whether other relays of islands are there than the islands were told of: they are all to be told again.
  bool look_at_islands(const std::function<Presence(const IslandId&)>& presence_of, TimePoint now);
  // What to tell then; nothing: the island is not welcome.
  std::optional<Relays> told_again(const IslandId& island, TimePoint now);
  // When to look again at the latest; empty: no island has a relay.
  [[nodiscard]] std::optional<TimePoint> next_look() const;

 private:
  struct OfIsland {
    IslandId island;
    RelayTicket ticket;
    TimePoint here{};  // its island was, last
  };
  using OfIslands = std::vector<std::pair<IslandId, RelayTicket>>;
  [[nodiscard]] OfIslands of_islands() const;

  std::vector<RelayTicket> tickets_;
  std::map<IslandId, TimePoint> made_;
  std::vector<OfIsland> own_;
  OfIslands told_;
  TimePoint looked_{};
  TimePoint told_at_{};
};

}  // namespace atl::coordinator
