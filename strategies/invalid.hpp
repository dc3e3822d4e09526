// What every part of a strategy says of settings that it cannot take.
#pragma once

#include <string>
#include <utility>

#include "transport/base/result.hpp"

namespace atl {

inline Error invalid(std::string why) { return {Code::invalid_argument, std::move(why)}; }

}  // namespace atl
