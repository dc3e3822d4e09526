#include "agent/core/membership.hpp"

#include <algorithm>
#include <utility>

namespace atl::agent {

Membership::Membership(const Invite& invite, Outbox& out)
    : out_(&out),
      run_(invite.run),
      epoch_(invite.epoch),
      members_(invite.members),
      avoid_(invite.avoid),
      listed_(invite.epoch),
      part_(invite.part),
      share_(invite.share) {}

const Member* Membership::find(const IslandId& island) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) { return member.island == island; });
  return found == members_.end() ? nullptr : &*found;
}

std::vector<IslandId> Membership::islands() const {
  std::vector<IslandId> islands;
  for (const Member& member : members_) {
    islands.push_back(member.island);
  }
  return islands;
}

void Membership::announce() const { out_->effect(AllowPeers{run_, epoch_, members_, readers_.all()}); }

bool Membership::use(Epoch epoch, const std::vector<Member>& members, const PlaceCouples& avoid) {
  listed_ = epoch;
  if (epoch == epoch_ && members == members_ && avoid == avoid_) {
    return false;
  }
  epoch_ = epoch;
  members_ = members;
  avoid_ = avoid;
  announce();
  return true;
}

bool Membership::advance(Epoch epoch) {
  if (epoch == epoch_) {
    return false;
  }
  epoch_ = epoch;
  announce();
  return true;
}

bool Membership::take_part(std::uint32_t part) { return std::exchange(part_, part) != part; }

void Membership::deal(DataShare share) {
  constexpr std::size_t kMostStretches = 64;
  if (share.classes == share_.classes && !share.stretches.empty()) {
    const auto known = std::ranges::find_if(
        share_.stretches, [from = share.stretches.front().from](const DataStretch& stretch) { return stretch.from >= from; });
    share.stretches.insert(share.stretches.begin(), share_.stretches.begin(), known);
    if (share.stretches.size() > kMostStretches) {
      share.stretches.erase(share.stretches.begin(), share.stretches.end() - kMostStretches);
    }
  }
  share_ = std::move(share);
}

void Membership::heed(const Serve& message) {
  readers_.heed(message);
  announce();
}

void Membership::forget_readers() {
  readers_.clear();
  announce();
}

}  // namespace atl::agent
