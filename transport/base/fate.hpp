// Why a contribution counts in no round. Threads: a plain value.
#pragma once

#include <cstdint>

namespace atl {

enum class Fate : std::uint8_t {
  rejected,    // a guard found it out of all proportion, or it could not be made
  too_stale,   // it missed more rounds of its fragment than it may
  overrun,     // the run has no more rounds of its fragment
  not_finite,  // a loss, a gradient or a value of it
  dropped,     // in hand when its island lost its state or took another; what it was trained on comes again
};

}  // namespace atl
