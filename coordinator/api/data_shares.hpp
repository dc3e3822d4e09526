// How much of a run's data its islands have trained on, in the documents of the run and of its data.
// Threads: pure.
#pragma once

#include <optional>
#include <vector>

#include "coordinator/core/record.hpp"
#include "coordinator/core/view.hpp"

namespace atl::coordinator {

// The island trains on its part of the data, or will when it has started or caught up.
bool has_part(const MembershipView& membership);
// Passes over all of the data that are committed by all islands together; where every island keeps a state of its own, that they have said
// they trained on. Nothing: how long a pass is isn't known yet.
std::optional<double> passes_of(const std::vector<PartRecord>& parts);

}  // namespace atl::coordinator
