// A whole run where the kernel is older than some calls, or a container's filter refuses them.
#include "tests/refused_calls.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "tests/places.hpp"
#include "tests/process/cluster.hpp"
#include "tests/skip.hpp"

namespace of_refused_calls_process_test {

namespace {

// `atoll local` of two islands, in a folder; its exit code.
int run_two_islands(const std::string& folder) {
  const std::string log = folder + "/log";
  if (::chdir(folder.c_str()) != 0 || ::freopen(log.c_str(), "w", stdout) == nullptr || ::dup2(STDOUT_FILENO, STDERR_FILENO) < 0) {
    return 1;
  }
  ::setenv("ATOLL_TRAINER_MODULE", atl_test::arithmetic_trainer().c_str(), 1);
  const std::string program = atl_test::atoll_program();
  ::alarm(120);  // also of the program that follows: one that hangs has failed
  ::execl(program.c_str(), "atoll", "local", "run.toml", "--islands", "2", "--network", "local", "--link", "10ms,1gbit,0", "--state",
          "state", static_cast<char*>(nullptr));
  return 1;
}

}  // namespace

TEST_CASE("a run of two islands over a far link completes where each newer call is missing, or refused") {
  const std::vector<std::vector<long>> refused = {
      {SYS_openat2}, {SYS_pidfd_open}, {SYS_epoll_pwait2}, {SYS_openat2, SYS_pidfd_open, SYS_epoll_pwait2}};
  for (const std::vector<long>& calls : refused) {
    const int number = calls.size() == 1 ? EPERM : ENOSYS;
    const atl_test::TemporaryFolder folder;
    folder.write("text.txt", std::string(20'000, 'x'));
    folder.write(
        "run.toml",
        "[run]\nname = \"old\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\n[data]\nfiles = [\"text.txt\"]\n[training]\nsteps = 20\n"
        "batch = 4\nsequence_length = 16\nwarmup_steps = 1\n[strategy]\ninner_steps = 5\n[islands]\nmin = 2\nmax = 2\n");
    const int code = atl_test::exit_code_without(calls, number, [&] { return run_two_islands(folder.path().string()); });
    if (code == atl_test::kNoFilters) {
      ATL_SKIP("this system has no seccomp filters");
    }
    INFO(std::strerror(number) << ": " << atl_test::text_of((folder.path() / "log").string()));
    CHECK(code == 0);
  }
}

}  // namespace of_refused_calls_process_test
