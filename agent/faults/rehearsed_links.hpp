// The links of an agent that rehearses faults (rehearsal.hpp): the real ones, with what the faults let go wrong in front of them.
//
// Bulk: while it is cut, the peers are disconnected, and dialled again afterwards; while it is slowed, the link's own budget holds; a piece
// that is to be corrupted is changed in its destination before its reader hears of it. The phase `receiving` is reached here. Control:
// while it is cut, nothing is sent or taken from the connection. What is in it comes late, or the connection is made anew, as after a real
// outage. Threads: as the link behind.
#pragma once

#include <memory>

#include "agent/faults/rehearsal.hpp"
#include "transport/bulk/bulk_link.hpp"
#include "transport/control/control_link.hpp"

namespace atl::agent {

std::unique_ptr<BulkLink> rehearsed(std::unique_ptr<BulkLink> link, std::shared_ptr<Rehearsal> rehearsal);
std::unique_ptr<ControlClient> rehearsed(std::unique_ptr<ControlClient> link, std::shared_ptr<Rehearsal> rehearsal);

}  // namespace atl::agent
