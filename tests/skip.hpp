// Says that a test cannot run here, and why: CTest then shows "Skipped", not "Passed".
//
//   if (!fs::exists(module)) {
//     ATL_SKIP("built without LibTorch, so there is no " << module);
//   }
//
// It leaves the test case. Catch2 3 has SKIP; with Catch2 2 the main of the tests (catch_main.cpp) counts, and ends with the same exit
// status, 4, when all test cases that ran were skipped.
#pragma once

#include "tests/catch.hpp"

#if defined(SKIP)
#define ATL_SKIP(why) SKIP(why)
#else
namespace atl_test {
void count_skipped();  // catch_main.cpp
}
#define ATL_SKIP(why)          \
  do {                         \
    WARN("skipped: " << why);  \
    atl_test::count_skipped(); \
    return;                    \
  } while (false)
#endif
