#include "coordinator/api/data_shares.hpp"

#include <algorithm>
#include <set>

namespace atl::coordinator {

bool has_part(const MembershipView& membership) {
  return membership.state == MembershipState::active || membership.state == MembershipState::starting ||
         membership.state == MembershipState::joining;
}

std::uint32_t parts_in_use(const RunView& run) {
  if (has_ended(run.state)) {
    return 0;
  }
  std::set<std::uint32_t> parts;  // a joiner may be promised the part of an island that leaves
  for (const MembershipView& membership : run.memberships) {
    if (has_part(membership)) {
      parts.insert(membership.part);
    }
  }
  return static_cast<std::uint32_t>(parts.size());
}

std::uint32_t parts_begun(const std::vector<PartRecord>& parts) {
  return static_cast<std::uint32_t>(std::ranges::count_if(parts, [](const PartRecord& part) { return part.position > 0; }));
}

}  // namespace atl::coordinator
