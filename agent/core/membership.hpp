// Who is in a run, as this island was last told: the epoch and its members, its own part of the data, and who may read from it.
// Threads: owned by one Core.
#pragma once

#include <cstdint>
#include <vector>

#include "agent/core/outbox.hpp"
#include "agent/core/readers.hpp"
#include "transport/base/ids.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

class Membership {
 public:
  // out outlives it. Nobody may read before announce().
  Membership(const Invite& invite, Outbox& out);

  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  // Of these, by their places: paths that pairs are drawn around.
  [[nodiscard]] const PlaceCouples& avoid() const { return avoid_; }
  // Of the data, and what it is made of.
  [[nodiscard]] std::uint32_t part() const { return part_; }
  [[nodiscard]] const DataShare& share() const { return share_; }
  // Nothing: not a member.
  [[nodiscard]] const Member* find(const IslandId& island) const;
  [[nodiscard]] bool includes(const IslandId& island) const { return find(island) != nullptr; }
  [[nodiscard]] std::vector<IslandId> islands() const;

  // Says who may open bulk connections (AllowPeers).
  void announce() const;
  // False where nothing is new; else announced.
  bool use(Epoch epoch, const std::vector<Member>& members, const PlaceCouples& avoid);
  // The same of an epoch whose members are not told yet: those of the one before stand.
  bool advance(Epoch epoch);
  // Whether the members are those of this epoch.
  [[nodiscard]] bool lists(Epoch epoch) const { return listed_ == epoch; }
  // False if that is its part already.
  bool take_part(std::uint32_t part);
  // What it was told of positions before those of the share stands: the coordinator may not know it any more.
  void deal(DataShare share);
  // The coordinator names a reader of this run; announced.
  void heed(const Serve& message);
  void forget_readers();

 private:
  Outbox* out_;
  RunId run_;
  Epoch epoch_;
  std::vector<Member> members_;
  PlaceCouples avoid_;
  Epoch listed_;  // whose members these are
  Readers readers_;
  std::uint32_t part_;
  DataShare share_;
};

}  // namespace atl::agent
