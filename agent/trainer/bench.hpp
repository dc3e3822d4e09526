// `bench_trainer`: how fast the trainer's loop is. See module.hpp.
#pragma once

#include <string>
#include <vector>

namespace atl {

// One turn for each line on stdin; the exit status.
int bench(const std::vector<std::string>& arguments);

}  // namespace atl
