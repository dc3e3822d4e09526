#include "agent/trainer/data/data_order.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "transport/base/rng.hpp"

namespace atl {

namespace {

// The finaliser of SplitMix64: every bit of the input reaches every bit of the output.
std::uint64_t mix(std::uint64_t value) {
  value ^= value >> 30;
  value *= 0xbf58476d1ce4e5b9ULL;
  value ^= value >> 27;
  value *= 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

}  // namespace

Result<DataSplit> split_data(std::uint64_t tokens, double validation_fraction) {
  if (!(validation_fraction >= 0.0 && validation_fraction < 1.0)) {
    return Error{Code::invalid_argument, "data.validation_fraction must be at least 0 and less than 1"};
  }
  const auto held_out = static_cast<std::uint64_t>(std::floor(static_cast<double>(tokens) * validation_fraction));
  const std::uint64_t training = tokens - held_out;
  return DataSplit{{0, training}, {training, held_out}};
}

Permutation::Permutation(std::uint64_t size, std::uint64_t key)
    : size_(size), key_(key), half_bits_(size <= 1 ? 1U : (static_cast<unsigned>(std::bit_width(size - 1)) + 1) / 2) {}

std::uint64_t Permutation::mix_once(std::uint64_t value) const {
  const std::uint64_t mask = (1ULL << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < 8; ++round) {
    const std::uint64_t next = left ^ (mix(key_ + mix(right + (round << 32))) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

std::uint64_t Permutation::at(std::uint64_t index) const {
  std::uint64_t value = index;
  do {
    value = mix_once(value);
  } while (value >= size_);
  return value;
}

Result<DataOrder> DataOrder::make(TokenRange range, std::uint32_t sequence_length, std::uint32_t batch, std::uint64_t seed) {
  if (sequence_length == 0 || batch == 0) {
    return Error{Code::invalid_argument, "training.sequence_length and training.batch must be at least 1"};
  }
  DataOrder order;
  order.range_ = range;
  order.sequence_length_ = sequence_length;
  const std::uint64_t fitting = range.count == 0 ? 0 : (range.count - 1) / sequence_length;
  // One window less than fits leaves a whole sequence length of room for the phase.
  order.windows_ = fitting > 1 && fitting > batch ? fitting - 1 : fitting;
  if (order.windows_ < batch) {
    return Error{Code::invalid_argument, "the data are too small: " + std::to_string(range.count) +
                                             " tokens are there to train on, one batch needs " +
                                             std::to_string(static_cast<std::uint64_t>(batch) * sequence_length + 1) +
                                             " (give more data, or a smaller training.batch or training.sequence_length)"};
  }
  order.slack_ = range.count - 1 - order.windows_ * sequence_length;
  order.key_ = mix(mix(seed + 0x9e3779b97f4a7c15ULL) ^ stream_of("data-order", 0));
  return order;
}

std::uint64_t DataOrder::window(std::uint64_t number) const {
  const std::uint64_t pass = number / windows_;
  const std::uint64_t key = mix(key_ + pass);
  const std::uint64_t phase = Rng(key, stream_of("phase")).below(slack_ + 1);
  const Permutation permutation(windows_, key);
  return range_.begin + phase + permutation.at(number % windows_) * sequence_length_;
}

Result<ValidationWindows> ValidationWindows::make(TokenRange range, std::uint32_t sequence_length, std::uint64_t most) {
  ValidationWindows windows;
  if (range.count == 0) {
    return windows;
  }
  windows.range_ = range;
  windows.sequence_length_ = sequence_length;
  windows.available_ = (range.count - 1) / sequence_length;
  if (windows.available_ == 0) {
    return Error{Code::invalid_argument, "the data are too small: " + std::to_string(range.count) +
                                             " tokens are held out, one sequence needs " + std::to_string(sequence_length + 1ULL) +
                                             " (set data.validation_fraction higher, or to 0 for no validation)"};
  }
  windows.count_ = std::min(windows.available_, most);
  return windows;
}

std::uint64_t ValidationWindows::window(std::uint64_t index) const {
  // index · available / count without overflow: both are far below 2^32 times 2^32 in practice, the quotient form is exact anyway.
  const std::uint64_t whole = available_ / count_;
  const std::uint64_t rest = available_ % count_;
  return range_.begin + (index * whole + index * rest / count_) * sequence_length_;
}

}  // namespace atl
