#include "coordinator/core/guards.hpp"

namespace atl::coordinator {
namespace {

constexpr unsigned kForgiven = 10;  // good rounds in a row, after which offences are forgotten

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

bool Guards::pardon(const IslandId& island) {
  const auto found = conduct_.find(island);
  return found != conduct_.end() && std::exchange(found->second.offences, 0) > 0;
}

std::uint32_t Guards::offences(const IslandId& island) const {
  const auto found = conduct_.find(island);
  return found == conduct_.end() ? 0 : found->second.offences;
}

bool Guards::quarantined(const IslandId& island) const { return quarantine_after_ > 0 && offences(island) >= quarantine_after_; }

}  // namespace atl::coordinator
