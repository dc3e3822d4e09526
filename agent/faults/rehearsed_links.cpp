#include "agent/faults/rehearsed_links.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace atl::agent {
namespace {

// What comes while the link is cut is lost.
class Nobody final : public PieceReceiver {
 public:
  std::span<std::byte> destination(const IslandId&, const BlobPiece&) override { return {}; }
  void arrived(TimePoint, const IslandId&, const BlobPiece&) override {}
  void gone(TimePoint, const IslandId&, const Gone&) override {}
  void connected(TimePoint, const IslandId&) override {}
};

class CorruptingReceiver final : public PieceReceiver {
 public:
  CorruptingReceiver(PieceReceiver& inner, Rehearsal& rehearsal) : inner_(inner), rehearsal_(rehearsal) {}

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override {
    written_ = inner_.destination(from, piece);
    return written_;
  }
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override {
    if (belongs_to_exchange(piece.blob.kind)) {
      rehearsal_.reached(RoundPhase::receiving, piece.blob.round);
      if (!written_.empty() && rehearsal_.corrupts(piece)) {
        written_.back() ^= std::byte{1};
      }
    }
    inner_.arrived(now, from, piece);
  }
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override { inner_.gone(now, from, gone); }
  void connected(TimePoint now, const IslandId& peer) override { inner_.connected(now, peer); }
  void asked_over(const IslandId& peer, unsigned connections) override { inner_.asked_over(peer, connections); }
  void way_changed(const IslandId& peer, const std::optional<Way>& way) override { inner_.way_changed(peer, way); }

 private:
  PieceReceiver& inner_;
  Rehearsal& rehearsal_;
  std::span<std::byte> written_;  // of the piece that arrives now
};

class RehearsedBulkLink final : public BulkLink {
 public:
  RehearsedBulkLink(std::unique_ptr<BulkLink> link, std::shared_ptr<Rehearsal> rehearsal)
      : link_(std::move(link)), rehearsal_(std::move(rehearsal)) {}

  Status set_peers(std::span<const Member> peers) override {
    peers_.assign(peers.begin(), peers.end());
    return cut_ ? Status() : link_->set_peers(peers_);
  }
  void set_uplink(double bits_per_second) override {
    uplink_ = bits_per_second;
    use_uplink();
  }
  void set_relays(std::span<const RelayOffer> relays) override { link_->set_relays(relays); }
  Status want(const OutgoingWant& want) override {
    obey(now());
    return cut_ ? Status(Error{Code::unavailable, "rehearsal: the link is cut"}) : link_->want(want);
  }
  bool receive(TimePoint now, PieceReceiver& receiver) override {
    obey(now);
    if (cut_) {
      Nobody nobody;
      return link_->receive(now, nobody);
    }
    CorruptingReceiver corrupting(receiver, *rehearsal_);
    return link_->receive(now, corrupting);
  }
  bool wait(Duration at_most) override { return link_->wait(at_most); }
  [[nodiscard]] int pollable_fd() const override { return link_->pollable_fd(); }
  [[nodiscard]] BlobStore& store() override { return link_->store(); }
  [[nodiscard]] std::vector<PeerTraffic> traffic() const override { return link_->traffic(); }

 private:
  // Makes the link what the faults say that it is now.
  void obey(TimePoint now) {
    if (const bool cut = rehearsal_->bulk_is_cut(now); std::exchange(cut_, cut) != cut) {
      (void)link_->set_peers(cut ? std::span<const Member>()
                                 : std::span<const Member>(peers_));  // a key that is none was told when it was set
    }
    if (const double slow = rehearsal_->uplink_bits_per_second(now); std::exchange(slow_, slow) != slow) {
      use_uplink();
    }
  }
  void use_uplink() { link_->set_uplink(uplink_ > 0 && slow_ > 0 ? std::min(uplink_, slow_) : std::max(uplink_, slow_)); }

  std::unique_ptr<BulkLink> link_;
  std::shared_ptr<Rehearsal> rehearsal_;
  std::vector<Member> peers_;
  double uplink_ = 0;
  double slow_ = 0;
  bool cut_ = false;
};

class RehearsedControlClient final : public ControlClient {
 public:
  RehearsedControlClient(std::unique_ptr<ControlClient> link, std::shared_ptr<Rehearsal> rehearsal)
      : link_(std::move(link)), rehearsal_(std::move(rehearsal)) {}

  std::optional<LinkEvent> receive() override { return cut() ? std::nullopt : link_->receive(); }
  Status send(const Message& message) override {
    return cut() ? Status(Error{Code::unavailable, "rehearsal: the link is cut"}) : link_->send(message);
  }
  [[nodiscard]] int fd() const override { return cut() ? -1 : link_->fd(); }  // the owner's heartbeats end the cut in time

 private:
  [[nodiscard]] bool cut() const { return rehearsal_->control_is_cut(now()); }

  std::unique_ptr<ControlClient> link_;
  std::shared_ptr<Rehearsal> rehearsal_;
};

}  // namespace

std::unique_ptr<BulkLink> rehearsed(std::unique_ptr<BulkLink> link, std::shared_ptr<Rehearsal> rehearsal) {
  return std::make_unique<RehearsedBulkLink>(std::move(link), std::move(rehearsal));
}

std::unique_ptr<ControlClient> rehearsed(std::unique_ptr<ControlClient> link, std::shared_ptr<Rehearsal> rehearsal) {
  return std::make_unique<RehearsedControlClient>(std::move(link), std::move(rehearsal));
}

}  // namespace atl::agent
