// A bulk link whose island computes wrongly at times: a bit of what came in is another one in its memory. Or another island gives it
// something else than others. Everything else is the link's.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "transport/bulk/bulk_link.hpp"

namespace atl::sim {

class TroubledLink final : public BulkLink {
 public:
  // `spoil` is shown the bytes of each piece that arrived, and may change them.
  using Spoil = std::function<void(const IslandId& from, const BlobPiece& piece, std::span<std::byte> bytes)>;
  TroubledLink(std::unique_ptr<BulkLink> link, Spoil spoil) : link_(std::move(link)), spoil_(std::move(spoil)) {}

  Status set_peers(std::span<const Member> peers) override { return link_->set_peers(peers); }
  void set_uplink(double bits_per_second) override { link_->set_uplink(bits_per_second); }
  Status want(const OutgoingWant& want) override { return link_->want(want); }
  bool receive(TimePoint now, PieceReceiver& receiver) override {
    Spoiling spoiling(receiver, spoil_);
    return link_->receive(now, spoiling);
  }
  bool wait(Duration at_most) override { return link_->wait(at_most); }
  [[nodiscard]] int pollable_fd() const override { return link_->pollable_fd(); }
  [[nodiscard]] BlobStore& store() override { return link_->store(); }
  [[nodiscard]] std::vector<PeerTraffic> traffic() const override { return link_->traffic(); }

 private:
  class Spoiling final : public PieceReceiver {
   public:
    Spoiling(PieceReceiver& receiver, const Spoil& spoil) : receiver_(receiver), spoil_(spoil) {}
    std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override {
      return place_ = receiver_.destination(from, piece);
    }
    void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override {
      spoil_(from, piece, place_);
      receiver_.arrived(now, from, piece);
    }
    void gone(TimePoint now, const IslandId& from, const Gone& gone) override { receiver_.gone(now, from, gone); }
    void connected(TimePoint now, const IslandId& peer) override { receiver_.connected(now, peer); }

   private:
    PieceReceiver& receiver_;
    const Spoil& spoil_;
    std::span<std::byte> place_;
  };

  std::unique_ptr<BulkLink> link_;
  Spoil spoil_;
};

}  // namespace atl::sim
