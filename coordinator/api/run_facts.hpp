// What `status` and `runs` show of a run's spec, read from its JSON once.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/api/requests.hpp"

namespace atl::coordinator {

struct Requests::Facts {
  std::string strategy;
  std::uint64_t steps = 0;
  std::uint64_t token_limit = 0;  // [training].tokens; 0: it ends by its steps
  std::uint64_t inner_steps = 0;
  std::uint64_t parameters = 0;         // of the model
  bool images = false;                  // it is trained on images
  std::vector<std::string> notes = {};  // what its author may want otherwise
  std::string trainer = {};             // the name of a trainer that is not the built-in one
  std::string settings = {};            // that trainer's, as JSON
};

}  // namespace atl::coordinator
