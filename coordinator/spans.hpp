// Names of activities, in the ledger and in documents.
#pragma once

#include <string_view>

#include "transport/message.hpp"

namespace atl::coordinator {

// "outer_step".
std::string_view to_string(SpanKind kind);

}  // namespace atl::coordinator
