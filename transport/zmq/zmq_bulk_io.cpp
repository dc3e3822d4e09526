#include "transport/zmq/zmq_bulk_io.hpp"

#include <zmq.h>

#include <algorithm>
#include <utility>

#include "transport/base/check.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/log.hpp"

namespace atl {
namespace {

constexpr int kReadsInARow = 64;  // of one socket, before the others have their turn
constexpr Duration kInboxPatience = std::chrono::seconds(2);
constexpr Duration kTick = std::chrono::milliseconds(200);

void set_option(void* socket, int option, int value) { zmq_setsockopt(socket, option, &value, sizeof value); }

}  // namespace

ZmqBulkIo::ZmqBulkIo(ZmqBulkSettings settings, const BulkIdentity& identity, std::shared_ptr<BlobStore> store,
                     std::shared_ptr<BulkMailbox> mailbox, void* context, void* router, std::optional<AcceptGate> gate)
    : settings_(std::move(settings)),
      identity_(identity),
      store_(std::move(store)),
      mailbox_(std::move(mailbox)),
      context_(context),
      router_(router),
      gate_(std::move(gate)),
      rng_(static_cast<std::uint64_t>(now().time_since_epoch().count()), stream_of(settings_.island.text)) {
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
    const bool full = mailbox_->inbox_bytes() > settings_.inbox_bytes;
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
    if ((items.front().revents & ZMQ_POLLIN) != 0) {
      mailbox_->to_io.drain();
      if (!obey_commands()) {
        return;
      }
      for (const ParkedWant& item : store_->take_unparked()) {
        // A connection may turn out to be gone; then by another.
        for (Session* session = next_session(item.reader); session != nullptr && !serve(*session, item.want);) {
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
  std::vector<std::pair<IslandId, Want>> waiting;
  if (uplink_) {
    waiting = uplink_->take_all();
    uplink_.reset();
  }
  if (chosen > 0) {
    uplink_.emplace(chosen, settings_.queue_wants, now());
  }
  for (const auto& [peer, want] : waiting) {
    for (Session* session = next_session(peer); session != nullptr && !serve(*session, want);) {
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
    if (kept == named.end() || kept->second != peer.who) {
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
    if (peers_.contains(island)) {
      continue;
    }
    Peer& peer = peers_[island];
    admitted_[who.key] = island;
    for (unsigned i = 0; i < settings_.streams && !who.address.empty(); ++i) {
      auto dealer = std::make_unique<Dealer>();
      dealer->peer = island;
      dealer->socket = make_dealer_socket(who.address);
      dealer->hello_again = TimePoint::max();
      dealer->patience = kHelloPatience;
      peer.dealers.push_back(std::move(dealer));
    }
    peer.who = std::move(who);
    mailbox_->update(island, [](PeerTraffic&) {});
  }
  for (const Route& route : std::exchange(not_admitted_, {})) {
    greet(route);  // perhaps it is admitted now
  }
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
  for (Session* session = next_session(want.to); session != nullptr && !send_frame(*session, want.want);) {
    session = next_session(want.to);
  }
}

ZmqBulkIo::Session* ZmqBulkIo::next_session(const IslandId& island) {
  const auto peer = peers_.find(island);
  if (peer == peers_.end() || peer->second.sessions.empty()) {
    return nullptr;
  }
  return &sessions_.at(peer->second.sessions[peer->second.turn++ % peer->second.sessions.size()]);
}

// -------------------------------------------------------------------------------------------------------------- sockets

// Null where the process has no descriptors left: said, and tried again (tick).
void* ZmqBulkIo::make_dealer_socket(const std::string& address) {
  void* socket = zmq_socket(context_, ZMQ_DEALER);
  if (socket == nullptr) {
    log_rarely("bulk link: " + address + " is not dialled for now: " + zmq_strerror(zmq_errno()) + "; this process may have " +
               std::to_string(descriptor_limit()) + " files and connections open (ulimit -n)");
    return nullptr;
  }
  configure_bulk_socket(socket, settings_);
  set_option(socket, ZMQ_IMMEDIATE, 1);     // nothing is kept for a connection that is not there
  set_option(socket, ZMQ_PROBE_ROUTER, 1);  // tells the other side of every new connection
  set_option(socket, ZMQ_RECONNECT_IVL, 200);
  set_option(socket, ZMQ_RECONNECT_IVL_MAX, 10'000);
  if (zmq_connect(socket, address.c_str()) != 0) {
    log_rarely("bulk link: cannot dial " + address + ": " + zmq_strerror(zmq_errno()));
  }
  return socket;
}

void ZmqBulkIo::close_dealer(Dealer& dealer) {
  if (dealer.socket != nullptr) {
    zmq_close(std::exchange(dealer.socket, nullptr));
  }
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
      on_hello(route, parts.front());
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
      continue;
    }
    if (first[0] == kGreet) {
      if (dealer.session != 0) {
        end_session(dealer.session, "the peer began a new session");
      }
      if (!dealer.handshake || now() - dealer.hello_sent > kHelloPatience / 10) {
        say_hello(dealer);
      }
    } else if (first[0] == kWelcome) {
      on_welcome(dealer, first);
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

// -------------------------------------------------------------------------------------------------------- sealed frames

void ZmqBulkIo::reject(Session& session, const std::string& why) {
  mailbox_->update(session.peer, [](PeerTraffic& row) { ++row.frames_rejected; });
  log_rarely("bulk link: island " + session.peer.text + " sent " + why + "; its connection begins anew");
  Dealer* dealer = session.dealer;
  const Route route = session.route;
  end_session(session.id, why);
  if (dealer != nullptr) {
    say_hello(*dealer);
  } else {
    greet(route);
  }
}

void ZmqBulkIo::on_data(std::uint64_t id, Parts& parts) {
  Session& session = sessions_.at(id);
  std::uint64_t size = 0;
  for (const ZmqMessage& part : parts) {
    size += part.bytes().size();
  }
  mailbox_->update(session.peer, [&](PeerTraffic& row) { row.bytes_received += size; });
  const ByteView box = parts.front().bytes().subspan(1);
  std::array<std::byte, kMaxPieceHeadBytes + 1> buffer{};
  ByteView plain = box;
  std::array<std::byte, kBoxTagBytes> bound{};
  if (!identity_.plain) {
    if (box.size() < kBoxTagBytes || box.size() - kBoxTagBytes > buffer.size()) {
      return reject(session, "a box of an impossible size");
    }
    const std::span<std::byte> opened = std::span(buffer).first(box.size() - kBoxTagBytes);
    if (const Status status = aead_.open(session.keys.receive, session.keys.next_receive, {}, box, opened); !status) {
      return reject(session, status.error().why);
    }
    ++session.keys.next_receive;
    std::copy_n(box.end() - kBoxTagBytes, kBoxTagBytes, bound.begin());
    plain = opened;
  }
  session.heard = now();
  if (!session.confirmed) {
    confirm(session);
  }
  if (plain.empty()) {
    return reject(session, "an empty box");
  }
  const auto type = std::to_integer<std::uint8_t>(plain[0]);
  if (type == kFrame) {
    return on_frame(session, plain.subspan(1), bound, parts);
  }
  ByteReader reader(plain.subspan(1));
  const auto stamp = reader.read<std::uint64_t>();
  if (!stamp || parts.size() != 1) {
    return reject(session, "a ping that is none");
  }
  if (type == kPing) {
    send_ping(session, kPong, *stamp);
  } else if (type == kPong) {
    const Duration trip = session.heard.time_since_epoch() - Duration(static_cast<Duration::rep>(*stamp));
    mailbox_->update(session.peer, [&](PeerTraffic& row) { row.round_trip = std::max(Duration(1), trip); });
  }
}

void ZmqBulkIo::on_frame(Session& session, ByteView head, ByteView bound, Parts& parts) {
  Result<Frame> frame = decode_head(head);
  if (!frame) {
    return reject(session, frame.error().why);
  }
  auto* piece = std::get_if<BlobPiece>(&*frame);
  if (parts.size() != (piece == nullptr ? 1U : 2U)) {
    return reject(session, "a frame with the wrong number of parts");
  }
  if (const auto* want = std::get_if<Want>(&*frame)) {
    serve(session, *want);
    return;
  }
  if (auto* gone = std::get_if<Gone>(&*frame)) {
    return mailbox_->push(BulkArrival{session.peer, std::move(*gone)});
  }
  const std::size_t expected = piece->length + (identity_.plain ? 0 : kBoxTagBytes);
  if (parts[1].bytes().size() != expected) {
    return reject(session, "a payload of another length than its head says");
  }
  SealedPiece sealed;
  sealed.piece = std::move(*piece);
  sealed.payload = std::move(parts[1]);
  sealed.plain = identity_.plain;
  sealed.key = session.keys.receive;
  sealed.number = session.keys.next_receive++;
  std::copy(bound.begin(), bound.end(), sealed.bound.begin());
  sealed.session = session.id;
  mailbox_->push(BulkArrival{session.peer, std::move(sealed)});
}

Bytes ZmqBulkIo::seal_first(Session& session, ByteView plain) {
  Bytes message(1 + plain.size() + (identity_.plain ? 0 : kBoxTagBytes));
  message[0] = kData;
  const std::span<std::byte> box = std::span(message).subspan(1);
  if (identity_.plain) {
    std::copy(plain.begin(), plain.end(), box.begin());
  } else {
    aead_.seal(session.keys.send, session.keys.next_send++, {}, plain, box);
  }
  return message;
}

bool ZmqBulkIo::send_message(Session& session, ByteView first, std::optional<ZmqMessage> payload) {
  const std::uint64_t size = first.size() + (payload ? payload->bytes().size() : 0);
  const std::uint64_t id = session.id;
  const IslandId peer = session.peer;
  if (!send_parts(session, ZmqMessage(first), std::move(payload))) {
    end_session(id, "it takes no more frames");
    return false;
  }
  mailbox_->update(peer, [&](PeerTraffic& row) { row.bytes_sent += size; });
  if (uplink_) {
    uplink_->spend(now(), size);
  }
  return true;
}

bool ZmqBulkIo::send_frame(Session& session, const Frame& frame) {
  Bytes plain;
  append_le(plain, kFrame);
  const Bytes head = encode_head(frame);
  plain.insert(plain.end(), head.begin(), head.end());
  return send_message(session, seal_first(session, plain), std::nullopt);
}

void ZmqBulkIo::send_ping(Session& session, std::uint8_t type, std::uint64_t stamp) {
  Bytes plain;
  append_le(plain, type);
  append_le(plain, stamp);
  send_message(session, seal_first(session, plain), std::nullopt);
}

bool ZmqBulkIo::serve(Session& session, const Want& want) {
  if (uplink_) {
    uplink_->add(session.peer, want);  // `serve_uplink` has its turn after this
    return true;
  }
  if (session.flight->carries({want.blob, want.offset})) {
    return true;  // asked again while the answer is still on its way out
  }
  if (session.flight->bytes() >= settings_.queue_bytes || !session.waiting.empty()) {
    const bool waits = std::find(session.waiting.begin(), session.waiting.end(), want) != session.waiting.end();
    if (!waits && session.waiting.size() < settings_.queue_wants) {
      session.waiting.push_back(want);
    }
    session.flight->wake_when_smaller();
    return true;
  }
  const StoreAnswer answer = store_->answer(session.peer, want);
  if (const auto* served = std::get_if<Served>(&answer)) {
    return send_piece(session, *served);
  }
  const auto* gone = std::get_if<Gone>(&answer);
  return gone == nullptr || send_frame(session, *gone);
}

// Head and payload leave as one message: the head's box n, the payload's box n + 1 bound to the head's tag.
bool ZmqBulkIo::send_piece(Session& session, const Served& served) {
  Bytes plain;
  append_le(plain, kFrame);
  const Bytes head = encode_head(served.piece);
  plain.insert(plain.end(), head.begin(), head.end());
  const BulkFlight::PieceKey key{served.piece.blob, served.piece.offset};
  if (identity_.plain) {
    return send_message(session, seal_first(session, plain), session.flight->launch(key, served.payload));
  }
  const std::size_t size = served.payload.bytes.size() + kBoxTagBytes;
  Bytes first = seal_first(session, plain);
  const ByteView bound = ByteView(first).last(kBoxTagBytes);
  SealBuffers::Buffer buffer = session.flight->buffers().take(size);
  aead_.seal(session.keys.send, session.keys.next_send++, bound, served.payload.bytes, std::span(buffer.bytes.get(), size));
  return send_message(session, first, session.flight->launch(key, std::move(buffer), size));
}

void ZmqBulkIo::serve_waiting() {
  std::vector<std::uint64_t> ids;
  for (const auto& [id, session] : sessions_) {
    if (!session.waiting.empty()) {
      ids.push_back(id);
    }
  }
  for (const std::uint64_t id : ids) {
    auto found = sessions_.find(id);
    std::deque<Want> wants = std::exchange(found->second.waiting, {});
    while (!wants.empty() && found != sessions_.end()) {
      if (found->second.flight->bytes() >= settings_.queue_bytes) {
        found->second.waiting = std::move(wants);
        found->second.flight->wake_when_smaller();
        break;
      }
      const Want want = std::move(wants.front());
      wants.pop_front();
      serve(found->second, want);
      found = sessions_.find(id);  // sending may have ended it
    }
  }
}

// Pieces whose bytes the budget has paid for. A piece that a dying connection takes with it is asked for again.
void ZmqBulkIo::serve_uplink() {
  if (!uplink_) {
    return;
  }
  const auto answer = [this](const IslandId& peer, const Want& want) {
    StoreAnswer found = store_->answer(peer, want);
    if (auto* served = std::get_if<Served>(&found)) {
      return std::optional<Served>(std::move(*served));
    }
    if (const auto* gone = std::get_if<Gone>(&found)) {
      for (Session* session = next_session(peer); session != nullptr && !send_frame(*session, *gone);) {
        session = next_session(peer);
      }
    }
    return std::optional<Served>();
  };
  while (const UplinkQueue::Turn* turn = uplink_->ready(now(), answer)) {
    Session* session = next_session(turn->peer);
    if (session == nullptr) {
      uplink_->drop(IslandId(turn->peer));
      continue;
    }
    if (session->flight->bytes() >= settings_.queue_bytes) {
      session->flight->wake_when_smaller();  // the real link is thinner than the budget
      return;
    }
    send_piece(*session, uplink_->pop());
  }
}

// ----------------------------------------------------------------------------------------------------------------- time

void ZmqBulkIo::tick(TimePoint present) {
  std::vector<std::uint64_t> dead;
  std::vector<std::uint64_t> quiet;
  for (const auto& [id, session] : sessions_) {
    if (present - session.heard > (session.confirmed ? settings_.dead_after : kHelloPatienceAtMost)) {
      dead.push_back(id);
    } else if (session.confirmed && present - session.pinged >= settings_.ping_every) {
      quiet.push_back(id);
    }
  }
  for (const std::uint64_t id : dead) {
    Dealer* dealer = sessions_.at(id).dealer;
    end_session(id, "nothing was heard for " + human_duration(settings_.dead_after));
    if (dealer != nullptr) {
      redial(*dealer);
    }
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
        dealer->socket = make_dealer_socket(peer.who.address);
      } else if (dealer->session == 0 && present >= dealer->hello_again) {
        say_hello(*dealer);
      }
    }
  }
  const bool full = mailbox_->inbox_bytes() > settings_.inbox_bytes;
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
