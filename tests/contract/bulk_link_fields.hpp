// Islands with bulk links, on virtual time or on real sockets, behind one face for the contract suite.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "transport/identity/identity.hpp"
#include "transport/simulated/simulated_network.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl_test {

using namespace atl;
using namespace std::chrono_literals;

// Takes everything and remembers it.
class Basket final : public PieceReceiver {
 public:
  std::span<std::byte> destination(const IslandId& /*from*/, const BlobPiece& piece) override {
    if (refuse) {
      return {};
    }
    buffer_.assign(piece.length, std::byte{});
    return buffer_;
  }
  void arrived(TimePoint /*now*/, const IslandId& from, const BlobPiece& piece) override {
    pieces[{from, piece.blob, piece.offset}] = buffer_;
    bytes += piece.length;
    last = piece;
  }
  void gone(TimePoint /*now*/, const IslandId& from, const Gone& gone) override { refusals.emplace_back(from, gone); }
  void connected(TimePoint /*now*/, const IslandId& peer) override { ++connections[peer]; }
  void way_changed(const IslandId& peer, const std::optional<Way>& way) override { ways[peer] = way; }

  bool refuse = false;
  std::map<std::tuple<IslandId, BlobId, std::uint64_t>, Bytes> pieces;
  std::vector<std::pair<IslandId, Gone>> refusals;
  std::map<IslandId, int> connections;
  std::map<IslandId, std::optional<Way>> ways;
  std::uint64_t bytes = 0;
  BlobPiece last;

 private:
  Bytes buffer_;
};

struct FieldIsland {
  IslandId id;
  KeyPair keys;
  std::shared_ptr<BlobStore> store = std::make_shared<BlobStore>();
  std::unique_ptr<BulkLink> link;
  Basket basket;
  Member member;
};

class Field {
 public:
  virtual ~Field() = default;
  // Makes this island's link, at the address it had before.
  virtual void open(FieldIsland& island) = 0;
  // Lets everything move on for a moment.
  virtual void pause() = 0;
  virtual TimePoint time() = 0;
  virtual Duration patience() = 0;

  FieldIsland& add() {
    auto island = std::make_unique<FieldIsland>();
    island->keys = make_key_pair().value();
    island->id = island_of(island->keys.public_key);
    island->member = Member{island->id, "", island->keys.public_key, ""};
    islands.push_back(std::move(island));
    open(*islands.back());
    return *islands.back();
  }
  std::vector<Member> members() const {
    std::vector<Member> members;
    for (const auto& island : islands) {
      members.push_back(island->member);
    }
    return members;
  }
  void introduce() {
    for (const auto& island : islands) {
      if (island->link) {
        REQUIRE(island->link->set_peers(members()));
      }
    }
  }
  void receive() {
    for (const auto& island : islands) {
      while (island->link && island->link->receive(time(), island->basket)) {
      }
    }
  }
  // Polls until it holds.
  bool until(const std::function<bool()>& holds) { return until(holds, patience()); }
  bool until(const std::function<bool()>& holds, Duration at_most) {
    const TimePoint end = time() + at_most;
    while (true) {
      receive();
      if (holds()) {
        return true;
      }
      if (time() >= end) {
        return false;
      }
      pause();
    }
  }
  bool connected(const FieldIsland& from, const FieldIsland& to) {
    for (const PeerTraffic& row : from.link->traffic()) {
      if (row.peer == to.id) {
        return row.connected;
      }
    }
    return false;
  }

  std::vector<std::unique_ptr<FieldIsland>> islands;
};

class SimulatedField final : public Field {
 public:
  ~SimulatedField() override { islands.clear(); }
  void open(FieldIsland& island) override { island.link = network.bulk_link(island.id, island.store); }
  void pause() override { network.advance_to(network.next_event().value_or(network.now() + 100ms)); }
  TimePoint time() override { return network.now(); }
  Duration patience() override { return 60s; }

  SimulatedNetwork network{1};
};

template <bool insecure>
class ZmqField : public Field {
 public:
  void open(FieldIsland& island) override {
    ZmqBulkSettings with = settings;
    with.island = island.id;
    with.public_key = island.keys.public_key;
    with.secret_key = island.keys.secret_key;
    with.insecure = insecure;
    with.bind = island.member.bulk_address.empty() ? "tcp://127.0.0.1:0" : island.member.bulk_address;
    // A socket that was closed a moment ago may still hold the port.
    const TimePoint end = now() + patience();
    auto link = ZmqBulkLink::open(with, island.store);
    while (!link && link.error().code == Code::conflict && now() < end) {
      link = ZmqBulkLink::open(with, island.store);
    }
    REQUIRE(link);
    island.member.bulk_address = (*link)->bound_address();
    island.link = std::move(link).value();
  }
  void pause() override {
    for (const auto& island : islands) {
      if (island->link && island->link->wait(2ms)) {
        return;
      }
    }
  }
  TimePoint time() override { return now(); }
  Duration patience() override { return 20s; }

  ZmqBulkSettings settings;
};
using SealedField = ZmqField<false>;
using PlainField = ZmqField<true>;

}  // namespace atl_test
