// What sending costs, as people write it: "0.09/GB", in whatever currency.
#pragma once

#include <optional>
#include <string>

#include "transport/base/result.hpp"

namespace atl {

// Of a gigabyte (1e9 bytes). Nothing for "". Errors: invalid_argument.
Result<std::optional<double>> parse_price(const std::string& text);

}  // namespace atl
