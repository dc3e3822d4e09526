// `atoll sample`, the part that needs LibTorch: images from an ensemble, as one PNG.
// Threads: one.
#pragma once

#include <string>
#include <vector>

namespace atl {

// Arguments as `atoll sample` passes them; the value is the exit code. What went wrong is on stderr.
int sample(const std::vector<std::string>& arguments);

}  // namespace atl
