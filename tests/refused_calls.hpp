// System calls that a kernel does not have, or that a container's filter refuses.
#pragma once

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace atl_test {

// From here on this process, and whatever it starts, gets that errno for these calls. False where the system has no such filters.
inline bool refuse_calls(const std::vector<long>& calls, int number) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const long call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call), 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(number)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

constexpr int kNoFilters = 77;  // what a child ends with where the system has none
constexpr int kThrew = 78;

// What `work` returns in a child process to which these calls are refused; 128 and the signal if one ended it.
inline int exit_code_without(const std::vector<long>& calls, int number, const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      ::_exit(refuse_calls(calls, number) ? work() : kNoFilters);
    } catch (...) {  // a check of a test's that failed
      ::_exit(kThrew);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace atl_test
