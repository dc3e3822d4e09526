// The files of the examples that `atoll example` writes (examples/first), as the build put them into the program.
// Threads: constant.
#pragma once

#include <span>

#include "transport/base/embedded_file.hpp"

namespace atl {

// By name: "gpt/README.md", "gpt/run.toml", "gpt/train.py". The first line of each README.md is "# what it is".
std::span<const EmbeddedFile> example_files();

}  // namespace atl
