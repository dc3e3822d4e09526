// A number from the system's own source (getrandom), for keys of requests, names of files and the like. std::random_device is not used:
// what it calls in libstdc++ is newer than the oldest glibc on which a portable program runs. Threads: any.
#pragma once

#include <cstdint>

namespace atl {

[[nodiscard]] std::uint64_t random_number();

}  // namespace atl
