#include "coordinator/api/data_shares.hpp"

namespace atl::coordinator {

bool has_part(const MembershipView& membership) {
  return membership.state == MembershipState::active || membership.state == MembershipState::starting ||
         membership.state == MembershipState::joining;
}

std::optional<double> passes_of(const std::vector<PartRecord>& parts) {
  std::optional<double> passes;
  for (const PartRecord& part : parts) {
    if (part.sequences > 0) {
      passes = passes.value_or(0.0) + static_cast<double>(part.position) / static_cast<double>(part.sequences);
    }
  }
  return passes;
}

}  // namespace atl::coordinator
