#include "transport/base/bytes.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace atl {
namespace {

int nibble(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  if (c >= 'A' && c <= 'F') {
    return c - 'A' + 10;
  }
  return -1;
}

struct Unit {
  std::string_view name;
  double factor;
};

// A non-negative number followed by one of `units`; the unit is required unless "" is among them.
Result<double> parse_with_unit(std::string_view text, std::span<const Unit> units, std::string_view what, std::string_view examples) {
  const auto refuse = [&]() {
    return Error{Code::invalid_argument,
                 "\"" + std::string(text) + "\" is not " + std::string(what) + " (write it like " + std::string(examples) + ")"};
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || !std::isfinite(number) || number < 0) {
    return refuse();
  }
  std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  while (!rest.empty() && rest.front() == ' ') {
    rest.remove_prefix(1);
  }
  for (const Unit& unit : units) {
    if (rest == unit.name) {
      return number * unit.factor;
    }
  }
  return refuse();
}

std::string format(const char* pattern, double number) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, number);
  return text.data();
}

}  // namespace

std::string to_hex(ByteView bytes) {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    text.push_back(kDigits[std::to_integer<std::size_t>(byte) >> 4]);
    text.push_back(kDigits[std::to_integer<std::size_t>(byte) & 15]);
  }
  return text;
}

Result<Bytes> from_hex(std::string_view text) {
  if (text.size() % 2 != 0) {
    return Error{Code::invalid_argument, "a hexadecimal text has an even number of digits"};
  }
  Bytes bytes(text.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = nibble(text[2 * i]);
    const int low = nibble(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      return Error{Code::invalid_argument, "a hexadecimal text holds only 0-9 and a-f"};
    }
    bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return bytes;
}

Result<Digest> digest_from_hex(std::string_view text) {
  ATOLL_ASSIGN(const Bytes bytes, from_hex(text));
  Digest digest;
  if (bytes.size() != digest.bytes.size()) {
    return Error{Code::invalid_argument, "a SHA-256 digest has 64 hexadecimal digits"};
  }
  std::memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

std::string human_bytes(std::uint64_t bytes) {
  if (bytes < 1000) {
    return std::to_string(bytes) + " B";
  }
  static constexpr std::array<const char*, 6> kUnits = {"kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes) / 1000.0;
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit;
  }
  return format("%.1f ", value) + kUnits[unit];
}

std::string human_duration(Duration duration) {
  const double total = seconds(duration);
  if (total < 0.9995) {
    return format("%.0f ms", total * 1000.0);
  }
  if (total < 59.95) {
    return format("%.1f s", total);
  }
  const auto whole = static_cast<std::uint64_t>(std::llround(total));
  std::array<char, 64> text{};
  const auto print = [&](const char* pattern, std::uint64_t large, std::uint64_t small) {
    std::snprintf(text.data(), text.size(), pattern, static_cast<unsigned long long>(large), static_cast<unsigned long long>(small));
    return std::string(text.data());
  };
  if (whole < 3600) {
    return print("%llum%02llus", whole / 60, whole % 60);
  }
  if (whole < 86400) {
    return print("%lluh%02llum", whole / 3600, whole % 3600 / 60);
  }
  return print("%llud%02lluh", whole / 86400, whole % 86400 / 3600);
}

Result<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::array<Unit, 11> kUnits = {{{"", 1},
                                                   {"B", 1},
                                                   {"kB", 1e3},
                                                   {"MB", 1e6},
                                                   {"GB", 1e9},
                                                   {"TB", 1e12},
                                                   {"KiB", 0x1p10},
                                                   {"MiB", 0x1p20},
                                                   {"GiB", 0x1p30},
                                                   {"TiB", 0x1p40},
                                                   {"kiB", 0x1p10}}};
  ATOLL_ASSIGN(const double value, parse_with_unit(text, kUnits, "a size", "\"64MiB\", \"10GB\" or \"4096\""));
  if (value >= 0x1p63) {
    return Error{Code::invalid_argument, "\"" + std::string(text) + "\" is too large for a size"};
  }
  return static_cast<std::uint64_t>(value);
}

Result<Duration> parse_duration(std::string_view text) {
  static constexpr std::array<Unit, 6> kUnits = {{{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}}};
  ATOLL_ASSIGN(const double value, parse_with_unit(text, kUnits, "a time", "\"30s\", \"5m\", \"250ms\" or \"2h\""));
  if (value > 1e9) {
    return Error{Code::invalid_argument, "\"" + std::string(text) + "\" is too long for a time"};
  }
  return from_seconds(value);
}

Result<double> parse_bits_per_second(std::string_view text) {
  static constexpr std::array<Unit, 7> kUnits = {
      {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}, {"kB/s", 8e3}, {"MB/s", 8e6}, {"GB/s", 8e9}}};
  return parse_with_unit(text, kUnits, "a rate", "\"50mbit\", \"1gbit\" or \"10MB/s\"");
}

}  // namespace atl
