// Terminal: what the place that shows text can do, and the few colours we use.
// Threads: plain values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace atl {

struct Terminal {
  std::size_t columns = 100;
  bool colour = false;
};

enum class Style { plain, bold, dim, good, bad, attention };

// The text in a style; unchanged where the terminal shows no colours.
std::string styled(std::string_view text, Style style, const Terminal& terminal);

}  // namespace atl
