// By which way a peer is reached: directly, through a hole that both punch into their routers, or over a relay.
//
// Where neither side can dial the other both come to the same place: a relay that tells each the other's address at one moment, so that
// they punch (transport/relay/hole_words.hpp), then the same relay as one that joins an outward connection of each, then the next relay.
// Both see that there is no direct connection, and wait at the first place a moment later; where nothing comes of that, at the next one as
// well. The first place at which they meet stays, those after it are given up; one before it may still become better. A direct connection
// that comes later ends the others. Punching that failed is not tried again for a while (punch_record.hpp), and costs no time then.
// Of the two the one with the smaller id dials: it says hello, and it decides over how many connections they speak. The other one has a
// connection more at the place than are in use, for the next.
// A relay is a stranger: where sessions over it are spoilt or fall silent again and again, another one is taken for a while.
#include <algorithm>
#include <climits>

#include "transport/base/log.hpp"
#include "transport/zmq/zmq_bulk_io.hpp"

namespace atl {
namespace {

constexpr Duration kDirectPatience = std::chrono::seconds(1);  // without a direct connection, before the first relay is tried
constexpr Duration kRelayPatience = std::chrono::seconds(5);   // before the next one is tried, too,
constexpr Duration kPunchPatience = std::chrono::seconds(2);   // after a hole: one that opens later still goes before it
constexpr Duration kDirectStands = std::chrono::seconds(2);    // a direct connection, before relayed ones are given up
constexpr unsigned kTroubles = 3;                              // so often, each soon after the one before,
constexpr Duration kTroublesWithin = std::chrono::minutes(2);
constexpr Duration kShunned = std::chrono::minutes(5);  // and a relay is left alone for so long

}  // namespace

void ZmqBulkIo::set_relays(std::vector<RelayOffer> relays) {
  std::vector<Place> places;
  for (RelayOffer& relay : relays) {
    if (settings_.hole_punching && settings_.proxy.towards_address(relay.address) == nullptr) {
      places.push_back({relay, true});
    }
    if (relay.carries) {
      places.push_back({std::move(relay), false});
    }
  }
  // Relays of islands come and go: connections at those that stay do, too.
  std::vector<unsigned> moved = {0};  // by place, counted from 1, where it is now; 0: it is gone
  for (const Place& before : places_) {
    const auto now_at = std::ranges::find_if(places, [&](const Place& place) {
      return place.relay.name == before.relay.name && place.relay.address == before.relay.address && place.punches == before.punches;
    });
    moved.push_back(now_at == places.end() ? 0 : static_cast<unsigned>(now_at - places.begin()) + 1);
  }
  for (auto& [island, peer] : peers_) {
    move_places(peer, moved);
  }
  places_ = std::move(places);
  for (auto& [island, peer] : peers_) {
    tell_way(island, peer);
  }
}

void ZmqBulkIo::move_places(Peer& peer, std::span<const unsigned> moved) {
  close_dealers(peer, [&](const Dealer& dealer) { return dealer.way > 0 && moved[dealer.way] == 0; });
  for (const auto& dealer : peer.dealers) {
    dealer->way = moved[dealer->way];
    if (dealer->session != 0) {
      sessions_.at(dealer->session).way = dealer->way;
    }
  }
  divide(peer);
  std::map<unsigned, Peer::Trouble> troubles;
  for (const auto& [way, trouble] : peer.troubles) {
    troubles[moved[way]] = trouble;
  }
  troubles.erase(0);
  peer.troubles = std::move(troubles);
  const auto waited = moved.subspan(0, peer.places + 1);
  if (std::ranges::count(waited, 0U) > 1) {
    peer.punching.forget();  // another relay may see more
  }
  peer.places = *std::ranges::max_element(waited);
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
    if (peer.places > 0 && present - *peer.direct_since >= kDirectStands) {
      close_dealers(peer, 1, UINT_MAX);
      peer.places = 0;
    }
    return;
  }
  peer.direct_since.reset();
  peer.apart_since = peer.apart_since.value_or(present);
  note_punching(island, peer, present);
  const unsigned met = way_of(peer);
  Duration patience = kDirectPatience;
  for (unsigned way = 1; way <= peer.places; ++way) {
    const Duration of_place = places_.at(way - 1).punches ? kPunchPatience : kRelayPatience;
    patience += is_shunned(peer, way, present) ? Duration::zero() : of_place;
  }
  if (met > 0 && met < peer.places) {
    close_dealers(peer, met + 1, UINT_MAX);
    peer.places = met;
  } else if (met == 0 && peer.places < places_.size() && present - *peer.apart_since >= patience) {
    ++peer.places;
  }
  wait_at_places(island, peer);
}

// What came of punching, where it was not for one more connection beside those that there are.
void ZmqBulkIo::note_punching(const IslandId& island, Peer& peer, TimePoint present) {
  const unsigned met = way_of(peer);
  for (const auto& dealer : peer.dealers) {
    const NotPunched why = dealer->way > 0 && dealer->way != met && dealer->tunnel ? dealer->tunnel->not_punched() : NotPunched::not_tried;
    if (why != NotPunched::not_tried && peer.punching.may_try(present)) {
      peer.punching.failed(why, present);
      log_info("bulk link: no hole is punched on the way to island " + island.text + " for the next " +
               human_duration(peer.punching.again() - present) + ": " +
               (why == NotPunched::own_router     ? "this island's router gives each connection another port"
                : why == NotPunched::peers_router ? "its router gives each connection another port"
                                                  : "both dialled at the same moment, and one's router let nothing in"));
    }
  }
}

void ZmqBulkIo::wait_at_places(const IslandId& island, Peer& peer) {
  for (unsigned way = 1; way <= peer.places; ++way) {
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
      if (waits && dealer->pass != places_.at(way - 1).relay.pass) {
        redial(*dealer);
      }
    }
    if (there == 0 || (accepts_from(island) && waiting == 0 && there < kMostStreams)) {
      add_dealer(island, peer, way, "");
    }
  }
}

bool ZmqBulkIo::is_shunned(const Peer& peer, unsigned way, TimePoint present) const {
  const auto trouble = peer.troubles.find(way);
  return (places_.at(way - 1).punches && !peer.punching.may_try(present) && way_of(peer) != way) ||
         (trouble != peer.troubles.end() && trouble->second.times >= kTroubles && present - trouble->second.newest < kShunned);
}

// `way` of a session that neither side ended; a direct one is no place's. Its connections are closed with the next tick: this may
// be said while one of them is read.
void ZmqBulkIo::blame_place(const IslandId& island, unsigned way, const std::string& why) {
  const auto peer = peers_.find(island);
  if (way == 0 || peer == peers_.end()) {
    return;
  }
  Peer::Trouble& trouble = peer->second.troubles[way];
  const TimePoint present = now();
  trouble.times = present - trouble.newest > kTroublesWithin ? 1 : trouble.times + 1;
  trouble.newest = present;
  if (trouble.times == kTroubles) {
    log_warning("bulk link: " + to_string(way_at(peer->second, way)) + " is left alone for " + human_duration(kShunned) +
                " as a way to island " + island.text + ": " + std::to_string(kTroubles) + " connections of it ended, the last because of " +
                why);
  }
}

Way ZmqBulkIo::way_at(const Peer& peer, unsigned way) const {
  if (way == 0) {
    return {};
  }
  const auto& [relay, punches] = places_.at(way - 1);
  if (punches) {
    return {"", true, NotPunched::not_tried};
  }
  return {relay.name, false, settings_.hole_punching ? peer.punching.why() : NotPunched::switched_off};
}

// By which it is reached now. Directly: at the address that this side dials, where it does.
std::optional<Way> ZmqBulkIo::way_to(const Peer& peer) const {
  if (peer.best.empty()) {
    return std::nullopt;
  }
  Way way = way_at(peer, way_of(peer));
  const auto dials = std::ranges::find_if(peer.best, [&](std::uint64_t id) { return is_dialled(id); });
  if (way.is_direct() && dials != peer.best.end()) {
    const Dealer& dealer = *sessions_.at(*dials).dealer;
    way.address = dealer.address;
    way.proxied = dealer.tunnel != nullptr;
  }
  return way;
}

void ZmqBulkIo::tell_way(const IslandId& island, Peer& peer) {
  const std::optional<Way> way = way_to(peer);
  if (way == peer.told_way) {
    return;
  }
  const std::optional<Way> before = std::exchange(peer.told_way, way);
  if (!way || way->punched) {
    peer.punching.forget();
  }
  const bool other_address = way && before && before->is_direct() && !before->address.empty() && !way->address.empty();
  if (way && (!way->is_direct() || way->proxied || (before && !before->is_direct()) || other_address)) {
    log_info("bulk link: island " + island.text + " is reached " +
             (way->punched ? "through a punched hole"
              : way->is_direct()
                  ? std::string(way->proxied ? "through the proxy" : "directly") + (way->address.empty() ? "" : ", at " + way->address)
                  : "over " + to_string(*way)));
  }
  mailbox_->push(BulkArrival{island, BulkWay{way}});
}

}  // namespace atl
