// `generate`: text from a model in a safetensors file. See module.hpp.
#pragma once

#include <string>
#include <vector>

namespace atl {

// Writes to stdout; the exit status.
int generate(const std::vector<std::string>& arguments);

}  // namespace atl
