// Spans as the ledger keeps them: with the names of activities, and waits with what they were for.
// Threads: pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/view.hpp"
#include "transport/control/message.hpp"

namespace atl::coordinator {

// "outer_step".
std::string_view to_string(SpanKind kind);

struct IslandSpan {
  RunId run;
  IslandId island;
  Span span;
  std::string cause;  // of a wait, for people; may be empty
};

// A wait as one span for each of its causes, in their order, with the peer and the text of it; together they are as long as the wait.
// Without causes it stays as it is.
std::vector<IslandSpan> parts_of_wait(const IslandSpan& wait, std::span<const WaitCause> causes);

}  // namespace atl::coordinator
