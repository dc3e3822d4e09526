#include "cli/views/terminal.hpp"

namespace atl {
namespace {

std::string_view code_of(Style style) {
  switch (style) {
    case Style::plain:
      return "";
    case Style::bold:
      return "\x1b[1m";
    case Style::dim:
      return "\x1b[2m";
    case Style::good:
      return "\x1b[32m";
    case Style::bad:
      return "\x1b[31m";
    case Style::attention:
      return "\x1b[33m";
  }
  return "";
}

}  // namespace

std::string styled(std::string_view text, Style style, const Terminal& terminal) {
  if (!terminal.colour || style == Style::plain || text.empty()) {
    return std::string(text);
  }
  return std::string(code_of(style)) + std::string(text) + "\x1b[0m";
}

}  // namespace atl
