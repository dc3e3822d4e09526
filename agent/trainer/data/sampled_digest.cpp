#include "agent/trainer/data/sampled_digest.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace atl {

void SampledDigest::for_each_block(std::uint64_t values, const std::function<void(std::uint64_t, std::uint64_t)>& look) {
  if (values <= kWholeUpTo) {
    for (std::uint64_t at = 0; at < values; at += kBlock) {
      look(at, std::min(kBlock, values - at));
    }
    return;
  }
  const std::uint64_t last = values - kBlock;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t whole = last / (kSamples - 1) * i;
    look(whole + last % (kSamples - 1) * i / (kSamples - 1), kBlock);
  }
}

void SampledDigest::add(std::span<const std::byte> bytes) {
  const auto mix = [this](std::uint64_t word) {
    state_ = (state_ ^ word) * 0x9e3779b97f4a7c15ULL;
    state_ ^= state_ >> 29;
  };
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
    mix(word);
  }
  mix(bytes.size());
}

std::string SampledDigest::text() const {
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(state_));
  return digits.data();
}

}  // namespace atl
