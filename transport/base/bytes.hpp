// Bytes: buffers, little-endian fields, hexadecimal, and sizes and rates as people write them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

static_assert(std::endian::native == std::endian::little, "formats and arenas are little-endian");

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

// SHA-256 output. All zero means "none".
struct Digest {
  std::array<std::byte, 32> bytes{};
  [[nodiscard]] bool empty() const { return *this == Digest{}; }
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

[[nodiscard]] inline ByteView as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }
[[nodiscard]] inline std::string_view as_text(ByteView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// Lower-case hexadecimal, two characters a byte.
std::string to_hex(ByteView bytes);
inline std::string to_hex(const Digest& digest) { return to_hex(ByteView(digest.bytes)); }
Result<Bytes> from_hex(std::string_view text);
Result<Digest> digest_from_hex(std::string_view text);

// Writes little-endian fields to the end of a buffer.
template <typename Integer>
requires std::is_integral_v<Integer>
void append_le(Bytes& out, Integer value) {
  const std::size_t at = out.size();
  out.resize(at + sizeof value);
  std::memcpy(out.data() + at, &value, sizeof value);
}

// Reads little-endian fields from the front of a view; `corrupt` past its end.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : bytes_(bytes) {}

  template <typename Integer>
  requires std::is_integral_v<Integer> Result<Integer> read() {
    if (bytes_.size() < sizeof(Integer)) {
      return Error{Code::corrupt, "the data ends early"};
    }
    Integer value;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  Result<ByteView> read_bytes(std::size_t count) {
    if (bytes_.size() < count) {
      return Error{Code::corrupt, "the data ends early"};
    }
    const ByteView taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  [[nodiscard]] ByteView rest() const { return bytes_; }

 private:
  ByteView bytes_;
};

// "512 B", "3.4 kB", "3.4 GB": decimal units for people.
std::string human_bytes(std::uint64_t bytes);
// "950 ms", "12.3 s", "2m10s", "3h05m", "4d02h": for people.
std::string human_duration(Duration duration);
// "64MiB", "10GB", "4096": bytes. "30s", "5m", "250ms", "2h": a time. "50mbit", "1gbit", "10MB/s": bits a second.
// Errors: invalid_argument naming what is allowed.
Result<std::uint64_t> parse_bytes(std::string_view text);
Result<Duration> parse_duration(std::string_view text);
Result<double> parse_bits_per_second(std::string_view text);

}  // namespace atl
