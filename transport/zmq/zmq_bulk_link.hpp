// The bulk link on ZeroMQ: encrypted, authenticated, striped.
//
// Every island binds one ROUTER and dials every peer that has an address with `streams` DEALERs, each a connection of its own; of several
// addresses it chooses one (zmq_bulk_addresses.cpp). Wants go
// round the connections to a peer, and a piece returns where its want came from: one reachable side is enough. On a far path, or a thin
// line on which pings wait behind pieces, wants go round those that this side dialled, or half of them where one side alone dials, so that
// they do not wait behind pieces that go the same way; the reader looks for the number of connections that brings most (stream_count.hpp),
// and the kernel is asked for BBR (tcp_tuning.hpp).
//
// Where neither side can dial the other both meet at a relay (zmq_bulk_ways.cpp); a direct connection goes before it. Addresses that are
// reached through a proxy are dialled through it, relays included (relay_tunnels.hpp).
// Handshake and sealing: bulk_session.hpp. On every new connection the accepting side greets (u8 1, u8 version), the dialling side says
// hello, the accepting side welcomes; then each message is u8 4 and a sealed head, and a second part with the sealed payload where
// the head is a piece's. A key that was not admitted gets no answer. Boxes are numbered by both sides and not on the wire: a repeated,
// lost, moved or foreign frame does not open and ends the session, which is then made anew; a frame of an earlier session
// opens with no later key. Head and payload are two boxes, the payload bound to its head, so a head is authentic before it
// decides where bytes go.
// CURVE is not used: it moves about 0.3 GB/s a core where AES-256-GCM does several. `insecure` (loopback only) sends plain frames and
// believes the key in the hello.
//
// Copies of a payload byte. Sending: one pass that encrypts from the owner's buffer into the message ZeroMQ then writes to the kernel
// (insecure: none, ZeroMQ gets the owner's buffer). Receiving: ZeroMQ reads from the kernel into its message; one pass decrypts from
// there to the reader's destination (insecure: one copy). Kernel copies apart, that is one pass on each side.
//
// Back-pressure: at most `queue_bytes` a connection are handed to ZeroMQ and not yet in the kernel; further wants of that peer wait, at
// most `queue_wants`, then are dropped (the reader asks again). All connections together hold no more than the outbox of
// `link_memory_bytes`, but each at least one piece. With the inbox full of pieces that the caller has not fetched the link stops reading,
// so that TCP slows the senders; what nobody fetches for two seconds is dropped. A budget: with `uplink_bits_per_second` pieces leave no
// faster, peers in turn (uplink_queue.hpp); small frames count but do not wait. A peer that vanishes: its connections are closed after
// `dead_after` without a sign of life; nothing waits for it. Threads: one caller; the link has an I/O thread of its own which owns all
// sockets, plus ZeroMQ's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/address_choice.hpp"
#include "transport/bulk/bulk_link.hpp"
#include "transport/bulk/link_memory.hpp"
#include "transport/proxy/proxy_rules.hpp"

namespace atl {

inline constexpr unsigned kMostStreams = 32;  // to one peer: with a loss in a thousand and 100 ms, TCP's Reno sends 4.5 Mbit/s over each

struct ZmqBulkSettings {
  IslandId island;
  std::string public_key;          // Curve25519, Z85
  std::string secret_key;          // Z85
  std::string bind = "tcp://*:0";  // empty: do not listen, only dial
  bool insecure = false;
  unsigned streams = 2;                           // at first; see stream_count.hpp
  double uplink_bits_per_second = 0;              // 0: as fast as it goes
  std::uint64_t link_memory_bytes = kLinkMemory;  // link_memory.hpp; its inbox and outbox are kept here
  std::uint64_t queue_bytes = 4ULL << 20;
  std::size_t queue_wants = 8192;
  bool hole_punching = true;  // where relays are offered, and there is no direct way
  InterfaceRules interfaces;  // its owner's
  ProxyRules proxy = own_proxy();
  Duration ping_every = std::chrono::seconds(2);
  Duration dead_after = std::chrono::seconds(30);  // longer than a piece takes on the slowest link
};

class ZmqBulkLink : public BulkLink {
 public:
  // Binds and starts. Errors: invalid_argument (keys; insecure and not loopback), conflict (address in use), io.
  static Result<std::unique_ptr<ZmqBulkLink>> open(const ZmqBulkSettings& settings, std::shared_ptr<BlobStore> store);
  // Where it listens, with the real port: "tcp://0.0.0.0:41234"; empty if it does not.
  [[nodiscard]] virtual std::string bound_address() const = 0;
};

}  // namespace atl
