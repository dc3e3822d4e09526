#include "coordinator/core/guards.hpp"

#include <algorithm>

namespace atl::coordinator {
namespace {

constexpr unsigned kForgiven = 10;          // good rounds in a row, after which offences are forgotten
constexpr std::uint64_t kSumsNothing = 10;  // rounds after a dispute; doubles with each
constexpr unsigned kMostTimesTwice = 16;

}  // namespace

void Guards::set(double norm_factor, std::uint32_t quarantine_after) {
  norm_factor_ = norm_factor;
  quarantine_after_ = quarantine_after;
}

NormDecision Guards::judge(std::uint32_t fragment, std::vector<JudgedNorm> norms) const {
  return decide_norms(NormInput{norms_.of(fragment), std::move(norms), norm_factor_});
}

bool Guards::accepted(const IslandId& island, bool forgivable) {
  Conduct& conduct = conduct_[island];
  if (++conduct.good_rounds < kForgiven || conduct.offences == 0 || !forgivable) {
    return false;
  }
  conduct.offences = 0;
  return true;
}

std::optional<std::string> Guards::offend(const IslandId& island, const std::string& what) {
  Conduct& conduct = conduct_[island];
  conduct.good_rounds = 0;
  ++conduct.offences;
  if (!quarantined(island)) {
    return std::nullopt;
  }
  return "quarantined after " + std::to_string(conduct.offences) + " rejections, the last one: " + what;
}

std::vector<IslandId> Guards::dispute(const Dispute& dispute, Round round, std::optional<std::size_t> needed) {
  conduct_[dispute.giver].readers.insert(dispute.reader);
  conduct_[dispute.reader].givers.insert(dispute.giver);
  std::vector<IslandId> named;
  for (const IslandId& island : {dispute.giver, dispute.reader}) {
    Conduct& conduct = conduct_[island];
    if (needed && std::max(conduct.readers.size(), conduct.givers.size()) >= *needed) {
      named.push_back(island);
    }
    if (island == dispute.trusted) {
      continue;
    }
    conduct.sums_after = Round(round.value + (kSumsNothing << std::min(conduct.disputes, kMostTimesTwice)));
    ++conduct.disputes;
  }
  return named;
}

std::vector<std::uint8_t> Guards::sums_in(Round round, const std::vector<IslandId>& members, std::vector<std::uint8_t> shares) const {
  std::vector<std::uint8_t> trusted = shares.empty() ? std::vector<std::uint8_t>(members.size(), 1) : shares;
  bool any = false;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto found = conduct_.find(members[i]);
    if (found != conduct_.end() && round <= found->second.sums_after) {
      trusted[i] = 0;
      any = true;
    }
  }
  return any && std::ranges::any_of(trusted, [](std::uint8_t share) { return share > 0; }) ? trusted : shares;
}

bool Guards::pardon(const IslandId& island) {
  const auto found = conduct_.find(island);
  if (found == conduct_.end()) {
    return false;
  }
  const bool offended = found->second.offences > 0;
  found->second = Conduct{};
  return offended;
}

std::uint32_t Guards::offences(const IslandId& island) const {
  const auto found = conduct_.find(island);
  return found == conduct_.end() ? 0 : found->second.offences;
}

bool Guards::quarantined(const IslandId& island) const { return quarantine_after_ > 0 && offences(island) >= quarantine_after_; }

}  // namespace atl::coordinator
