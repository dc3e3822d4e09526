// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//
// The i-th number of a stream is a pure function of (seed, stream, i): every island draws the same pairing, the same
// data order and the same rounding without talking to each other, and a simulation is repeated by its seed. The
// distributions below are our own because those of `std` differ between libraries.
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace atl {

// One Philox4x32-10 block: 128 random bits of a 128-bit counter under a 64-bit key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// A stream of random numbers; copying it forks it at the same position.
class Rng {
 public:
  // Streams with different (seed, stream) are independent.
  explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  std::uint32_t next_u32();
  std::uint64_t next_u64();
  // Uniform in [0, bound), exactly; 0 for bound 0.
  std::uint64_t below(std::uint64_t bound);
  // Uniform in [0, 1), 53 bits.
  double uniform();
  // Standard normal (Box–Muller); two uniforms a call.
  double normal();
  // True with the given probability.
  bool chance(double probability) { return uniform() < probability; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t block_ = 0;  // index of the next block
  std::array<std::uint32_t, 4> words_{};
  unsigned used_ = 4;  // words of the present block already handed out
};

// A 64-bit hash (FNV-1a, finished by a mixer) to name streams: stream_of("pairing", round). Not for security.
std::uint64_t stream_of(std::string_view name, std::uint64_t number = 0);

}  // namespace atl
