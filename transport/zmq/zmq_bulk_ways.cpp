// By which way a peer is reached: directly, or over a relay where neither side can dial the other.
//
// A relay joins an outward connection of each of the two (transport/relay), so both have to come to it, and to the same one. Both see that
// there is no direct connection, and wait at the first relay a moment later; where nothing comes of that, at the next one as well. The
// first relay at which they meet stays, those after it are given up. A direct connection that comes later ends the relayed ones.
// Of the two the one with the smaller id dials: it says hello, and it decides over how many connections they speak. The other one has a
// connection more at the relay than are in use, for the next.
// A relay is a stranger: where sessions over it are spoilt or fall silent again and again, another one is taken for a while.
#include <algorithm>
#include <climits>

#include "transport/base/log.hpp"
#include "transport/zmq/zmq_bulk_io.hpp"

namespace atl {
namespace {

constexpr Duration kDirectPatience = std::chrono::seconds(1);  // without a direct connection, before the first relay is tried
constexpr Duration kRelayPatience = std::chrono::seconds(5);   // before the next one is tried, too
constexpr Duration kDirectStands = std::chrono::seconds(2);    // a direct connection, before relayed ones are given up
constexpr unsigned kTroubles = 3;                              // so often, each soon after the one before,
constexpr Duration kTroublesWithin = std::chrono::minutes(2);
constexpr Duration kShunned = std::chrono::minutes(5);  // and a relay is left alone for so long

}  // namespace

void ZmqBulkIo::set_relays(std::vector<RelayOffer> relays) {
  const auto same = [](const RelayOffer& a, const RelayOffer& b) { return a.name == b.name && a.address == b.address; };
  if (!std::ranges::equal(relays, relays_, same)) {
    for (auto& [island, peer] : peers_) {
      close_dealers(peer, 1, UINT_MAX);
      peer.relays = 0;
      peer.troubles.clear();
    }
  }
  relays_ = std::move(relays);
}

void ZmqBulkIo::look_at_ways(TimePoint present) {
  for (auto& [island, peer] : peers_) {
    look_at_way(island, peer, present);
  }
}

void ZmqBulkIo::look_at_way(const IslandId& island, Peer& peer, TimePoint present) {
  if (!peer.best.empty() && way_of(peer) == 0) {
    peer.apart_since.reset();
    peer.direct_since = peer.direct_since.value_or(present);
    if (peer.relays > 0 && present - *peer.direct_since >= kDirectStands) {
      close_dealers(peer, 1, UINT_MAX);
      peer.relays = 0;
    }
    return;
  }
  peer.direct_since.reset();
  peer.apart_since = peer.apart_since.value_or(present);
  const unsigned met = way_of(peer);
  if (met > 0 && met < peer.relays) {
    close_dealers(peer, met + 1, UINT_MAX);
    peer.relays = met;
  } else if (met == 0 && peer.relays < relays_.size() && present - *peer.apart_since >= kDirectPatience + peer.relays * kRelayPatience) {
    ++peer.relays;
  }
  wait_at_relays(island, peer);
}

void ZmqBulkIo::wait_at_relays(const IslandId& island, Peer& peer) {
  for (unsigned way = 1; way <= peer.relays; ++way) {
    if (is_shunned(peer, way, now())) {
      close_dealers(peer, way, way);
      continue;
    }
    std::size_t there = 0;
    std::size_t waiting = 0;
    for (const auto& dealer : peer.dealers) {
      const bool waits = dealer->way == way && dealer->session == 0;
      there += dealer->way == way ? 1 : 0;
      waiting += waits ? 1 : 0;
      if (waits && dealer->pass != relays_.at(way - 1).pass) {
        redial(*dealer);
      }
    }
    if (there == 0 || (accepts_from(island) && waiting == 0 && there < kMostStreams)) {
      add_dealer(island, peer, way);
    }
  }
}

bool ZmqBulkIo::is_shunned(const Peer& peer, unsigned way, TimePoint present) const {
  const auto trouble = peer.troubles.find(way);
  return trouble != peer.troubles.end() && trouble->second.times >= kTroubles && present - trouble->second.newest < kShunned;
}

// `way` of a session that neither side ended; a direct one is no relay's. The relay's connections are closed with the next tick: this may
// be said while one of them is read.
void ZmqBulkIo::blame_relay(const IslandId& island, unsigned way, const std::string& why) {
  const auto peer = peers_.find(island);
  if (way == 0 || peer == peers_.end()) {
    return;
  }
  Peer::Trouble& trouble = peer->second.troubles[way];
  const TimePoint present = now();
  trouble.times = present - trouble.newest > kTroublesWithin ? 1 : trouble.times + 1;
  trouble.newest = present;
  if (trouble.times == kTroubles) {
    log_warning("bulk link: relay " + relays_.at(way - 1).name + " is left alone for " + human_duration(kShunned) +
                " on the way to island " + island.text + ": " + std::to_string(kTroubles) +
                " connections over it ended, the last because of " + why);
  }
}

void ZmqBulkIo::tell_way(const IslandId& island, Peer& peer) {
  const std::optional<unsigned> way = peer.best.empty() ? std::nullopt : std::optional(way_of(peer));
  if (way == peer.told_way) {
    return;
  }
  const bool was_relayed = peer.told_way.value_or(0) > 0;
  peer.told_way = way;
  const std::string relay = way.value_or(0) > 0 ? relays_.at(*way - 1).name : "";
  if (way && (*way > 0 || was_relayed)) {
    log_info("bulk link: island " + island.text + " is reached " + (*way > 0 ? "over relay " + relay : "directly"));
  }
  mailbox_->push(BulkArrival{island, BulkWay{way ? std::optional(relay) : std::nullopt}});
}

}  // namespace atl
