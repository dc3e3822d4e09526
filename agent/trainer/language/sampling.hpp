// How the next token is chosen from what a model expects.
// Threads: pure functions; the generator is the caller's.
#pragma once

#include <cstdint>
#include <span>

#include "transport/base/rng.hpp"

namespace atl {

struct Sampling {
  double temperature = 1.0;  // 0: always the likeliest token
  std::uint64_t top_k = 0;   // among the so many likeliest; 0: among all
};

// Draws from softmax(logits / temperature) among the top_k largest; of equal ones the first. Cost: O(V log top_k) for V logits.
std::int64_t draw(std::span<const float> logits, const Sampling& sampling, Rng& rng);

}  // namespace atl
