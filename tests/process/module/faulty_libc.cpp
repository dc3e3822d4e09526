// Loaded before the C library: the wall clock that a process sees is off, and what it writes takes its time to reach the disk, as a file
// that a test has mapped says at this moment (tests/process/faulty_libc.hpp).
#include "tests/process/faulty_libc.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

namespace {

const atl_test::FaultyLibc* faults() {
  static const atl_test::FaultyLibc* const mapped = [] {
    static const atl_test::FaultyLibc none;
    const char* path = std::getenv(atl_test::kFaultyLibcVariable);
    const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
    void* at = fd < 0 ? MAP_FAILED : ::mmap(nullptr, sizeof(atl_test::FaultyLibc), PROT_READ, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? &none : static_cast<const atl_test::FaultyLibc*>(at);
  }();
  return mapped;
}

void wait_for_disk() {
  if (const long ms = faults()->sync_milliseconds; ms > 0) {
    ::usleep(static_cast<useconds_t>(ms) * 1000);
  }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = ::syscall(SYS_clock_gettime, clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    time->tv_sec += faults()->clock_seconds;
  }
  return static_cast<int>(result);
}

int gettimeofday(timeval* time, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) {
    *out = now.tv_sec;
  }
  return now.tv_sec;
}

int fsync(int fd) {
  wait_for_disk();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

int fdatasync(int fd) {
  wait_for_disk();
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}

}  // extern "C"
