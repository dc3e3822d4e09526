#include "transport/base/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace atl {

void check_failed(const char* file, int line, const char* condition, std::string_view why) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s: %.*s\n", file, line, condition, static_cast<int>(why.size()), why.data());
  std::fflush(stderr);
  std::abort();
}

}  // namespace atl
