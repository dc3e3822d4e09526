#include "coordinator/core/alike.hpp"

namespace atl::coordinator {

void AlikeIslands::look(const IslandId& island, std::uint32_t part, Round round, std::uint32_t fragment, std::uint64_t fingerprint) {
  if (fingerprint == 0) {
    return;
  }
  newest_[island] = Newest{part, round, fragment, fingerprint};
  for (const auto& [other, newest] : newest_) {
    if (newest.round == round && newest.fragment == fragment && newest.fingerprint == fingerprint && newest.part != part) {
      found_.insert(other);
      found_.insert(island);
    }
  }
}

std::optional<std::vector<IslandId>> AlikeIslands::take_news(Round round) {
  if (found_.size() == told_ || (told_ > 0 && round == told_in_)) {
    return std::nullopt;
  }
  told_ = found_.size();
  told_in_ = round;
  return islands();
}

std::vector<IslandId> AlikeIslands::islands() const { return {found_.begin(), found_.end()}; }

}  // namespace atl::coordinator
