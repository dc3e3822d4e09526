#include "transport/base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace atl {
namespace {

constexpr rlim_t kEnough = 65'536;

}  // namespace

std::size_t descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return 1024;  // POSIX systems' usual one
  }
  return static_cast<std::size_t>(std::min(limit.rlim_cur, kEnough));
}

std::size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < std::min(limit.rlim_max, kEnough)) {
    limit.rlim_cur = std::min(limit.rlim_max, kEnough);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return descriptor_limit();
}

}  // namespace atl
