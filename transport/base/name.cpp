#include "transport/base/name.hpp"

#include <algorithm>

namespace atl {
namespace {

constexpr std::size_t kMostDigits = 9;
constexpr std::size_t kMostQuoted = 40;
constexpr std::size_t kKeyLength = 40;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alphanumeric(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxNameLength && is_alphanumeric(text.front()) && text.find("..") == std::string_view::npos &&
         std::all_of(text.begin(), text.end(), [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool is_task_name(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    return is_name(text);
  }
  const std::string_view number = text.substr(slash + 1);
  return is_name(text.substr(0, slash)) && !number.empty() && number.size() <= kMostDigits &&
         std::all_of(number.begin(), number.end(), is_digit);
}

bool is_key_form(std::string_view text) {
  return text.size() == kKeyLength && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || std::string_view(".-:+=^!/*?&<>()[]{}@%$#").find(c) != std::string_view::npos;
         });
}

std::string shown_name(std::string_view text) {
  std::string shown = "'";
  for (const char c : text.substr(0, kMostQuoted)) {
    shown += c >= ' ' && c <= '~' ? c : '?';
  }
  return shown + (text.size() > kMostQuoted ? "…'" : "'");
}

}  // namespace atl
