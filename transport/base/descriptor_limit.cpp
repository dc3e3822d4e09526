#include "transport/base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <string>

namespace atl {
namespace {

constexpr rlim_t kEnough = 65'536;
constexpr std::size_t kFewest = 128;

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

Status raise_descriptor_limit_to_serve() {
  const std::size_t limit = raise_descriptor_limit();
  if (limit < kFewest) {
    return Error{Code::io, "this process may have " + std::to_string(limit) + " files and connections open, and needs " +
                               std::to_string(kFewest) + ": raise it (ulimit -Hn, LimitNOFILE of systemd)"};
  }
  return {};
}

}  // namespace atl
