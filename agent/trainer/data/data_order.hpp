// Which tokens are trained on, and in which order: pure functions of (seed, number of the sequence).
//
// The stream of N tokens is split once: the last `validation_fraction` of it is held out, from the rest windows of sequence_length + 1
// tokens are drawn (neighbours share one token: the target of one is the first input of the next). A pass is a random phase and a random
// permutation of the windows that fit behind it: every window comes exactly once in a pass, and no two passes cut the text at the same
// places. All islands have one order in common, in which each of them has its own sequences (transport/base/data_share.hpp). Nothing is
// stored, so training continues anywhere at once. Threads: plain values.
#pragma once

#include <cstdint>

#include "transport/base/result.hpp"

namespace atl {

struct TokenRange {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
  friend bool operator==(const TokenRange&, const TokenRange&) = default;
};

struct DataSplit {
  TokenRange training;
  TokenRange validation;
  friend bool operator==(const DataSplit&, const DataSplit&) = default;
};

// Errors: invalid_argument unless 0 ≤ validation_fraction < 1.
Result<DataSplit> split_data(std::uint64_t tokens, double validation_fraction);

// A permutation of 0 … size − 1, a different one for every key: an eight-round Feistel network over the next power of four, walked along
// its cycle until it lands inside. No memory; about 1 to 4 evaluations a call.
class Permutation {
 public:
  Permutation(std::uint64_t size, std::uint64_t key);
  // index < size.
  [[nodiscard]] std::uint64_t at(std::uint64_t index) const;

 private:
  [[nodiscard]] std::uint64_t mix_once(std::uint64_t value) const;

  std::uint64_t size_;
  std::uint64_t key_;
  unsigned half_bits_;
};

class DataOrder {
 public:
  // Errors: invalid_argument if the range holds fewer windows than one batch (with the numbers, and what to change).
  static Result<DataOrder> make(TokenRange range, std::uint32_t sequence_length, std::uint32_t batch, std::uint64_t seed);

  // Where in the stream the window of this number begins; it is sequence_length + 1 tokens long.
  [[nodiscard]] std::uint64_t window(std::uint64_t number) const;
  [[nodiscard]] std::uint64_t windows_per_epoch() const { return windows_; }
  // What one pass trains on.
  [[nodiscard]] std::uint64_t tokens_per_epoch() const { return windows_ * sequence_length_; }

 private:
  DataOrder() = default;

  TokenRange range_;
  std::uint64_t sequence_length_ = 0;
  std::uint64_t windows_ = 0;
  std::uint64_t slack_ = 0;  // the largest phase
  std::uint64_t key_ = 0;
};

// The windows a validation looks at: `count` of them spread evenly over the held-out tokens, the same on all islands.
class ValidationWindows {
 public:
  // At most `most` windows. Errors: invalid_argument if the range is not empty but holds no window.
  static Result<ValidationWindows> make(TokenRange range, std::uint32_t sequence_length, std::uint64_t most);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t window(std::uint64_t index) const;

 private:
  TokenRange range_;
  std::uint64_t sequence_length_ = 0;
  std::uint64_t available_ = 0;
  std::uint64_t count_ = 0;
};

}  // namespace atl
