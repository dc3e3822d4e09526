// --uplink: a person's budget for what an island sends to the others.
#pragma once

#include <string>

#include "agent/service/uplink_calendar.hpp"
#include "transport/base/result.hpp"

namespace atl {

// From a text like "50mbit", or "50mbit 08:00-18:00, 500mbit otherwise" (uplink_calendar.hpp). Errors: invalid_argument naming the option,
// as for a rate of less than 500 kbit/s: a piece would take so long then that the others give up.
Result<agent::UplinkCalendar> parse_uplink(const std::string& text);

}  // namespace atl
