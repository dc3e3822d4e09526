#include "transport/base/plain_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace atl {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "\xE2\x80\xA6";     // U+2026

bool continues(std::string_view text, std::size_t at, unsigned low, unsigned high) {
  if (at >= text.size()) {
    return false;
  }
  const auto byte = static_cast<unsigned char>(text[at]);
  return byte >= low && byte <= high;
}

// Bytes of the well-formed character at the front of `text`; 0 if there is none.
std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) {
    return 1;
  }
  if (lead >= 0xC2 && lead <= 0xDF) {
    return continues(text, 1, 0x80, 0xBF) ? 2 : 0;
  }
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return continues(text, 1, low, high) && continues(text, 2, 0x80, 0xBF) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(text, 1, low, high) && continues(text, 2, 0x80, 0xBF) && continues(text, 3, 0x80, 0xBF) ? 4 : 0;
  }
  return 0;
}

// The code point of the well-formed character at the front of `text`, which has `size` bytes.
char32_t code_point(std::string_view text, std::size_t size) {
  const auto lead = static_cast<unsigned char>(text[0]);
  char32_t value = size == 1 ? lead : lead & (0xFFU >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    value = value << 6U | (static_cast<unsigned char>(text[i]) & 0x3FU);
  }
  return value;
}

struct CodePoints {
  char32_t first;
  char32_t last;
};
template <std::size_t N>
bool among(char32_t value, const std::array<CodePoints, N>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const CodePoints& range) { return value >= range.first && value <= range.last; });
}

// They reorder what stands beside them, or end the line.
constexpr std::array<CodePoints, 4> kReorders = {{{0x061C, 0x061C}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2066, 0x2069}}};
// Nobody sees them: Unicode's default ignorable code points, and the interlinear annotations.
constexpr std::array<CodePoints, 13> kInvisible = {{{0x00AD, 0x00AD},
                                                    {0x034F, 0x034F},
                                                    {0x115F, 0x1160},
                                                    {0x17B4, 0x17B5},
                                                    {0x180B, 0x180F},
                                                    {0x200B, 0x200D},
                                                    {0x2060, 0x206F},
                                                    {0x3164, 0x3164},
                                                    {0xFE00, 0xFE0F},
                                                    {0xFEFF, 0xFEFF},
                                                    {0xFFA0, 0xFFA0},
                                                    {0xFFF0, 0xFFFB},
                                                    {0xE0000, 0xE0FFF}}};

// Whether the character at the front of `text`, well-formed and of `size` bytes, obeys the rule.
bool obeys(std::string_view text, std::size_t size, TextRule rule) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (rule == TextRule::json) {
    return true;
  }
  if (rule == TextRule::text && (first == '\n' || first == '\t')) {
    return true;
  }
  if (first < 0x20 || first == 0x7F) {
    return false;
  }
  if (size == 2 && first == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0) {
    return false;  // C1 controls
  }
  const char32_t value = code_point(text, size);
  return !among(value, kReorders) && (rule == TextRule::text || !among(value, kInvisible));
}

}  // namespace

bool is_plain(std::string_view text, TextRule rule) {
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (size == 0 || !obeys(text, size, rule)) {
      return false;
    }
    text.remove_prefix(size);
  }
  return true;
}

std::string make_plain(std::string_view text, TextRule rule, std::size_t max_bytes) {
  if (text.size() <= max_bytes && is_plain(text, rule)) {
    return std::string(text);
  }
  std::string plain;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    const bool good = size != 0 && obeys(text, size, rule);
    const std::string_view next = good ? text.substr(0, size) : kReplacement;
    const std::size_t taken = size == 0 ? 1 : size;
    const std::size_t room_kept = taken < text.size() ? kEllipsis.size() : 0;
    if (plain.size() + next.size() + room_kept > max_bytes) {
      if (plain.size() + kEllipsis.size() <= max_bytes) {
        plain += kEllipsis;
      }
      break;
    }
    plain += next;
    text.remove_prefix(taken);
  }
  return plain;
}

std::string settle_encoding(std::string& text) {
  using namespace std::string_view_literals;
  const std::string_view seen(text);
  const std::string advice = " text, as PowerShell's > and some editors write; save it as UTF-8";
  if (seen.starts_with("\xFF\xFE\0\0"sv) || seen.starts_with("\0\0\xFE\xFF"sv)) {
    return "is UTF-32" + advice;
  }
  // Without a mark: of ASCII letters every other byte is zero.
  const auto zero = [&](std::size_t at) { return seen[at] == '\0'; };
  const bool unmarked = seen.size() >= 4 && zero(0) != zero(1) && zero(0) == zero(2) && zero(1) == zero(3);
  if (seen.starts_with("\xFF\xFE"sv) || seen.starts_with("\xFE\xFF"sv) || unmarked) {
    return "is UTF-16" + advice;
  }
  if (seen.starts_with("\xEF\xBB\xBF"sv)) {
    text.erase(0, 3);
  }
  return "";
}

}  // namespace atl
