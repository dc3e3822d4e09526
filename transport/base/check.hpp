// ATOLL_CHECK(condition, why): a broken invariant ends the process loudly, in release builds too.
// Never used on input that comes from a network, a disk, a run file or a person: those return an Error.
#pragma once

#include <string_view>

namespace atl {

// Prints file, line, condition and why to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view why);

}  // namespace atl

#define ATOLL_CHECK(condition, why)                               \
  do {                                                            \
    if (!(condition)) [[unlikely]] {                              \
      ::atl::check_failed(__FILE__, __LINE__, #condition, (why)); \
    }                                                             \
  } while (false)
