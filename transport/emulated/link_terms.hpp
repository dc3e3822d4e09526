// LinkTerms: what an emulated path between two islands is like, as a person writes it: "100ms,1gbit,0".
//
// RTT   the round trip between any two islands: half of it in each direction.
// RATE  of each island's access line, in each direction by itself: all that an island sends to the others shares one such rate, and all
//       that it receives another. "max": no limit. What is counted are the bytes that TCP carries, not its headers.
// LOSS  the share of TCP's segments that are lost, in each direction: "0" or "0.1%". What a loss does is a model; emulated_stream.hpp
//       has it.
// Threads: plain values.
#pragma once

#include <string>
#include <string_view>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

struct LinkTerms {
  Duration round_trip{};
  double bits_per_second = 0;  // 0: no limit
  double loss = 0;             // of 1
  friend bool operator==(const LinkTerms&, const LinkTerms&) = default;
};

// Reads "RTT,RATE,LOSS". Errors: invalid_argument naming the part that is wrong and what is expected: an RTT above 10 s, a RATE below
// 500 kbit/s (a piece would take so long that islands give up), a LOSS above 20 %.
Result<LinkTerms> parse_link(std::string_view text);

// "round trip 100.0 ms, 1 Gbit/s each way, no loss": for people.
std::string to_string(const LinkTerms& terms);

}  // namespace atl
