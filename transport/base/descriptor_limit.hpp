// How many descriptors (files, sockets) this process may have open.
#pragma once

#include <cstddef>

#include "transport/base/result.hpp"

namespace atl {

// The limit in force (RLIMIT_NOFILE, soft).
std::size_t descriptor_limit();

// Raises the limit to what the system allows this process without asking anybody, at most 65,536. Returns the limit in force then.
// For programs that serve many peers; call it before threads are started.
std::size_t raise_descriptor_limit();

// The same. Error io where that is fewer than a coordinator, an agent or a reader of islands' checkpoints needs to begin: what it is made
// of ends the process without them.
Status raise_descriptor_limit_to_serve();

}  // namespace atl
