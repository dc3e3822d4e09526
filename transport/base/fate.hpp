// Why a contribution counts in no round. Threads: a plain value.
#pragma once

#include <cstdint>

namespace atl {

enum class Fate : std::uint8_t {
  rejected,   // not finite, or out of all proportion
  too_stale,  // it missed more rounds of its fragment than it may
  overrun,    // the run has no more rounds of its fragment
};

}  // namespace atl
