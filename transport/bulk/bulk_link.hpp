// The bulk link: carries wants, pieces and refusals between islands. Two kinds, one contract (tests/contract): zmq_bulk_link.hpp for
// real networks, simulated_network.hpp on virtual time.
//
// A link has two halves. *Serving*: every Want that arrives is answered from the link's BlobStore without the caller's help
// (ZeroMQ: on the link's own thread, so that peers are served while the caller computes). *Reading*: the caller sends wants and
// `receive` hands it what came, writing each payload straight to the place the reader names. What the caller sends is small, so
// nothing it does blocks.
// A link promises little: frames may be lost at a reconnect, and on the simulated network also repeated, delayed and
// reordered. ExchangeAttempt and BlobFetch make certainty of that by asking again. A frame that arrives was sent by the peer it
// is said to come from and was not altered.
// Threads: one caller thread uses a link; its store may be used by any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/bulk/piece.hpp"
#include "transport/control/message.hpp"

namespace atl {

// A want on its way to a peer.
struct OutgoingWant {
  IslandId to;
  Want want;
  friend bool operator==(const OutgoingWant&, const OutgoingWant&) = default;
};

// Who takes what arrives: an ExchangeAttempt, a BlobFetch, or the agent's switchboard over several.
class PieceReceiver {
 public:
  virtual ~PieceReceiver() = default;
  // Where the payload of this piece goes: exactly piece.length bytes, or empty if it is not wanted (any more). The bytes are
  // written before they are known to be authentic; only `arrived` makes them valid.
  virtual std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) = 0;
  // The payload is complete and authentic at the destination.
  virtual void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) = 0;
  virtual void gone(TimePoint now, const IslandId& from, const Gone& gone) = 0;
  // A connection to this peer was made (again): what was asked before may be lost.
  virtual void connected(TimePoint now, const IslandId& peer) = 0;
  // From now on this peer is asked over so many connections; each wants something to do (PathWindow::asked_over).
  virtual void asked_over(const IslandId& /*peer*/, unsigned /*connections*/) {}
  // This peer is reached another way than before, or not at all (nothing).
  virtual void way_changed(const IslandId& /*peer*/, const std::optional<Way>& /*way*/) {}
};

struct PeerTraffic {
  IslandId peer;
  bool connected = false;
  std::uint64_t bytes_sent = 0;  // frames and payloads, since the link was made
  std::uint64_t bytes_received = 0;
  std::uint64_t frames_rejected = 0;  // garbage, replayed, not authentic
  Duration round_trip{};              // 0: not measured yet
  std::uint64_t pieces_sent = 0;      // frames with a payload
};

class BulkLink {
 public:
  virtual ~BulkLink() = default;

  // Whom to dial, whom to admit. A peer with an empty bulk_address is admitted but not dialled (a visitor, or one that can only
  // dial us). Peers not named any more are disconnected. This island itself may be among them and is passed over.
  // Errors: invalid_argument for a key that is none; the other peers are still set.
  virtual Status set_peers(std::span<const Member> peers) = 0;

  // Where this island meets peers that it cannot dial, nor they it: in the order in which they are tried. Others than before replace them.
  virtual void set_relays(std::span<const RelayOffer> /*relays*/) {}

  // A budget for what leaves from now on, in bits a second, beside the link's own: the smaller one holds. 0: none beside it.
  virtual void set_uplink(double bits_per_second) = 0;

  // Sends a want. Errors: unavailable if the peer is not connected or its queue is full; nothing is queued then.
  virtual Status want(const OutgoingWant& want) = 0;

  // Hands at most one frame or event to the receiver; false if there was none. Never blocks.
  virtual bool receive(TimePoint now, PieceReceiver& receiver) = 0;

  // Until `receive` has something, or the time is over (real time; a simulated link returns at once). True: there is something.
  virtual bool wait(Duration at_most) = 0;
  // Readable while `receive` has something; -1 on a simulated link.
  [[nodiscard]] virtual int pollable_fd() const = 0;

  [[nodiscard]] virtual BlobStore& store() = 0;
  [[nodiscard]] virtual std::vector<PeerTraffic> traffic() const = 0;
};

}  // namespace atl
