// The history of one seed, to be read by a person: with ATOLL_SIM_TRACE=1 every message that arrives at a core, and every event and effect
// of an agent's, as a line on the standard output. Without it nothing is printed.
#pragma once

#include <string>

#include "agent/core/effect.hpp"
#include "agent/core/event.hpp"
#include "coordinator/core/record.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl::sim {

[[nodiscard]] bool traced();

void trace(TimePoint now, const std::string& from, const std::string& to, const Message& message);
void trace(const coordinator::EventRecord& event);
// Of an agent's core. What came from the coordinator was told as a message, and a trainer's progress is left out.
void trace(TimePoint now, const std::string& island, const agent::Event& event);
void trace(TimePoint now, const std::string& island, const agent::Effect& effect);

}  // namespace atl::sim
