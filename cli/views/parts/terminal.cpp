#include "cli/views/parts/terminal.hpp"

#include <algorithm>

#include "cli/views/parts/printable.hpp"

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

namespace {

std::string wrapped_line(std::string_view line, std::size_t indent, const Terminal& terminal) {
  std::string text;
  std::size_t column = 0;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t spaces_end = std::min(line.find_first_not_of(' ', at), line.size());
    const std::size_t word_end = std::min(line.find(' ', spaces_end), line.size());
    const std::string_view word = line.substr(spaces_end, word_end - spaces_end);
    std::size_t wide = columns_of(word);
    for (std::size_t code = word.find('\x1b'); code != std::string_view::npos; code = word.find('\x1b', code + 1)) {
      wide -= std::min(word.find('m', code), word.size() - 1) - code + 1;
    }
    if (column > indent && column + (spaces_end - at) + wide > terminal.columns) {
      text += "\n" + std::string(indent, ' ');
      column = indent;
    } else {
      text += line.substr(at, spaces_end - at);
      column += spaces_end - at;
    }
    text += word;
    column += wide;
    at = word_end;
  }
  return text;
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, const Terminal& terminal) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += wrapped_line(text.substr(0, end), indent, terminal) + (end < text.size() ? "\n" : "");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace atl
