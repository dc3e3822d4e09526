#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "transport/base/check.hpp"
#include "transport/bulk/bulk_link.hpp"
#include "transport/bulk/packing.hpp"
#include "transport/simulated/simulated_paths.hpp"

namespace atl {

class SimulatedBulkLink final : public BulkLink {
 public:
  SimulatedBulkLink(SimulatedNetwork::State& network, IslandId self, std::shared_ptr<BlobStore> store)
      : network_(network), self_(std::move(self)), store_(std::move(store)), serial_(network.next_serial++) {
    ATOLL_CHECK(network_.bulk.emplace(self_.text, this).second, "one bulk link an island");
    store_->set_listener([this] { serve_unparked(); });
  }
  ~SimulatedBulkLink() override {
    store_->set_listener({});
    network_.bulk.erase(self_.text);
    network_.reconsider();
  }
  SimulatedBulkLink(const SimulatedBulkLink&) = delete;
  SimulatedBulkLink& operator=(const SimulatedBulkLink&) = delete;

  Status set_peers(std::span<const Member> peers) override {
    std::map<IslandId, Peer> kept;
    for (const Member& member : peers) {
      if (member.island == self_) {
        continue;
      }
      const auto known = peers_.find(member.island);
      Peer& peer = kept[member.island] = known == peers_.end() ? Peer{} : std::move(known->second);
      peer.address = member.bulk_address;
    }
    for (const auto& [island, peer] : peers_) {
      if (!kept.contains(island)) {
        store_->drop_reader(island);
      }
    }
    peers_ = std::move(kept);
    network_.reconsider();
    return {};
  }

  void set_uplink(double bits_per_second) override { uplink_bytes_per_second_ = bits_per_second / 8; }

  Status want(const OutgoingWant& want) override {
    const auto peer = peers_.find(want.to);
    if (peer == peers_.end() || !peer->second.connected || peer_link(want.to) == nullptr) {
      return Error{Code::unavailable, "island " + want.to.text + " is not connected"};
    }
    send(want.to, Arrival{self_, want.want, {}});
    return {};
  }

  bool receive(TimePoint now, PieceReceiver& receiver) override {
    if (inbox_.empty()) {
      return false;
    }
    const Arrival arrival = std::move(inbox_.front());
    inbox_.pop_front();
    if (const auto* piece = std::get_if<BlobPiece>(&arrival.frame)) {
      const std::span<std::byte> place = receiver.destination(arrival.from, *piece);
      if (place.size() != piece->length) {
        return true;  // not wanted any more
      }
      if (piece->packed == 0) {
        std::copy(arrival.payload.bytes.begin(), arrival.payload.bytes.end(), place.begin());  // also of an empty blob
      } else if (const Status unpacked = unpack(arrival.payload.bytes, place); !unpacked) {
        receiver.gone(now, arrival.from, Gone{piece->blob, unpacked.error().code, unpacked.error().why});
        return true;
      }
      receiver.arrived(now, arrival.from, *piece);
    } else if (const auto* gone = std::get_if<Gone>(&arrival.frame)) {
      receiver.gone(now, arrival.from, *gone);
    } else {
      receiver.connected(now, arrival.from);
    }
    return true;
  }

  bool wait(Duration /*at_most*/) override { return !inbox_.empty(); }
  [[nodiscard]] int pollable_fd() const override { return -1; }
  [[nodiscard]] BlobStore& store() override { return *store_; }
  [[nodiscard]] std::vector<PeerTraffic> traffic() const override {
    std::vector<PeerTraffic> rows;
    for (const auto& [island, peer] : peers_) {
      rows.push_back(PeerTraffic{island, peer.connected, peer.sent, peer.received, 0, Duration{}, 0});
    }
    return rows;
  }

  void forget_departures() {
    for (auto& [island, peer] : peers_) {
      peer.leaving.clear();
    }
  }

  // Makes and breaks this side's connections: at once if the other end is another one, after kDetection if a path is cut.
  void reconsider() {
    for (auto& [island, peer] : peers_) {
      const SimulatedBulkLink* other = peer_link(island);
      const std::uint64_t serial = other == nullptr ? 0 : other->serial_;
      if (serial != peer.serial) {
        store_->drop_reader(island);
        peer.serial = serial;
        peer.connected = false;
      }
      const bool open = other != nullptr && network_.open(self_.text, island.text);
      if (open && !peer.connected) {
        later(network_.path({island.text, self_.text}).latency * 2, island, &SimulatedBulkLink::connect);
      } else if (!open && peer.connected) {
        later(SimulatedNetwork::kDetection, island, &SimulatedBulkLink::disconnect);
      }
    }
  }

 private:
  struct Connected {};
  struct Arrival {
    IslandId from;
    std::variant<Want, BlobPiece, Gone, Connected> frame;
    Payload payload;
  };
  struct Peer {
    std::string address;
    bool connected = false;
    std::uint64_t serial = 0;  // of the other end
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::map<std::pair<BlobId, std::uint64_t>, TimePoint> leaving;  // pieces still in this side's queue
  };

  [[nodiscard]] bool reaches(const std::string& host, const std::string& address) const {
    const auto at = network_.reached_at.find(host);
    return !network_.addresses_needed || (!address.empty() && (at == network_.reached_at.end() || at->second == address));
  }
  // The other end, if there is one that names us as we name it, and one of the two dials it where it is.
  [[nodiscard]] SimulatedBulkLink* peer_link(const IslandId& island) const {
    const auto found = network_.bulk.find(island.text);
    const auto own = peers_.find(island);
    if (found == network_.bulk.end() || own == peers_.end()) {
      return nullptr;
    }
    const auto theirs = found->second->peers_.find(self_);
    const bool there =
        theirs != found->second->peers_.end() && (reaches(island.text, own->second.address) || reaches(self_.text, theirs->second.address));
    return there ? found->second : nullptr;
  }

  static std::uint64_t size_of(const Arrival& arrival) { return 80 + arrival.payload.bytes.size(); }

  TimePoint send(const IslandId& to, Arrival arrival) {
    const SimulatedBulkLink* other = peer_link(to);
    const std::uint64_t bytes = size_of(arrival);
    peers_[to].sent += bytes;
    auto& network = network_;
    const std::uint64_t serial = other->serial_;
    const std::uint64_t own_serial = serial_;
    const auto transmit = [&network, from = self_.text, to, bytes, serial, own_serial, arrival = std::move(arrival)] {
      return network.transmit({from, to.text}, bytes, true, [&network, to, serial, own_serial, arrival] {
        const auto target = network.bulk.find(to.text);
        if (target != network.bulk.end() && target->second->serial_ == serial) {
          target->second->deliver(own_serial, arrival);
        }
      });
    };
    if (uplink_bytes_per_second_ <= 0) {
      return transmit();
    }
    uplink_free_at_ = std::max(network_.now, uplink_free_at_) + from_seconds(static_cast<double>(bytes) / uplink_bytes_per_second_);
    network_.at(uplink_free_at_, transmit);
    return uplink_free_at_;
  }

  void deliver(std::uint64_t sender_serial, const Arrival& arrival) {
    const auto peer = peers_.find(arrival.from);
    if (peer == peers_.end() || peer->second.serial != sender_serial) {
      return;  // of a session that is over
    }
    peer->second.received += size_of(arrival);
    if (const auto* want = std::get_if<Want>(&arrival.frame)) {
      serve(arrival.from, *want);
    } else {
      inbox_.push_back(arrival);
    }
  }

  void serve(const IslandId& reader, const Want& want) {
    if (peer_link(reader) == nullptr) {
      return;
    }
    Peer& peer = peers_[reader];
    std::erase_if(peer.leaving, [&](const auto& item) { return item.second <= network_.now; });
    if (peer.leaving.contains({want.blob, want.offset})) {
      return;  // asked again while the answer is still on its way out
    }
    StoreAnswer answer = store_->answer(reader, want);
    if (auto* served = std::get_if<Served>(&answer)) {
      const TimePoint departs = send(reader, Arrival{self_, served->piece, served->payload});
      if (departs > network_.now) {
        peer.leaving[{want.blob, want.offset}] = departs;
      }
    } else if (auto* gone = std::get_if<Gone>(&answer)) {
      send(reader, Arrival{self_, *gone, {}});
    }
  }

  void serve_unparked() {
    for (const ParkedWant& item : store_->take_unparked()) {
      serve(item.reader, item.want);
    }
  }

  void later(Duration wait, const IslandId& island, void (SimulatedBulkLink::*call)(const IslandId&)) {
    auto& network = network_;
    const std::uint64_t serial = serial_;
    network_.at(network_.now + wait, [&network, self = self_.text, serial, island, call] {
      const auto link = network.bulk.find(self);
      if (link != network.bulk.end() && link->second->serial_ == serial) {
        (link->second->*call)(island);
      }
    });
  }

  void connect(const IslandId& island) {
    const auto peer = peers_.find(island);
    if (peer != peers_.end() && !peer->second.connected && peer_link(island) != nullptr && network_.open(self_.text, island.text)) {
      peer->second.connected = true;
      inbox_.push_back(Arrival{island, Connected{}, {}});
    }
  }

  void disconnect(const IslandId& island) {
    const auto peer = peers_.find(island);
    if (peer != peers_.end() && !network_.open(self_.text, island.text)) {
      peer->second.connected = false;
    }
  }

  SimulatedNetwork::State& network_;
  IslandId self_;
  std::shared_ptr<BlobStore> store_;
  std::uint64_t serial_;
  std::map<IslandId, Peer> peers_;
  std::deque<Arrival> inbox_;
  double uplink_bytes_per_second_ = 0;  // 0: no budget
  TimePoint uplink_free_at_;
};

std::unique_ptr<BulkLink> make_simulated_bulk_link(SimulatedNetwork::State& network, const IslandId& island,
                                                   std::shared_ptr<BlobStore> store) {
  return std::make_unique<SimulatedBulkLink>(network, island, std::move(store));
}

void reconsider_bulk_links(SimulatedNetwork::State& network) {
  for (const auto& [host, link] : network.bulk) {
    link->reconsider();
  }
}

void forget_departures(SimulatedNetwork::State& network) {
  for (const auto& [host, link] : network.bulk) {
    link->forget_departures();
  }
}

}  // namespace atl
