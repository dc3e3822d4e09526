#include "transport/zmq/zmq_bulk_io.hpp"

#include <zmq.h>

#include <algorithm>
#include <climits>
#include <iterator>
#include <utility>

#include "transport/base/descriptor_limit.hpp"
#include "transport/base/log.hpp"
#include "transport/relay/relay_pass.hpp"
#include "transport/zmq/tcp_tuning.hpp"

namespace atl {
namespace {

constexpr int kReadsInARow = 64;  // of one socket, before the others have their turn
constexpr Duration kInboxPatience = std::chrono::seconds(2);
constexpr Duration kTick = std::chrono::milliseconds(200);
constexpr Duration kProxyPatience = std::chrono::seconds(10);
constexpr Duration kProxyPause = std::chrono::seconds(3);  // before a peer's address is asked of the proxy again

bool only_dialled_or_not(const BulkPeer& before, const BulkPeer& now) {
  return before.key == now.key && (before.address.empty() || now.address.empty());
}

}  // namespace

void set_option(void* socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

ZmqBulkIo::ZmqBulkIo(ZmqBulkSettings settings, const BulkIdentity& identity, std::shared_ptr<BlobStore> store,
                     std::shared_ptr<BulkMailbox> mailbox, void* context, void* router, std::uint16_t port, std::optional<AcceptGate> gate)
    : settings_(std::move(settings)),
      identity_(identity),
      store_(std::move(store)),
      mailbox_(std::move(mailbox)),
      context_(context),
      router_(router),
      gate_(std::move(gate)),
      own_(interface_addresses()),
      own_port_(port),
      rng_(static_cast<std::uint64_t>(now().time_since_epoch().count()), stream_of(settings_.island.text)) {
  looked_at_ = now();
  set_uplink(0);
}

ZmqBulkIo::~ZmqBulkIo() {
  for (auto& [island, peer] : peers_) {
    for (const auto& dealer : peer.dealers) {
      close_dealer(*dealer);
    }
  }
  gate_.reset();
  if (router_ != nullptr) {
    zmq_close(router_);
  }
}

void ZmqBulkIo::run() {
  TimePoint next_tick = now();
  while (true) {
    std::vector<zmq_pollitem_t> items{{nullptr, mailbox_->to_io.fd(), ZMQ_POLLIN, 0}};
    std::vector<Dealer*> dealers;
    const bool full = mailbox_->inbox_bytes() > share_out(settings_.link_memory_bytes).inbox;
    if (!full) {
      for (auto& [island, peer] : peers_) {
        for (const auto& dealer : peer.dealers) {
          if (dealer->socket != nullptr) {
            items.push_back({dealer->socket, 0, ZMQ_POLLIN, 0});
            dealers.push_back(dealer.get());
          }
        }
      }
      if (router_ != nullptr) {
        items.push_back({router_, 0, ZMQ_POLLIN, 0});
      }
    }
    const std::size_t to_read = items.size();
    if (gate_) {
      items.push_back({gate_->monitor(), 0, ZMQ_POLLIN, 0});
    }
    const TimePoint paid = uplink_ ? uplink_->next_deadline().value_or(next_tick) : next_tick;
    const auto wait_ms =
        full ? 1 : std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(std::min(paid, next_tick) - now()).count());
    zmq_poll(items.data(), static_cast<int>(items.size()), static_cast<long>(wait_ms));
    // Sockets first: obeying commands may close some of them.
    for (std::size_t i = 0; i < dealers.size(); ++i) {
      if ((items[i + 1].revents & ZMQ_POLLIN) != 0) {
        read_dealer(*dealers[i]);
      }
    }
    if (!full && router_ != nullptr && (items[to_read - 1].revents & ZMQ_POLLIN) != 0) {
      read_router();
    }
    if (gate_) {
      gate_->pump(now());
    }
    if (may_choose_) {
      choose_where_due();
    }
    if ((items.front().revents & ZMQ_POLLIN) != 0) {
      mailbox_->to_io.drain();
      if (!obey_commands()) {
        return;
      }
      for (const ParkedWant& item : store_->take_unparked()) {
        // A connection may turn out to be gone; then by another.
        for (Session* session = session_of(item.reader, item.connection); session != nullptr && !serve(*session, item.want);) {
          session = next_session(item.reader);
        }
      }
      serve_waiting();
    }
    serve_uplink();
    const TimePoint present = now();
    if (present >= next_tick) {
      tick(present);
      next_tick = present + kTick;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------- commands

bool ZmqBulkIo::obey_commands() {
  for (BulkCommand& command : mailbox_->take_commands()) {
    if (std::holds_alternative<StopBulkIo>(command)) {
      return false;
    }
    if (auto* peers = std::get_if<SetBulkPeers>(&command)) {
      set_peers(std::move(peers->peers));
    } else if (const auto* uplink = std::get_if<SetBulkUplink>(&command)) {
      set_uplink(uplink->bits_per_second);
    } else if (auto* relays = std::get_if<SetBulkRelays>(&command)) {
      set_relays(std::move(relays->relays));
    } else if (const auto* want = std::get_if<OutgoingWant>(&command)) {
      send_want(*want);
    } else if (const auto* ended = std::get_if<EndBulkSession>(&command)) {
      if (const auto session = sessions_.find(ended->session); session != sessions_.end()) {
        reject(session->second, "a payload that is not authentic");
      }
    }
  }
  return true;
}

void ZmqBulkIo::set_uplink(double bits_per_second) {
  const double own = settings_.uplink_bits_per_second;
  const double chosen = own > 0 && bits_per_second > 0 ? std::min(own, bits_per_second) : std::max(own, bits_per_second);
  if (chosen == uplink_bits_per_second_) {
    return;
  }
  uplink_bits_per_second_ = chosen;
  if (uplink_ && chosen > 0) {
    uplink_->set_rate(chosen, now());
    return;
  }
  std::vector<std::pair<IslandId, WantOver>> waiting;
  if (uplink_) {
    waiting = uplink_->take_all();
    uplink_.reset();
  }
  if (chosen > 0) {
    uplink_.emplace(chosen, settings_.queue_wants, now());
  }
  for (const auto& [peer, asked] : waiting) {
    for (Session* session = session_of(peer, asked.connection); session != nullptr && !serve(*session, asked.want);) {
      session = next_session(peer);
    }
  }
}

void ZmqBulkIo::set_peers(std::vector<BulkPeer> peers) {
  std::map<IslandId, BulkPeer> named;
  for (BulkPeer& peer : peers) {
    named[peer.island] = std::move(peer);
  }
  std::vector<IslandId> gone;
  for (const auto& [island, peer] : peers_) {
    const auto kept = named.find(island);
    if (kept == named.end() || (kept->second != peer.who && !only_dialled_or_not(peer.who, kept->second) &&
                                !(kept->second.key == peer.who.key && keeps_address(peer, kept->second.address)))) {
      gone.push_back(island);
    }
  }
  for (const IslandId& island : gone) {
    remove_peer(island);
    if (!named.contains(island)) {
      mailbox_->forget(island);
    }
  }
  for (auto& [island, who] : named) {
    const auto [known, made] = peers_.try_emplace(island, settings_.streams);
    Peer& peer = known->second;
    if (!made && peer.who == who) {
      continue;
    }
    admitted_[who.key] = island;
    peer.who = std::move(who);
    set_addresses(island, peer);
    mailbox_->update(island, [](PeerTraffic&) {});
  }
  for (const Route& route : std::exchange(not_admitted_, {})) {
    greet(route);  // perhaps it is admitted now
  }
}

void ZmqBulkIo::add_dealer(const IslandId& island, Peer& peer, unsigned way, const std::string& address, bool scout) {
  auto dealer = std::make_unique<Dealer>();
  dealer->peer = island;
  dealer->way = way;
  dealer->address = address;
  dealer->scout = scout;
  dealer->accepts = way > 0 && accepts_from(island);
  dealer->socket = make_dealer_socket(*dealer);
  dealer->hello_again = TimePoint::max();
  dealer->patience = kHelloPatience;
  peer.dealers.push_back(std::move(dealer));
}

void ZmqBulkIo::close_dealers(Peer& peer, unsigned from_way, unsigned to_way) {
  close_dealers(peer, [=](const Dealer& dealer) { return dealer.way >= from_way && dealer.way <= to_way; });
}

// What the peer asks for over connections that it dialled goes on.
void ZmqBulkIo::close_dealers(Peer& peer, const std::function<bool(const Dealer&)>& is_one) {
  for (const auto& dealer : peer.dealers) {
    if (is_one(*dealer)) {
      if (dealer->session != 0) {
        end_session(dealer->session, "it is not dialled any more");
      }
      close_dealer(*dealer);
    }
  }
  std::erase_if(peer.dealers, [&](const auto& dealer) { return is_one(*dealer); });
}

void ZmqBulkIo::remove_peer(const IslandId& island) {
  std::vector<std::uint64_t> ended;
  for (const auto& [id, session] : sessions_) {
    if (session.peer == island) {
      ended.push_back(id);
    }
  }
  Peer& peer = peers_.at(island);
  for (const std::uint64_t id : ended) {
    end_session(id, "it is no longer one of the peers");
  }
  for (const auto& dealer : peer.dealers) {
    close_dealer(*dealer);
  }
  admitted_.erase(peer.who.key);
  peers_.erase(island);
  if (uplink_) {
    uplink_->drop(island);
  }
  store_->drop_reader(island);
}

void ZmqBulkIo::send_want(const OutgoingWant& want) {
  // A connection may turn out to be gone; then by another.
  for (Session* session = session_to_ask(want.to); session != nullptr; session = session_to_ask(want.to)) {
    session->owed_since = session->owed == 0 ? now() : session->owed_since;
    session->owed += want.want.length;
    if (send_frame(*session, want.want)) {
      return;
    }
  }
}

ZmqBulkIo::Session* ZmqBulkIo::next_session(const IslandId& island) {
  const auto peer = peers_.find(island);
  if (peer == peers_.end() || peer->second.sessions.empty()) {
    return nullptr;
  }
  return &sessions_.at(peer->second.asked[peer->second.turn++ % used_sessions(peer->second)]);
}

// Connections of the first way there is are asked over, and no others: a direct one before any relay.
// A want that shares a connection with pieces going the same way waits behind all that ZeroMQ and the kernel hold of them, which is more
// than the path does. So on a far path each side asks over the connections that it dialled. Where one side alone dials, each has every
// second of them: in the order of their keys, which both sides know. With one connection there is nothing to divide. A near peer is asked
// over any, since fewer that are busy cost fewer wake-ups.
void ZmqBulkIo::divide(Peer& peer) const {
  unsigned way = UINT_MAX;
  for (const std::uint64_t id : peer.sessions) {
    way = std::min(way, sessions_.at(id).way);
  }
  peer.best.clear();
  std::ranges::copy_if(peer.sessions, std::back_inserter(peer.best), [&](std::uint64_t id) { return sessions_.at(id).way == way; });
  if (!peer.far) {
    peer.asked = peer.best;
    return;
  }
  peer.asked.clear();
  const std::size_t ours = dialled(peer);
  if (ours > 0 && ours < peer.best.size()) {
    std::ranges::copy_if(peer.best, std::back_inserter(peer.asked), [this](std::uint64_t id) { return is_dialled(id); });
    return;
  }
  std::vector<std::pair<Key, std::uint64_t>> in_order;
  for (const std::uint64_t id : peer.best) {
    const BulkKeys& keys = sessions_.at(id).keys;
    in_order.emplace_back(std::min(keys.send, keys.receive), id);
  }
  std::ranges::sort(in_order);
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    if (in_order.size() == 1 || (i % 2 == 0) == (ours > 0)) {
      peer.asked.push_back(in_order[i].second);
    }
  }
}

// The connection that owes least; those that owe as much take turns. So a connection that loses a packet does not hold up the others.
ZmqBulkIo::Session* ZmqBulkIo::session_to_ask(const IslandId& island) {
  Session* least = next_session(island);
  if (least == nullptr) {
    return nullptr;
  }
  const Peer& peer = peers_.at(island);
  const std::size_t used = used_sessions(peer);
  for (std::size_t i = 0; i < used && least->owed > 0; ++i) {
    Session& session = sessions_.at(peer.asked[(peer.turn + i) % used]);
    least = session.owed < least->owed ? &session : least;
  }
  return least;
}

// The connection over which a want came, while it is there; any other one afterwards.
ZmqBulkIo::Session* ZmqBulkIo::session_of(const IslandId& island, std::uint64_t id) {
  const auto found = sessions_.find(id);
  return found != sessions_.end() && found->second.peer == island && found->second.confirmed ? &found->second : next_session(island);
}

// -------------------------------------------------------------------------------------------------------------- sockets

// Null where the process has no descriptors left: said, and tried again (tick).
void* ZmqBulkIo::make_dealer_socket(Dealer& dealer) {
  const Proxy* const proxy = settings_.proxy.towards_address(dealer.way == 0 ? dealer.address : places_.at(dealer.way - 1).relay.address);
  if (dealer.way == 0 && proxy == nullptr) {
    return make_dealer_socket(dealer.address, dealer.scout ? Towards::scouted : Towards::peer);
  }
  Result<std::unique_ptr<RelayTunnels::Tunnel>> tunnel = Error{};
  if (dealer.way == 0) {
    tunnel = tunnels_.open_through(*proxy, dealer.address, kProxyPatience, kProxyPause);
  } else {
    const auto& [relay, punches] = places_.at(dealer.way - 1);
    dealer.pass = relay.pass;
    tunnel = tunnels_.open({relay.address, request_with(relay.pass, dealer.peer), settings_.island, dealer.peer},
                           punches ? RelayTunnels::Leads::through_holes : RelayTunnels::Leads::over_relay, proxy);
  }
  if (!tunnel) {
    log_rarely("bulk link: " + tunnel.error().why);
    return nullptr;
  }
  dealer.tunnel = *std::move(tunnel);
  return make_dealer_socket(dealer.tunnel->endpoint(), dealer.way == 0 ? Towards::peer : Towards::relay);
}

void* ZmqBulkIo::make_dealer_socket(const std::string& address, Towards towards) {
  void* socket = zmq_socket(context_, ZMQ_DEALER);
  if (socket == nullptr) {
    log_rarely("bulk link: " + address + " is not dialled for now: " + zmq_strerror(zmq_errno()) + "; this process may have " +
               std::to_string(descriptor_limit()) + " files and connections open (ulimit -n)");
    return nullptr;
  }
  configure_bulk_socket(socket, settings_);
  set_option(socket, ZMQ_IMMEDIATE, 1);     // nothing is kept for a connection that is not there
  set_option(socket, ZMQ_PROBE_ROUTER, 1);  // tells the other side of every new connection
  // ZeroMQ counts a connection to a program that speaks something else as one that was there: it begins with the shortest time again.
  set_option(socket, ZMQ_RECONNECT_IVL, towards == Towards::scouted ? 3'000 : 200);
  set_option(socket, ZMQ_RECONNECT_IVL_MAX, 10'000);
  if (towards == Towards::relay) {
    set_option(socket, ZMQ_HANDSHAKE_IVL, 0);  // it begins once the peer has come to the relay
  }
  if (zmq_connect(socket, address.c_str()) != 0) {
    log_rarely("bulk link: cannot dial " + address + ": " + zmq_strerror(zmq_errno()));
  }
  return socket;
}

void ZmqBulkIo::close_dealer(Dealer& dealer) {
  if (dealer.socket != nullptr) {
    zmq_close(std::exchange(dealer.socket, nullptr));
  }
  dealer.tunnel.reset();
}

bool ZmqBulkIo::read_parts(void* socket, Parts& parts) {
  parts.clear();
  ZmqMessage part;
  if (!part.receive(socket)) {
    return false;
  }
  while (true) {
    const bool more = part.more();
    if (parts.size() < 4) {
      parts.push_back(std::move(part));
    }
    if (!more) {
      return true;
    }
    part = ZmqMessage();
    if (!part.receive(socket)) {
      return true;
    }
  }
}

void ZmqBulkIo::read_router() {
  Parts parts;
  for (int i = 0; i < kReadsInARow && read_parts(router_, parts); ++i) {
    const Route route(as_text(parts.front().bytes()));
    parts.erase(parts.begin());
    if (parts.empty()) {
      continue;
    }
    const ByteView first = parts.front().bytes();
    if (first.empty()) {
      greet(route);
    } else if (first[0] == kHello) {
      on_hello(route, nullptr, parts.front());
    } else if (first[0] == kData) {
      const auto known = routes_.find(route);
      if (known == routes_.end()) {
        greet(route);
      } else {
        on_data(known->second, parts);
      }
    } else {
      log_rarely("bulk link: garbage from a connection, dropped");
    }
  }
}

void ZmqBulkIo::read_dealer(Dealer& dealer) {
  Parts parts;
  for (int i = 0; i < kReadsInARow && read_parts(dealer.socket, parts); ++i) {
    const ByteView first = parts.front().bytes();
    if (first.empty()) {
      greet(dealer);
    } else if (dealer.accepts && first[0] == kHello) {
      on_hello({}, &dealer, parts.front());
    } else if (first[0] == kGreet && !dealer.accepts) {
      if (dealer.session != 0) {
        end_session(dealer.session, "the peer began a new session");
      }
      const bool barred = dealer.way == 0 && is_barred(parts.front().source());
      const TimePoint may = dealer.handshake ? dealer.hello_sent + kHelloPatience / 10 : TimePoint();
      if (!barred && now() > may) {
        say_hello(dealer);
      } else if (!barred) {
        // The peer has just admitted this island, perhaps after the last hello came.
        dealer.hello_again = std::min(dealer.hello_again, may);
      }
    } else if (first[0] == kWelcome) {
      on_welcome(dealer, parts.front());
    } else if (first[0] == kData && dealer.session != 0) {
      on_data(dealer.session, parts);
    }
  }
}

bool ZmqBulkIo::send_parts(const Session& session, ZmqMessage first, std::optional<ZmqMessage> second) {
  void* socket = session.dealer != nullptr ? session.dealer->socket : router_;
  if (session.dealer == nullptr && !ZmqMessage(as_bytes(session.route)).send(socket, true)) {
    return false;
  }
  if (!first.send(socket, second.has_value())) {
    return false;
  }
  return !second || second->send(socket, false);
}

void ZmqBulkIo::send_to_route(const Route& route, ByteView message) {
  if (ZmqMessage(as_bytes(route)).send(router_, true)) {
    ZmqMessage(message).send(router_, false);
  }
}

// ----------------------------------------------------------------------------------------------------------------- time

// Connections that are missing are dialled, where there is an address to dial. None is closed: one that is not used costs a ping now
// and then, and may be what the other side asks over.
void ZmqBulkIo::look_at_streams(TimePoint present) {
  for (auto& [island, peer] : peers_) {
    StreamCount::Look look{present - looked_at_, std::exchange(peer.received, 0), 0, true, peer.round_trip, false};
    const std::size_t used = used_sessions(peer);
    for (std::size_t i = 0; i < peer.asked.size(); ++i) {
      const Session& session = sessions_.at(peer.asked[i]);
      look.outstanding += session.owed;
      look.busy = look.busy && (session.owed > 0 || i >= used);
      look.queue = look.queue || (i < used && peer.far && waits_in_queue(session.source));
    }
    peer.streams.look(look);
    add_streams(island, peer);
    const auto over = static_cast<unsigned>(used_sessions(peer));
    if (std::exchange(peer.asked_over, over) != over && over > 0) {
      log_debug("bulk link: island " + island.text + " is asked over " + std::to_string(over) + " connections");
      mailbox_->push(BulkArrival{island, BulkAskedOver{over}});
    }
  }
  looked_at_ = present;
}

void ZmqBulkIo::add_streams(const IslandId& island, Peer& peer) {
  const unsigned way = way_of(peer);
  const auto of_way = [&](const auto& dealer) { return dealer->way == way && !dealer->scout; };
  const bool established = std::ranges::all_of(peer.dealers, [&](const auto& dealer) { return !of_way(dealer) || dealer->session != 0; });
  const bool may_dial = established && (way > 0 ? !accepts_from(island) : !peer.choice.chosen.empty());
  auto dealers = static_cast<std::size_t>(std::ranges::count_if(peer.dealers, of_way));
  for (std::size_t there = peer.far ? dialled(peer) : peer.best.size(); may_dial && there < peer.streams.count() && dealers < kMostStreams;
       ++there, ++dealers) {
    add_dealer(island, peer, way, way > 0 ? "" : peer.choice.chosen);
  }
}

void ZmqBulkIo::tick(TimePoint present) {
  look_at_addresses(present);
  look_at_ways(present);
  look_at_streams(present);
  std::vector<std::uint64_t> dead;
  std::vector<std::uint64_t> quiet;
  for (auto& [id, session] : sessions_) {
    if (session.owed > 0 && present - session.owed_since > kOwedPatience) {
      session.owed = 0;  // nobody waits for it any more, or it is not ready there
    }
    if (present - session.heard > (session.confirmed ? settings_.dead_after : kHelloPatienceAtMost)) {
      dead.push_back(id);
    } else if (session.confirmed && present - session.pinged >= settings_.ping_every) {
      quiet.push_back(id);
    }
  }
  for (const std::uint64_t id : dead) {
    if (!sessions_.contains(id)) {
      continue;
    }
    Dealer* dealer = sessions_.at(id).dealer;
    const IslandId peer = sessions_.at(id).peer;
    const unsigned way = sessions_.at(id).way;
    end_session(id, "nothing was heard for " + human_duration(settings_.dead_after));
    if (dealer != nullptr) {
      redial(*dealer);
    }
    blame_place(peer, way, "silence");
  }
  for (const std::uint64_t id : quiet) {
    if (const auto session = sessions_.find(id); session != sessions_.end()) {
      session->second.pinged = present;
      send_ping(session->second, kPing, static_cast<std::uint64_t>(present.time_since_epoch().count()));
    }
  }
  for (auto& [island, peer] : peers_) {
    for (const auto& dealer : peer.dealers) {
      if (dealer->socket == nullptr) {
        dealer->socket = make_dealer_socket(*dealer);
      } else if (dealer->session == 0 && present >= dealer->hello_again) {
        say_hello(*dealer);
      }
    }
  }
  const bool full = mailbox_->inbox_bytes() > share_out(settings_.link_memory_bytes).inbox;
  full_since_ = full ? std::optional(full_since_.value_or(present)) : std::nullopt;
  if (full_since_ && present - *full_since_ > kInboxPatience) {
    log_rarely("bulk link: pieces that nobody takes were dropped");
    mailbox_->drop_pieces();
    full_since_.reset();
  }
}

void ZmqBulkIo::log_rarely(const std::string& line) {
  const TimePoint present = now();
  const auto known = logged_.find(line);
  if (known != logged_.end() && present - known->second < std::chrono::minutes(1)) {
    return;
  }
  if (logged_.size() >= kRemembered) {
    logged_.clear();
  }
  logged_[line] = present;
  log_warning(line);
}

}  // namespace atl
