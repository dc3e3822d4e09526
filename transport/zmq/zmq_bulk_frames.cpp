// The bulk link's sealed frames: what a session's boxes say, wants and the pieces that answer them, within the uplink's budget.
#include <algorithm>
#include <utility>

#include "transport/zmq/tcp_tuning.hpp"
#include "transport/zmq/zmq_bulk_io.hpp"

namespace atl {
namespace {

constexpr Duration kTripsKept = std::chrono::seconds(30);
constexpr Duration kFarTrip = std::chrono::milliseconds(10);
constexpr Duration kQueuedTrip = std::chrono::milliseconds(40);  // of a ping behind pieces, on a thin line: wants wait as long there

}  // namespace

void ZmqBulkIo::reject(Session& session, const std::string& why) {
  mailbox_->update(session.peer, [](PeerTraffic& row) { ++row.frames_rejected; });
  log_rarely("bulk link: island " + session.peer.text + " sent " + why + "; its connection begins anew");
  Dealer* dealer = session.dealer;
  const Route route = session.route;
  const IslandId peer = session.peer;
  const unsigned way = session.way;
  end_session(session.id, why);
  if (way > 0) {
    redial(*dealer);  // with what the relay made of this connection nothing can be begun
    blame_place(peer, way, why);
  } else if (dealer != nullptr) {
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
  peers_.at(session.peer).received += size;
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
    on_pong(session, std::max(Duration(1), session.heard.time_since_epoch() - Duration(static_cast<Duration::rep>(*stamp))));
  }
}

// The shortest of a while: a pong may have waited behind pieces.
void ZmqBulkIo::on_pong(Session& session, Duration trip) {
  mailbox_->update(session.peer, [&](PeerTraffic& row) { row.round_trip = trip; });
  Peer& peer = peers_.at(session.peer);
  if (peer.round_trip == Duration::zero() || trip <= peer.round_trip || session.heard - peer.trip_from > kTripsKept) {
    peer.round_trip = trip;
    peer.trip_from = session.heard;
  }
  if (!peer.far && (peer.round_trip >= kFarTrip || trip >= kQueuedTrip)) {
    peer.far = true;
    divide(peer);
  }
  if (!session.far && peer.round_trip >= kFarTrip) {
    session.far = true;
    use_far_congestion_control(session.source);
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
  session.owed -= std::min<std::uint64_t>(session.owed, piece->length);
  session.owed_since = session.heard;
  const std::size_t expected = piece->payload_bytes() + (identity_.plain ? 0 : kBoxTagBytes);
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
  const std::uint64_t pieces = payload ? 1 : 0;
  const std::uint64_t id = session.id;
  const IslandId peer = session.peer;
  if (!send_parts(session, ZmqMessage(first), std::move(payload))) {
    end_session(id, "it takes no more frames");
    return false;
  }
  mailbox_->update(peer, [&](PeerTraffic& row) {
    row.bytes_sent += size;
    row.pieces_sent += pieces;
  });
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
    uplink_->add(session.peer, {want, session.id});  // `serve_uplink` has its turn after this
    return true;
  }
  if (session.flight->carries({want.blob, want.offset})) {
    return true;  // asked again while the answer is still on its way out
  }
  if (!has_room(session) || !session.waiting.empty()) {
    session.waiting.push(want, settings_.queue_wants);
    session.flight->wake_when_smaller();
    return true;
  }
  const StoreAnswer answer = store_->answer(session.peer, {want, session.id});
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
    WantQueue wants = std::exchange(found->second.waiting, {});
    while (!wants.empty() && found != sessions_.end()) {
      if (!has_room(found->second)) {
        found->second.waiting = std::move(wants);
        found->second.flight->wake_when_smaller();
        break;
      }
      serve(found->second, wants.pop().want);
      found = sessions_.find(id);  // sending may have ended it
    }
  }
}

// Pieces whose bytes the budget has paid for. A piece that a dying connection takes with it is asked for again.
void ZmqBulkIo::serve_uplink() {
  if (!uplink_) {
    return;
  }
  const auto answer = [this](const IslandId& peer, const WantOver& asked) {
    StoreAnswer found = store_->answer(peer, asked);
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
    Session* session = session_of(turn->peer, turn->connection);
    if (session == nullptr) {
      uplink_->drop(IslandId(turn->peer));
      continue;
    }
    if (!has_room(*session)) {
      session->flight->wake_when_smaller();  // the real link is thinner than the budget
      return;
    }
    send_piece(*session, uplink_->pop());
  }
}

}  // namespace atl
