#include "agent/trainer/data/npy.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <span>
#include <string_view>

#include "agent/trainer/data/corrupt_file.hpp"
#include "agent/trainer/data/packed_file.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kMaxValues = 1ULL << 36;
constexpr std::array<std::string_view, 10> kNpyTypes = {"f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"};

struct NpyHead {
  std::string type;  // without the byte order: "u1", "f4"
  std::vector<std::uint64_t> shape;
};

// Reads the head's Python dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
Result<NpyHead> parse_npy_head(const std::string& path, std::string_view text) {
  const auto after = [&](std::string_view key) {
    const std::size_t at = text.find(key);
    return at == std::string_view::npos ? std::string_view() : text.substr(at + key.size());
  };
  NpyHead head;
  std::string_view type = after("'descr':");
  type = type.substr(std::min(type.find('\''), type.size()));
  const std::size_t end = type.empty() ? std::string_view::npos : type.find('\'', 1);
  if (end == std::string_view::npos || end < 3) {
    return corrupt(path, "its head names no simple type");
  }
  type = type.substr(1, end - 1);
  if (type[0] == '>') {
    return corrupt(path, "its values are big-endian ('" + std::string(type) + "'); save it as little-endian");
  }
  head.type = type[0] == '<' || type[0] == '|' || type[0] == '=' ? type.substr(1) : type;
  if (after("'fortran_order':").find("False") == std::string_view::npos) {
    return corrupt(path, "it is in Fortran order; save it with numpy.ascontiguousarray");
  }
  std::string_view shape = after("'shape':");
  const std::size_t open = shape.find('(');
  const std::size_t close = shape.find(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return corrupt(path, "its head has no shape");
  }
  shape = shape.substr(open + 1, close - open - 1);
  while (!shape.empty()) {
    const std::size_t digit = shape.find_first_of("0123456789");
    if (digit == std::string_view::npos) {
      break;
    }
    std::uint64_t extent = 0;
    const auto read = std::from_chars(shape.data() + digit, shape.data() + shape.size(), extent);
    if (read.ec != std::errc()) {
      return corrupt(path, "its shape is impossible");
    }
    head.shape.push_back(extent);
    shape = shape.substr(static_cast<std::size_t>(read.ptr - shape.data()));
  }
  return head;
}

}  // namespace

namespace {

// What the first bytes of an npy file say, checked.
struct NpyFacts {
  NpyHead head;
  std::size_t begin = 0;     // of the values
  std::uint64_t values = 1;  // more than kMaxValues: impossible
  std::uint64_t size = 1;    // of one
};

Result<NpyFacts> parse_npy_facts(const std::string& path, std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return corrupt(path, "not an npy file");
  }
  const bool wide = bytes[6] >= 2;
  std::size_t length = bytes[8] | std::size_t{bytes[9]} << 8;
  if (wide) {
    length = bytes.size() < 12 ? bytes.size() : length | std::size_t{bytes[10]} << 16 | std::size_t{bytes[11]} << 24;
  }
  const std::size_t begin = wide ? 12 : 10;
  if (length > bytes.size() - std::min(begin, bytes.size())) {
    return corrupt(path, "it is cut short within its head");
  }
  NpyFacts facts;
  facts.begin = begin + length;
  ATOLL_ASSIGN(facts.head, parse_npy_head(path, {reinterpret_cast<const char*>(bytes.data()) + begin, length}));
  if (std::ranges::find(kNpyTypes, facts.head.type) == kNpyTypes.end()) {
    return corrupt(path, "its values are of type '" + facts.head.type + "'; f4, f8 and integers are read");
  }
  facts.size = static_cast<std::uint64_t>(facts.head.type[1] - '0');
  for (const std::uint64_t extent : facts.head.shape) {
    facts.values = extent == 0 || facts.values > kMaxValues / extent ? kMaxValues + 1 : facts.values * extent;
  }
  return facts;
}

}  // namespace

Result<NpyArray> NpyArray::read(const std::string& path) {
  NpyFacts facts;
  const auto size = [&](std::span<const std::uint8_t> first) -> Result<std::uint64_t> {
    ATOLL_ASSIGN(facts, parse_npy_facts(path, first));
    return facts.begin + facts.values * facts.size;
  };
  ATOLL_ASSIGN(std::vector<std::uint8_t> bytes, read_unpacked(path, size));
  const std::uint64_t values = facts.values;
  if (values > kMaxValues || bytes.size() - facts.begin != values * facts.size) {
    return corrupt(path, "it holds " + std::to_string(bytes.size() - facts.begin) + " bytes of values and its shape needs " +
                             (values > kMaxValues ? std::string("an impossible number") : std::to_string(values * facts.size)) +
                             "; it is cut short or not what it says");
  }
  bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(facts.begin));
  NpyArray array;
  array.type_ = std::move(facts.head.type);
  array.shape_ = std::move(facts.head.shape);
  array.count_ = values;
  array.bytes_ = std::move(bytes);
  return array;
}

double NpyArray::at(std::size_t i) const {
  const auto as = [&](auto sample) {
    std::memcpy(&sample, bytes_.data() + i * sizeof sample, sizeof sample);
    return static_cast<double>(sample);
  };
  if (type_ == "f4") {
    return as(float{});
  }
  if (type_ == "f8") {
    return as(double{});
  }
  if (type_ == "i8") {
    return as(std::int64_t{});
  }
  if (type_ == "u8") {
    return as(std::uint64_t{});
  }
  if (type_ == "i4") {
    return as(std::int32_t{});
  }
  if (type_ == "u4") {
    return as(std::uint32_t{});
  }
  if (type_ == "i2") {
    return as(std::int16_t{});
  }
  if (type_ == "u2") {
    return as(std::uint16_t{});
  }
  return type_ == "i1" ? as(std::int8_t{}) : as(std::uint8_t{});
}

}  // namespace atl
