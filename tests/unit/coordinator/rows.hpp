// What the tables of the coordinator's decisions are made of.
#pragma once

#include <cstddef>
#include <string>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl_test {

inline const atl::TimePoint kStart = atl::from_unix_ms(1'700'000'000'000);

inline atl::IslandId island(std::size_t i) { return atl::IslandId("i" + std::to_string(i)); }

// Others for other values.
inline atl::Digest digest(int value) {
  atl::Digest made;
  made.bytes[0] = static_cast<std::byte>(value);
  made.bytes[1] = static_cast<std::byte>(value >> 8);
  return made;
}

}  // namespace atl_test
