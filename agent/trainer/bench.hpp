// `bench_trainer`: what the trainer's loop costs over the bare one. See module.hpp.
#pragma once

#include <string>
#include <vector>

namespace atl {

// Prints a table to stdout; the exit status.
int bench(const std::vector<std::string>& arguments);

}  // namespace atl
