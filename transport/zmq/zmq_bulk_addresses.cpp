// Which of a peer's addresses is dialled.
//
// A scout goes to each of them at once. The first at which the peer proves its key is taken when no better one may still answer, 250 ms
// later otherwise (transport/bulk/address_choice.hpp). Its session is the first to be used; those of the others are closed unused. The
// address stays chosen, and is dialled again where its connections end, with scouts to the others beside it.
// An address of another site's network may be a stranger's here. A stranger that speaks ZeroMQ as an island does learns the public keys of
// the two, others that somebody dialled; nobody but the peer can answer, and it costs nobody's trust. A scout dials every three seconds at
// most, and goes home after twenty; the next ones go after a rest that doubles up to two minutes. So do scouts to better addresses than the
// chosen one, which may have been slow or away for a moment. A peer with a single address is dialled all the time. What this machine's
// interfaces are is looked at every five seconds: with others the order is another one, and better ones are tried.
#include <algorithm>

#include "transport/base/address.hpp"
#include "transport/base/log.hpp"
#include "transport/zmq/zmq_bulk_io.hpp"

namespace atl {
namespace {

constexpr Duration kHeadStart = std::chrono::milliseconds(250);  // of a better address: RFC 8305, Connection Attempt Delay
constexpr Duration kRace = std::chrono::seconds(20);
constexpr Duration kRest = std::chrono::seconds(15);  // after a race that nobody won
constexpr unsigned kMostDoublings = 3;
constexpr Duration kLostFor = std::chrono::seconds(1);  // the connections to the chosen address, before others are tried
constexpr Duration kInterfacesEvery = std::chrono::seconds(5);

Duration rest_after(unsigned lost_races) { return kRest * (1U << std::min(lost_races, kMostDoublings)); }

}  // namespace

std::vector<std::string> ZmqBulkIo::worth_dialling(const std::string& offered) const {
  return addresses_to_dial(offered, own_, own_port_, settings_.interfaces, [&](const std::string& host) {
    const Proxy* const proxy = settings_.proxy.towards(host);
    return interface_towards(proxy != nullptr ? proxy->host : host, own_);
  });
}

// A peer that was reached directly and is elsewhere altogether is begun anew. What goes through a hole or over a relay stays.
bool ZmqBulkIo::keeps_address(const Peer& peer, const std::string& offered) const {
  if (std::ranges::none_of(peer.sessions, [&](std::uint64_t id) { return sessions_.at(id).way == 0; })) {
    return true;
  }
  const std::vector<std::string> dialled = worth_dialling(offered);
  return peer.choice.chosen.empty() ? std::ranges::find_first_of(peer.choice.among, dialled) != peer.choice.among.end()
                                    : std::ranges::find(dialled, peer.choice.chosen) != dialled.end();
}

// Of `who`, or of other interfaces of this machine.
void ZmqBulkIo::set_addresses(const IslandId& island, Peer& peer) {
  peer.choice.among = worth_dialling(peer.who.address);
  const auto is_listed = [&](const std::string& address) {
    return std::ranges::find(peer.choice.among, address) != peer.choice.among.end();
  };
  close_dealers(peer, [&](const Dealer& dealer) { return dealer.way == 0 && !is_listed(dealer.address); });
  if (!is_listed(peer.choice.chosen)) {
    peer.choice.chosen.clear();
  }
  peer.choice.lost_races = 0;
  if (peer.choice.among.size() == 1 && peer.choice.chosen.empty()) {
    close_dealers(peer, 0, 0);
    peer.choice.race_ends.reset();
    peer.choice.chosen = peer.choice.among.front();
    dial_chosen(island, peer);
  } else if (peer.choice.among.size() > 1 && peer.choice.chosen != peer.choice.among.front()) {
    begin_race(island, peer, now());
  }
}

void ZmqBulkIo::dial_chosen(const IslandId& island, Peer& peer) {
  const auto dial = [&](const auto& dealer) { return dealer->way == 0; };
  for (auto there = std::ranges::count_if(peer.dealers, dial); there < static_cast<std::ptrdiff_t>(settings_.streams); ++there) {
    add_dealer(island, peer, 0, peer.choice.chosen);
  }
}

// To all addresses; where the chosen one is connected, to the better ones.
void ZmqBulkIo::begin_race(const IslandId& island, Peer& peer, TimePoint present) {
  const bool connected = std::ranges::any_of(
      peer.dealers, [&](const auto& dealer) { return dealer->way == 0 && dealer->session != 0 && dealer->address == peer.choice.chosen; });
  for (const std::string& address : peer.choice.among) {
    if (connected && address == peer.choice.chosen) {
      break;
    }
    const bool dialled =
        std::ranges::any_of(peer.dealers, [&](const auto& dealer) { return dealer->way == 0 && dealer->address == address; });
    if (!dialled) {
      add_dealer(island, peer, 0, address, true);
    }
  }
  peer.choice.race_ends = present + kRace;
}

void ZmqBulkIo::end_race(Peer& peer, TimePoint present) {
  close_dealers(peer, [](const Dealer& dealer) { return dealer.scout; });
  peer.choice.race_ends.reset();
  peer.choice.at.reset();
  peer.choice.race_again = present + rest_after(peer.choice.lost_races);
  peer.choice.better_again = peer.choice.race_again;
  ++peer.choice.lost_races;
}

// A scout has met the peer. The choice closes other connections, so it is made when none of them is being read.
void ZmqBulkIo::note_answer(Peer& peer, const Dealer& dealer) {
  const auto answers = [&](const std::string& address) {
    return std::ranges::any_of(peer.dealers,
                               [&](const auto& other) { return other->scout && other->session != 0 && other->address == address; });
  };
  const auto itself = std::ranges::find(peer.choice.among, dealer.address);
  const bool best = std::all_of(peer.choice.among.begin(), itself, answers);
  peer.choice.at = best ? now() : peer.choice.at.value_or(now() + kHeadStart);
  may_choose_ = may_choose_ || best;
}

// Of the addresses at which the peer has proven its key, the best.
void ZmqBulkIo::choose(const IslandId& island, Peer& peer) {
  peer.choice.at.reset();
  Dealer* winner = nullptr;
  for (const std::string& address : peer.choice.among) {
    const auto met = std::ranges::find_if(
        peer.dealers, [&](const auto& dealer) { return dealer->scout && dealer->session != 0 && dealer->address == address; });
    winner = winner == nullptr && met != peer.dealers.end() ? met->get() : winner;
  }
  if (winner == nullptr) {
    return;
  }
  winner->scout = false;
  peer.choice.chosen = winner->address;
  peer.choice.lost_races = 0;
  peer.choice.race_ends.reset();
  peer.choice.better_again = now() + rest_after(0);
  log_debug("bulk link: island " + island.text + " is dialled at " + peer.choice.chosen);
  use_session(*winner);
  close_dealers(peer, [&](const Dealer& dealer) { return dealer.way == 0 && dealer.address != peer.choice.chosen; });
  dial_chosen(island, peer);
}

void ZmqBulkIo::look_at_addresses(TimePoint present) {
  bool changed = false;
  if (present >= own_again_) {
    own_again_ = present + kInterfacesEvery;
    std::vector<InterfaceAddress> own = interface_addresses();
    changed = own != own_;
    std::swap(own, own_);
    if (changed) {
      end_stranded(own);
    }
  }
  for (auto& [island, peer] : peers_) {
    if (changed) {
      set_addresses(island, peer);
    }
    look_at_addresses(island, peer, present);
  }
}

void ZmqBulkIo::look_at_addresses(const IslandId& island, Peer& peer, TimePoint present) {
  if (peer.choice.at && present >= *peer.choice.at) {
    choose(island, peer);
  }
  if (peer.choice.race_ends && present >= *peer.choice.race_ends) {
    end_race(peer, present);
  }
  if (peer.choice.among.size() < 2 || peer.choice.race_ends) {
    return;
  }
  const bool connected = std::ranges::any_of(
      peer.dealers, [&](const auto& dealer) { return dealer->way == 0 && dealer->session != 0 && dealer->address == peer.choice.chosen; });
  if (connected) {
    peer.choice.lost_since.reset();
    peer.choice.race_again = present;
    if (peer.choice.chosen == peer.choice.among.front()) {
      peer.choice.lost_races = 0;
    } else if (present >= peer.choice.better_again) {
      begin_race(island, peer, present);
    }
    return;
  }
  peer.choice.lost_since = peer.choice.lost_since.value_or(present);
  if (present - *peer.choice.lost_since >= kLostFor && present >= peer.choice.race_again) {
    begin_race(island, peer, present);
  }
}

// Connections whose own address this machine has no more: nothing comes over them again, and the kernel would say so in minutes.
void ZmqBulkIo::end_stranded(std::span<const InterfaceAddress> before) {
  std::vector<std::uint64_t> stranded;
  for (const auto& [id, session] : sessions_) {
    if (session.way == 0 && !interface_of_socket(session.source, before).empty() && interface_of_socket(session.source, own_).empty()) {
      stranded.push_back(id);
    }
  }
  for (const std::uint64_t id : stranded) {
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
      continue;
    }
    Dealer* const dealer = found->second.dealer;
    end_session(id, "this machine has its address no more");
    if (dealer != nullptr) {
      redial(*dealer);
    }
  }
}

// Of all peers, once a scout has met the best address there is.
void ZmqBulkIo::choose_where_due() {
  may_choose_ = false;
  for (auto& [island, peer] : peers_) {
    if (peer.choice.at && now() >= *peer.choice.at) {
      choose(island, peer);
    }
  }
}

// Over an interface that the owner bars.
bool ZmqBulkIo::is_barred(int descriptor) const {
  return !settings_.interfaces.never_over.empty() && settings_.interfaces.bars(interface_of_socket(descriptor, own_));
}

}  // namespace atl
