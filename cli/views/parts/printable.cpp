#include "cli/views/parts/printable.hpp"

#include <array>
#include <cstdio>

namespace atl {
namespace {

// Bytes of the UTF-8 character at the front; 0 if it is none.
std::size_t character_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t count = lead < 0x80                     ? 1
                            : (lead >= 0xc2 && lead < 0xe0) ? 2
                            : (lead >= 0xe0 && lead < 0xf0) ? 3
                            : (lead >= 0xf0 && lead < 0xf5) ? 4
                                                            : 0;
  if (count == 0 || count > text.size()) {
    return 0;
  }
  for (std::size_t i = 1; i < count; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      return 0;
    }
  }
  return count;
}

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) {
    return first < 0x20 || first == 0x7f;
  }
  return character.size() == 2 && first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;  // C1 controls
}

}  // namespace

std::string printable(std::string_view text, std::size_t limit) {
  std::string result;
  while (!text.empty()) {
    if (result.size() >= limit) {
      return result + "…";
    }
    const std::size_t count = character_bytes(text);
    const std::string_view character = text.substr(0, count == 0 ? 1 : count);
    if (count == 0 || is_control(character)) {
      for (const char byte : character) {
        std::array<char, 8> escape{};
        std::snprintf(escape.data(), escape.size(), "\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(byte)));
        result += escape.data();
      }
    } else {
      result += character;
    }
    text.remove_prefix(character.size());
  }
  return result;
}

std::string in_quotes(std::string_view text) { return "\"" + printable(text, 60) + "\""; }

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (const char byte : text) {
    columns += (static_cast<unsigned char>(byte) & 0xc0) != 0x80 ? 1U : 0U;
  }
  return columns;
}

std::string_view first_columns(std::string_view text, std::size_t columns) {
  std::size_t end = 0;
  std::size_t seen = 0;
  while (end < text.size()) {
    if ((static_cast<unsigned char>(text[end]) & 0xc0) != 0x80) {
      if (seen == columns) {
        break;
      }
      ++seen;
    }
    ++end;
  }
  return text.substr(0, end);
}

}  // namespace atl
