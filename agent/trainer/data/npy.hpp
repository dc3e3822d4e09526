// NpyArray: a NumPy array file (.npy, plain or .gz) in C order and little-endian, in memory.
// Threads: const functions may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

class NpyArray {
 public:
  // Errors: not_found, io; corrupt for a file that is cut short, longer than it says, in Fortran order, big-endian or not of f4, f8 or
  // integers. Each names the file.
  static Result<NpyArray> read(const std::string& path);

  [[nodiscard]] const std::string& type() const { return type_; }  // "u1", "f4": without the byte order
  [[nodiscard]] const std::vector<std::uint64_t>& shape() const { return shape_; }
  [[nodiscard]] std::size_t count() const { return count_; }
  // Element i, row by row, as a number.
  [[nodiscard]] double at(std::size_t i) const;
  // The values as they lie in the file.
  [[nodiscard]] std::vector<std::uint8_t> take_bytes() && { return std::move(bytes_); }

 private:
  std::string type_;
  std::vector<std::uint64_t> shape_;
  std::size_t count_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace atl
