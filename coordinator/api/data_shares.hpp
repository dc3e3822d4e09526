// How many parts of a run's data somebody trains on, in the documents of the run and of its data.
// Threads: pure.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/core/record.hpp"
#include "coordinator/core/view.hpp"

namespace atl::coordinator {

// The island trains on its part of the data, or will when it has started or caught up.
bool has_part(const MembershipView& membership);
// Parts that an island has now: each counts once. 0 of a run that has ended.
std::uint32_t parts_in_use(const RunView& run);
// Parts of which samples are committed; where every island keeps a state of its own, of which one has said that it trained on them.
std::uint32_t parts_begun(const std::vector<PartRecord>& parts);

}  // namespace atl::coordinator
