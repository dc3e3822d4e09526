// What a process that was started with the faulty C library (tests/process/module/faulty_libc.cpp) sees of the clock and the disk.
#pragma once

namespace atl_test {

inline constexpr const char* kFaultyLibcVariable = "ATOLL_TEST_FAULTY_LIBC";  // the path of a file that holds one FaultyLibc

struct FaultyLibc {
  long clock_seconds = 0;      // that its wall clock is ahead
  long sync_milliseconds = 0;  // that fsync and fdatasync take longer
};

}  // namespace atl_test
