// What islands tell of how they spent their time. Threads: plain values.
#pragma once

#include <cstdint>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl {

// What an island spent a stretch of time on: a bar of `trace`. Never decides anything.
enum class SpanKind : std::uint8_t {
  steps,       // inner steps; amount: how many
  wait,        // the trainer stood still for a round's result
  encode,      // forming and encoding a contribution; amount: encoded bytes
  send,        // others read this island's contribution or reduced part; amount: bytes, of the bulk link
  receive,     // the parts of `peer` came in; amount: bytes
  reduce,      // decoding and adding what came in
  outer_step,  // decoding the result, outer optimiser and merge with the trainer's values
  checkpoint,  // amount: bytes
  catch_up,    // copying the state from peers
};
struct Span {
  SpanKind kind = SpanKind::steps;
  Round round;
  std::uint32_t fragment = 0;
  IslandId peer;    // of receive, and of a wait: for whom; may be empty
  TimePoint start;  // this island's clock
  Duration length{};
  std::uint64_t amount = 0;
  friend bool operator==(const Span&, const Span&) = default;
};

}  // namespace atl
