// A disk that is full, as far as this process can tell: no file may grow beyond a limit.
#pragma once

#include <sys/resource.h>

#include <csignal>
#include <cstdint>

namespace atl_test {

class FullDisk {
 public:
  explicit FullDisk(std::uintmax_t largest_file_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    old_ = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = before_;
    limit.rlim_cur = largest_file_bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, old_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*old_)(int) = nullptr;
};

}  // namespace atl_test
