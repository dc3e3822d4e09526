// What the two threads of a ZeroMQ bulk link say to each other: commands to the I/O thread, arrivals to the caller.
// Threads: any; one mutex, held only to move values.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "transport/bulk/bulk_link.hpp"
#include "transport/bulk/bulk_session.hpp"
#include "transport/zmq/waker.hpp"
#include "transport/zmq/zmq_message.hpp"

namespace atl {

struct BulkPeer {
  IslandId island;
  Key key{};
  std::string address;  // one or several (transport/base/address.hpp); empty: not dialled
  friend bool operator==(const BulkPeer&, const BulkPeer&) = default;
};

// Commands.
struct SetBulkPeers {
  std::vector<BulkPeer> peers;
};
struct EndBulkSession {  // one of its boxes was not authentic
  std::uint64_t session = 0;
};
struct SetBulkUplink {
  double bits_per_second = 0;
};
struct SetBulkRelays {
  std::vector<RelayOffer> relays;
};
struct StopBulkIo {};
using BulkCommand = std::variant<SetBulkPeers, SetBulkUplink, SetBulkRelays, OutgoingWant, EndBulkSession, StopBulkIo>;

// Arrivals. A piece is still sealed: the caller's thread opens it into its destination.
struct SealedPiece {
  BlobPiece piece;
  ZmqMessage payload;
  bool plain = false;
  Key key{};
  std::uint64_t number = 0;                     // of its box
  std::array<std::byte, kBoxTagBytes> bound{};  // the tag of its head
  std::uint64_t session = 0;
};
struct BulkConnected {};
struct BulkAskedOver {
  unsigned connections = 0;
};
struct BulkWay {
  std::optional<Way> way;  // nothing: it is not connected any more
};
struct BulkArrival {
  IslandId from;
  std::variant<SealedPiece, Gone, BulkConnected, BulkAskedOver, BulkWay> what;
};

class BulkMailbox {
 public:
  explicit BulkMailbox(std::size_t queue_wants) : queue_wants_(queue_wants) {}

  void push(BulkCommand command) {
    const std::lock_guard lock(mutex_);
    if (commands_.empty()) {
      to_io.wake();
    }
    commands_.push_back(std::move(command));
  }
  // Errors: unavailable if the peer is not connected or too many wants wait for it.
  Status push_want(const OutgoingWant& want) {
    const std::lock_guard lock(mutex_);
    const auto row = rows_.find(want.to);
    if (row == rows_.end() || !row->second.connected) {
      return Error{Code::unavailable, "island " + want.to.text + " is not connected"};
    }
    std::size_t& queued = wants_queued_[want.to];
    if (queued >= queue_wants_) {
      return Error{Code::unavailable, "too many wants wait for island " + want.to.text};
    }
    ++queued;
    if (commands_.empty()) {
      to_io.wake();
    }
    commands_.emplace_back(want);
    return {};
  }
  std::deque<BulkCommand> take_commands() {
    const std::lock_guard lock(mutex_);
    wants_queued_.clear();
    return std::exchange(commands_, {});
  }

  void push(BulkArrival arrival) {
    const std::lock_guard lock(mutex_);
    inbox_bytes_ += size_of(arrival);
    if (inbox_.empty()) {
      to_caller.wake();
    }
    inbox_.push_back(std::move(arrival));
  }
  std::optional<BulkArrival> pop() {
    const std::lock_guard lock(mutex_);
    if (inbox_.empty()) {
      to_caller.drain();
      return std::nullopt;
    }
    BulkArrival arrival = std::move(inbox_.front());
    inbox_.pop_front();
    inbox_bytes_ -= size_of(arrival);
    return arrival;
  }
  [[nodiscard]] bool has_arrivals() const {
    const std::lock_guard lock(mutex_);
    return !inbox_.empty();
  }
  [[nodiscard]] std::uint64_t inbox_bytes() const {
    const std::lock_guard lock(mutex_);
    return inbox_bytes_;
  }
  // Nobody takes them: pieces are dropped, the rest stays.
  void drop_pieces() {
    const std::lock_guard lock(mutex_);
    std::erase_if(inbox_, [](const BulkArrival& arrival) { return std::holds_alternative<SealedPiece>(arrival.what); });
    inbox_bytes_ = 0;
  }

  // Changes the row of a peer; makes it if need be.
  template <typename Change>
  void update(const IslandId& peer, Change change) {
    const std::lock_guard lock(mutex_);
    PeerTraffic& row = rows_[peer];
    row.peer = peer;
    change(row);
  }
  void forget(const IslandId& peer) {
    const std::lock_guard lock(mutex_);
    rows_.erase(peer);
  }
  [[nodiscard]] std::vector<PeerTraffic> rows() const {
    const std::lock_guard lock(mutex_);
    std::vector<PeerTraffic> rows;
    for (const auto& [peer, row] : rows_) {
      rows.push_back(row);
    }
    return rows;
  }

  Waker to_io;
  Waker to_caller;

 private:
  static std::uint64_t size_of(const BulkArrival& arrival) {
    const auto* piece = std::get_if<SealedPiece>(&arrival.what);
    return piece == nullptr ? 0 : piece->payload.bytes().size();
  }

  const std::size_t queue_wants_;
  mutable std::mutex mutex_;
  std::deque<BulkCommand> commands_;
  std::map<IslandId, std::size_t> wants_queued_;
  std::deque<BulkArrival> inbox_;
  std::uint64_t inbox_bytes_ = 0;
  std::map<IslandId, PeerTraffic> rows_;
};

}  // namespace atl
