#include "transport/zmq/zmq_bulk_link.hpp"

#include <malloc.h>
#include <poll.h>
#include <zmq.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "transport/base/address.hpp"
#include "transport/bulk/packing.hpp"
#include "transport/zmq/name_lookup.hpp"
#include "transport/zmq/zmq_bulk_io.hpp"

namespace atl {
namespace {

// A context and the router in it, until the I/O thread has taken them.
struct Sockets {
  void* context = nullptr;
  void* router = nullptr;
  std::optional<AcceptGate> gate;  // of the router
  std::string bound;
};

Error cannot_listen(const std::string& address) {
  const int number = zmq_errno();
  const Code code = number == EADDRINUSE ? Code::conflict : number == EINVAL ? Code::invalid_argument : Code::io;
  const std::string advice = number == EADDRINUSE ? "; another program has this port: choose another, or port 0 for any" : "";
  return Error{code, "bulk link: cannot listen on " + address + ": " + zmq_strerror(number) + advice};
}

Status listen(Sockets& sockets, const ZmqBulkSettings& settings) {
  if (settings.bind.empty()) {
    return {};
  }
  ATOLL_ASSIGN(const Address address, parse_address(settings.bind));
  if (settings.insecure && !address.is_loopback()) {
    return Error{Code::invalid_argument, "bulk link: --insecure is for loopback addresses only, not " + settings.bind};
  }
  sockets.router = zmq_socket(sockets.context, ZMQ_ROUTER);
  if (sockets.router == nullptr) {
    return Error{Code::io, std::string("bulk link: no socket: ") + zmq_strerror(zmq_errno())};
  }
  configure_bulk_socket(sockets.router, settings);
  set_option(sockets.router, ZMQ_BACKLOG, 256);  // what is accepted at once, before the gate looks
  ATOLL_ASSIGN(AcceptGate gate, AcceptGate::open(sockets.context, sockets.router, "the bulk link's port"));
  sockets.gate.emplace(std::move(gate));
  const bool both_families = address.host == "*" || address.host.find(':') != std::string::npos;
  set_option(sockets.router, ZMQ_IPV6, both_families ? 1 : 0);  // else 127.0.0.1 would be reported as ::ffff:127.0.0.1
  set_option(sockets.router, ZMQ_ROUTER_MANDATORY, 1);
  if (zmq_bind(sockets.router, to_string(address).c_str()) != 0) {
    return cannot_listen(settings.bind);
  }
  std::array<char, 256> endpoint{};
  std::size_t length = endpoint.size();
  zmq_getsockopt(sockets.router, ZMQ_LAST_ENDPOINT, endpoint.data(), &length);
  sockets.bound = endpoint.data();
  return {};
}

std::uint16_t port_of(const std::string& bound) {
  const Result<Address> address = parse_address(bound);
  return address ? address->port : std::uint16_t{0};
}

// ZeroMQ allocates each message that comes in and frees it when its piece is opened. The allocator would give that memory back to the
// system and fault it in again page by page, which costs more than the copy; so it keeps some of what is freed, in the whole process.
void keep_freed_memory() {
  static const bool kIsKept = [] {
    constexpr int kFromHeap = 32 << 20;  // the most that glibc lets it be; a piece has 4 MiB at most
    constexpr int kKept = 64 << 20;      // of each thread that allocates
    return ::mallopt(M_MMAP_THRESHOLD, kFromHeap) == 1 && ::mallopt(M_TRIM_THRESHOLD, kKept) == 1;
  }();
  static_cast<void>(kIsKept);
}

class Link final : public ZmqBulkLink {
 public:
  Link(const ZmqBulkSettings& settings, const BulkIdentity& identity, std::shared_ptr<BlobStore> store, Sockets sockets)
      : self_(settings.island),
        insecure_(settings.insecure),
        interfaces_(settings.interfaces),
        store_(std::move(store)),
        mailbox_(std::make_shared<BulkMailbox>(settings.queue_wants)),
        context_(sockets.context),
        bound_(sockets.bound) {
    store_->set_listener([mailbox = mailbox_] { mailbox->to_io.wake(); });
    auto io = std::make_unique<ZmqBulkIo>(settings, identity, store_, mailbox_, sockets.context, sockets.router, port_of(sockets.bound),
                                          std::move(sockets.gate));
    thread_ = std::thread([owned = std::move(io)]() mutable {
      owned->run();
      owned.reset();  // sockets are closed by the thread that used them
    });
  }
  ~Link() override {
    store_->set_listener({});
    mailbox_->push(StopBulkIo{});
    thread_.join();
    while (mailbox_->pop()) {
    }
    zmq_ctx_term(context_);
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Status set_peers(std::span<const Member> peers) override {
    Status status;
    std::vector<BulkPeer> wanted;
    for (const Member& member : peers) {
      if (member.island == self_) {
        continue;
      }
      const Result<BulkPeer> peer = read(member);
      if (peer) {
        wanted.push_back(*peer);
      } else {
        status = peer.error();
      }
    }
    mailbox_->push(SetBulkPeers{std::move(wanted)});
    return status;
  }

  // With keys that are believed there is nothing that a relay could not read.
  void set_relays(std::span<const RelayOffer> relays) override {
    std::vector<RelayOffer> usable;
    for (const RelayOffer& relay : relays) {
      if (const Result<Address> address = parse_address(relay.address); address && !insecure_ && !is_barred(*address)) {
        usable.push_back({relay.name, to_string(*address), relay.pass, relay.carries});
      }
    }
    mailbox_->push(SetBulkRelays{std::move(usable)});
  }

  void set_uplink(double bits_per_second) override { mailbox_->push(SetBulkUplink{bits_per_second}); }

  Status want(const OutgoingWant& want) override { return mailbox_->push_want(want); }

  bool receive(TimePoint now, PieceReceiver& receiver) override {
    std::optional<BulkArrival> arrival = mailbox_->pop();
    if (!arrival) {
      return false;
    }
    if (const auto* sealed = std::get_if<SealedPiece>(&arrival->what)) {
      open(now, arrival->from, *sealed, receiver);
    } else if (const auto* gone = std::get_if<Gone>(&arrival->what)) {
      receiver.gone(now, arrival->from, *gone);
    } else if (const auto* over = std::get_if<BulkAskedOver>(&arrival->what)) {
      receiver.asked_over(arrival->from, over->connections);
    } else if (const auto* way = std::get_if<BulkWay>(&arrival->what)) {
      receiver.way_changed(arrival->from, way->way);
    } else {
      receiver.connected(now, arrival->from);
    }
    return true;
  }

  bool wait(Duration at_most) override {
    ::pollfd item{mailbox_->to_caller.fd(), POLLIN, 0};
    const TimePoint end = now() + at_most;
    while (!mailbox_->has_arrivals()) {
      mailbox_->to_caller.drain();
      if (mailbox_->has_arrivals()) {
        mailbox_->to_caller.wake();
        return true;
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - now()).count();
      if (left <= 0 || ::poll(&item, 1, static_cast<int>(std::min<std::int64_t>(left, 1'000'000))) == 0) {
        return mailbox_->has_arrivals();
      }
    }
    return true;
  }

  [[nodiscard]] int pollable_fd() const override { return mailbox_->to_caller.fd(); }
  [[nodiscard]] BlobStore& store() override { return *store_; }
  [[nodiscard]] std::vector<PeerTraffic> traffic() const override { return mailbox_->rows(); }
  [[nodiscard]] std::string bound_address() const override { return bound_; }

 private:
  [[nodiscard]] Result<BulkPeer> read(const Member& member) const {
    const std::string who = "bulk link: island " + member.island.text;
    Result<Key> key = key_from_z85(member.public_key);
    if (!key) {
      return with_context(std::move(key).error(), who);
    }
    if (member.bulk_address.empty()) {
      return BulkPeer{member.island, *key, ""};
    }
    std::vector<std::string> addresses;
    for (const std::string& text : addresses_in(member.bulk_address)) {
      Result<Address> address = parse_address(text);
      if (!address) {
        return with_context(std::move(address).error(), who);
      }
      if (!insecure_ || address->is_loopback()) {
        addresses.push_back(to_string(*address));
      }
    }
    if (addresses.empty()) {
      return Error{Code::invalid_argument, who + ": --insecure is for loopback addresses only, not " + member.bulk_address};
    }
    return BulkPeer{member.island, *key, address_text(addresses)};
  }

  // Of a name that cannot be resolved now nothing is known: it is not taken then.
  [[nodiscard]] bool is_barred(const Address& relay) const {
    if (interfaces_.never_over.empty()) {
      return false;
    }
    const Result<std::vector<Address>> hosts = resolve(relay);
    const std::vector<InterfaceAddress> own = interface_addresses();
    return !hosts || std::ranges::any_of(*hosts, [&](const Address& one) { return interfaces_.bars(interface_towards(one.host, own)); });
  }

  // The one pass over the bytes on this side: from ZeroMQ's message to the destination. Packed ones take a second.
  void open(TimePoint now, const IslandId& from, const SealedPiece& sealed, PieceReceiver& receiver) {
    const std::span<std::byte> place = receiver.destination(from, sealed.piece);
    if (place.empty() && sealed.piece.length > 0) {
      return;
    }
    ATOLL_CHECK(place.size() == sealed.piece.length, "a destination has room for exactly the piece");
    const bool packed = sealed.piece.packed > 0;
    if (packed) {
      packed_.resize(sealed.piece.packed);
    }
    const std::span<std::byte> opened = packed ? std::span(packed_) : place;
    const ByteView payload = sealed.payload.bytes();
    if (sealed.plain) {
      std::copy(payload.begin(), payload.end(), opened.begin());
    } else if (!aead_.open(sealed.key, sealed.number, sealed.bound, payload, opened)) {
      mailbox_->push(EndBulkSession{sealed.session});
      return;
    }
    if (packed) {
      if (const Status unpacked = unpack(opened, place); !unpacked) {
        receiver.gone(now, from, Gone{sealed.piece.blob, unpacked.error().code, unpacked.error().why});
        return;
      }
    }
    receiver.arrived(now, from, sealed.piece);
  }

  const IslandId self_;
  const bool insecure_;
  const InterfaceRules interfaces_;
  const std::shared_ptr<BlobStore> store_;
  const std::shared_ptr<BulkMailbox> mailbox_;
  void* const context_;
  const std::string bound_;
  AeadContext aead_;
  Bytes packed_;  // a packed piece that was opened
  std::thread thread_;
};

}  // namespace

void configure_bulk_socket(void* socket, const ZmqBulkSettings& settings) {
  const auto dead_after = std::chrono::ceil<std::chrono::seconds>(settings.dead_after).count();
  const int dead_seconds = static_cast<int>(std::clamp<std::int64_t>(dead_after, 1, 3600));
  set_option(socket, ZMQ_LINGER, 0);
  set_option(socket, ZMQ_IPV6, 1);
  set_option(socket, ZMQ_SNDHWM, 0);  // bounded by what is in flight, see bulk_flight.hpp
  set_option(socket, ZMQ_RCVHWM, 0);  // bounded by what was asked for; see control_server.cpp for what a limit would do
  // A domain makes ZeroMQ refuse peers of its protocols 1 and 2, as nobody here is; nothing else comes of it without a handler. Such a
  // greeting, or foreign bytes that look like one, aborts the process (an assertion in libzmq 4.3) where it comes while a socket is closed.
  zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, "atoll", 5);
  // The kernel clears away what a vanished host left; the link's own pings are quicker. Not ZeroMQ's heartbeats: see there.
  set_option(socket, ZMQ_TCP_KEEPALIVE, 1);
  set_option(socket, ZMQ_TCP_KEEPALIVE_IDLE, dead_seconds);
  set_option(socket, ZMQ_TCP_KEEPALIVE_INTVL, dead_seconds);
  set_option(socket, ZMQ_TCP_KEEPALIVE_CNT, 2);
  set_option(socket, ZMQ_TCP_MAXRT, 3'000 * dead_seconds);
  const std::int64_t longest = kMaxPieceBytes + kMaxPieceHeadBytes;
  zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest);
}

Result<std::unique_ptr<ZmqBulkLink>> ZmqBulkLink::open(const ZmqBulkSettings& settings, std::shared_ptr<BlobStore> store) {
  keep_freed_memory();
  BulkIdentity identity;
  identity.plain = settings.insecure;
  ATOLL_ASSIGN(identity.public_key, key_from_z85(settings.public_key));
  const Result<Key> secret = key_from_z85(settings.secret_key);
  if (!secret) {
    return Error{Code::invalid_argument, "bulk link: the secret key is not a key (40 characters Z85)"};
  }
  identity.secret_key = *secret;
  if (settings.streams == 0 || settings.streams > kMostStreams) {
    return Error{Code::invalid_argument,
                 "bulk link: streams must be 1 to " + std::to_string(kMostStreams) + ", not " + std::to_string(settings.streams)};
  }
  Sockets sockets;
  sockets.context = zmq_ctx_new();
  if (const Status status = listen(sockets, settings); !status) {
    sockets.gate.reset();
    if (sockets.router != nullptr) {
      zmq_close(sockets.router);
    }
    zmq_ctx_term(sockets.context);
    return status.error();
  }
  return std::unique_ptr<ZmqBulkLink>(std::make_unique<Link>(settings, identity, std::move(store), std::move(sockets)));
}

}  // namespace atl
