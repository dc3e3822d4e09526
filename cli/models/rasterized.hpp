// A picture in SVG as PNG, by librsvg's own program (Debian's librsvg2-bin): a library that draws SVG weighs more than all of Atoll, so
// nothing is linked with it, and who never asks for PNG needs none.
// Threads: starts a process and waits for it.
#pragma once

#include <string>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

namespace atl {

// In pixels as many as the picture says. Errors: not_found when the program is not installed, saying what to do; internal with its words.
Result<Bytes> rasterized(const std::string& svg);

}  // namespace atl
