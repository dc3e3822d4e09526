// --uplink: a person's budget for what an island sends to the others.
#pragma once

#include <string>

#include "transport/base/result.hpp"

namespace atl {

// Bits a second, from a text like "50mbit". Errors: invalid_argument naming the option if it is no rate, or less than 500 kbit/s:
// a piece would take so long then that the others give up.
Result<double> parse_uplink(const std::string& text);

}  // namespace atl
