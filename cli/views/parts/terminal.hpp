// Terminal: what the place that shows text can do, and the few colours we use.
// Threads: plain values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atl {

// Of a pipe or a file: nothing is cut.
inline constexpr std::size_t kNoEdge = 100'000;

struct Terminal {
  std::size_t columns = 100;
  bool colour = false;

  // For what is drawn as wide as the terminal, which has to end somewhere.
  [[nodiscard]] std::size_t columns_or(std::size_t of_a_pipe) const { return columns == kNoEdge ? of_a_pipe : columns; }
};

enum class Style { plain, bold, dim, good, bad, attention };

// The text in a style; unchanged where the terminal shows no colours.
std::string styled(std::string_view text, Style style, const Terminal& terminal);

// The text with each line broken at spaces where it is wider than the terminal; what follows of it is indented. A word that is too wide
// stays whole. The codes of `styled` take no room.
std::string wrapped(std::string_view text, std::size_t indent, const Terminal& terminal);

}  // namespace atl
