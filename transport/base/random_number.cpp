#include "transport/base/random_number.hpp"

#include <sys/random.h>

#include "transport/base/check.hpp"

namespace atl {

std::uint64_t random_number() {
  std::uint64_t value = 0;
  ATOLL_CHECK(::getrandom(&value, sizeof value, 0) == sizeof value, "the system has random numbers");
  return value;
}

}  // namespace atl
