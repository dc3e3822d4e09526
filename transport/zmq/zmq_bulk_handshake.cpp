// The I/O thread's connections: greetings, handshakes, sessions that begin and end.
#include <algorithm>
#include <array>
#include <utility>

#include "transport/base/log.hpp"
#include "transport/zmq/tcp_tuning.hpp"
#include "transport/zmq/zmq_bulk_io.hpp"

namespace atl {
namespace {

constexpr std::size_t kSessionsAPeer = kMostStreams + 8;  // accepted ones; more than any peer has streams
constexpr std::size_t kHalfOpen = 256;                    // handshakes not confirmed

}  // namespace

void ZmqBulkIo::greet(const Route& route) {
  const std::array<std::byte, 2> greeting{kGreet, static_cast<std::byte>(kBulkVersion)};
  send_to_route(route, greeting);
}

// Of the two at a relay one has heard that the other is there: it is the accepting side.
void ZmqBulkIo::greet(const Dealer& dealer) {
  if (dealer.accepts) {
    if (dealer.session != 0) {
      end_session(dealer.session, "the peer began a new session");
    }
    const std::array<std::byte, 2> greeting{kGreet, static_cast<std::byte>(kBulkVersion)};
    ZmqMessage(ByteView(greeting)).send(dealer.socket, false);
  }
}

bool ZmqBulkIo::has_too_many(const IslandId& peer) const {
  const auto half_open = std::count_if(sessions_.begin(), sessions_.end(), [](const auto& item) { return !item.second.confirmed; });
  const auto accepted = std::count_if(sessions_.begin(), sessions_.end(),
                                      [&](const auto& item) { return item.second.dealer == nullptr && item.second.peer == peer; });
  return static_cast<std::size_t>(half_open) >= kHalfOpen || static_cast<std::size_t>(accepted) >= kSessionsAPeer;
}

void ZmqBulkIo::on_hello(const Route& route, Dealer* dealer, const ZmqMessage& message) {
  const ByteView hello = message.bytes();
  const Result<Key> claimed = dialler_of(identity_, hello);
  if (!claimed) {
    log_rarely("bulk link: a handshake was refused: " + claimed.error().why);
    return;
  }
  const auto admitted = admitted_.find(*claimed);
  if (dealer == nullptr && is_barred(message.source())) {
    log_rarely("bulk link: a connection came over an interface that this island's owner bars (--never-over), and was not answered");
    return;
  }
  if (dealer != nullptr && (admitted == admitted_.end() || admitted->second != dealer->peer)) {
    log_rarely("bulk link: another than island " + dealer->peer.text + " came from the relay in its place, and was not answered");
    return;
  }
  if (admitted == admitted_.end()) {
    // Not answered: perhaps a stranger, perhaps a peer that this island will hear of in a moment.
    if (not_admitted_.size() < kRemembered) {
      not_admitted_.insert(route);
    }
    log_debug("bulk link: a hello with a key that is not admitted");
    return;
  }
  const auto known = routes_.find(route);
  if (const std::uint64_t before = dealer != nullptr ? dealer->session : known != routes_.end() ? known->second : 0; before != 0) {
    end_session(before, "the peer began a new session");
  }
  if (has_too_many(admitted->second)) {
    log_rarely("bulk link: too many connections of island " + admitted->second.text + "; a new one was not answered");
    return;
  }
  Result<BulkAcceptance> acceptance = accept_bulk_hello(identity_, hello);
  if (!acceptance) {
    log_rarely("bulk link: a handshake was refused: " + acceptance.error().why);
    return;
  }
  Session session;
  session.peer = admitted->second;
  session.route = route;
  session.source = message.source();
  session.keys = acceptance->keys;
  if (dealer != nullptr) {
    session.dealer = dealer;
    session.way = dealer->way;
    dealer->session = add_session(std::move(session));
    ZmqMessage(acceptance->welcome).send(dealer->socket, false);
    return;
  }
  routes_[route] = add_session(std::move(session));
  send_to_route(route, acceptance->welcome);
}

void ZmqBulkIo::say_hello(Dealer& dealer) {
  if (dealer.accepts) {
    return greet(dealer);
  }
  if (dealer.socket == nullptr) {
    return;
  }
  const Peer& peer = peers_.at(dealer.peer);
  dealer.handshake.emplace(identity_, peer.who.key);
  dealer.hello_sent = now();
  dealer.hello_again = dealer.hello_sent + from_seconds(seconds(dealer.patience) * (0.5 + rng_.uniform()));
  dealer.patience = std::min(dealer.patience * 2, kHelloPatienceAtMost);
  ++dealer.hellos;
  ZmqMessage(dealer.handshake->hello()).send(dealer.socket, false);
}

void ZmqBulkIo::on_welcome(Dealer& dealer, const ZmqMessage& message) {
  if (!dealer.handshake || dealer.session != 0) {
    return;
  }
  Result<BulkKeys> keys = dealer.handshake->finish(message.bytes());
  if (!keys && ++dealer.refuted < dealer.hellos) {
    log_debug("bulk link: island " + dealer.peer.text + " answered an earlier hello than the last");
    return;
  }
  if (!keys) {
    log_rarely("bulk link: island " + dealer.peer.text + " at " + (dealer.address.empty() ? "a relay" : dealer.address) + ": " +
               keys.error().why);
    return;  // said again when the patience is over
  }
  dealer.handshake.reset();
  dealer.hellos = 0;
  dealer.refuted = 0;
  dealer.hello_again = TimePoint::max();
  dealer.patience = kHelloPatience;
  Session session;
  session.peer = dealer.peer;
  session.dealer = &dealer;
  session.way = dealer.way;
  session.source = message.source();
  session.keys = *keys;
  dealer.session = add_session(std::move(session));
  if (dealer.scout) {
    return note_answer(peers_.at(dealer.peer), dealer);
  }
  use_session(dealer);
}

// Says so to the peer by the first sealed frame.
void ZmqBulkIo::use_session(const Dealer& dealer) {
  Session& added = sessions_.at(dealer.session);
  send_ping(added, kPing, static_cast<std::uint64_t>(now().time_since_epoch().count()));
  if (const auto still = sessions_.find(dealer.session); still != sessions_.end()) {
    confirm(still->second);
  }
}

std::uint64_t ZmqBulkIo::add_session(Session session) {
  const std::uint64_t id = next_session_++;
  session.id = id;
  session.heard = now();
  session.pinged = session.heard;
  session.flight = std::make_shared<BulkFlight>(mailbox_, buffers_, outbox_);
  sessions_.emplace(id, std::move(session));
  return id;
}

void ZmqBulkIo::confirm(Session& session) {
  session.confirmed = true;
  limit_unsent(session.source);
  if (gate_ && session.dealer == nullptr) {
    gate_->prove(session.source, now());
  }
  Peer& peer = peers_.at(session.peer);
  peer.sessions.push_back(session.id);
  divide(peer);
  if (peer.sessions.size() == 1) {
    log_debug("bulk link: connected to island " + session.peer.text);
    mailbox_->update(session.peer, [](PeerTraffic& row) { row.connected = true; });
    mailbox_->push(BulkArrival{session.peer, BulkConnected{}});
  }
  tell_way(session.peer, peer);
}

void ZmqBulkIo::end_session(std::uint64_t id, const std::string& why) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return;
  }
  const Session session = std::move(found->second);
  sessions_.erase(found);
  if (session.dealer != nullptr) {
    session.dealer->session = 0;
    session.dealer->hello_again = session.dealer->accepts ? TimePoint::max() : now() + kHelloPatience;
  } else {
    routes_.erase(session.route);
    const bool followed = std::ranges::any_of(
        sessions_, [&](const auto& item) { return item.second.dealer == nullptr && item.second.source == session.source; });
    if (gate_ && !followed) {
      gate_->doubt(session.source, now());
    }
  }
  if (!session.confirmed) {
    return;
  }
  log_debug("bulk link: a connection to island " + session.peer.text + " ended: " + why);
  Peer& peer = peers_.at(session.peer);
  std::erase(peer.sessions, id);
  divide(peer);
  tell_way(session.peer, peer);
  if (peer.sessions.empty()) {
    mailbox_->update(session.peer, [](PeerTraffic& row) { row.connected = false; });
    store_->drop_reader(session.peer);
  } else {
    mailbox_->push(BulkArrival{session.peer, BulkConnected{}});  // what went by this one must be asked for again
  }
}

void ZmqBulkIo::redial(Dealer& dealer) {
  close_dealer(dealer);
  dealer.socket = make_dealer_socket(dealer);
  dealer.handshake.reset();
  dealer.hellos = 0;
  dealer.refuted = 0;
  dealer.hello_again = TimePoint::max();
}

}  // namespace atl
