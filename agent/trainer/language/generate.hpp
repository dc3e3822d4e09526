// `generate`: text from a model in a safetensors file. See module.hpp.
// Keys and values of what was read are kept, so a token costs one position; when the model's context (its sequence_length) is full, reading
// begins again with the newer half of it.
#pragma once

#include <string>
#include <vector>

namespace atl {

// Writes to stdout; the exit status.
int generate(const std::vector<std::string>& arguments);

}  // namespace atl
