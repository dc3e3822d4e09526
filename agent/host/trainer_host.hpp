// The trainer's process: started, watched, stopped.
//
// A trainer is a process of its own, so that its crash is not the agent's. It gets a process group of its own, only the
// standard streams, and dies with the agent (PR_SET_PDEATHSIG). What it prints goes to the log line by line, and the last
// lines are kept to say why it ended. The host never waits: `watch_fds` go into the owner's poll, `pump` moves on. Where the system has no
// descriptor of a process (pidfd_open is missing, or a container refuses it), `next_check` is twenty times a second instead.
//
// A trainer that is expected to make progress and does not is killed (`hang_after`), as is one over its memory limit; both
// say so in `TrainerExit`. `stop` asks with SIGTERM and after `stop_grace` insists with SIGKILL, for the whole group.
// Threads: one, and `start` must be called on a thread that lives as long as the trainer: the kernel delivers the
// parent's death when the *thread* that forked ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

inline constexpr Duration kStopPatience = std::chrono::seconds(3);  // for a program to end by itself once it was told on its link

struct TrainerCommand {
  std::string program;                                                               // a path
  std::vector<std::string> arguments;                                                // without the program's name
  std::map<std::string, std::string> environment;                                    // added to the agent's own, or replacing it
  std::function<bool(std::string_view name, std::string_view value)> withheld = {};  // of the agent's own; empty: nothing
  std::filesystem::path folder;                                                      // working directory; must exist
  std::uint64_t memory_limit_bytes = 0;                                              // resident, of all its processes; 0: none
  bool kept = false;  // it is a keeper of others (process_tree.hpp), which it ends on SIGHUP
  Duration hang_after = std::chrono::minutes(5);
  Duration stop_grace = std::chrono::seconds(10);
  std::function<void(const std::string& line)> on_line;  // each line it prints
};

// How a trainer ended.
struct TrainerExit {
  bool clean = false;  // status 0, or ended by our `stop`
  int status = 0;      // exit status, if it exited
  int signal = 0;      // the signal that ended it, 0 if none
  // One line for a person: "was killed by signal 11 (Segmentation fault) after 2m10s; its last lines: …".
  std::string why;
  std::string last_lines;  // of what it printed; empty if it was asked to end
};

class TrainerHost {
 public:
  // Errors: not_found if there is no such program, io if the system refuses a process.
  static Result<TrainerHost> start(TrainerCommand command, TimePoint now);
  TrainerHost(TrainerHost&& other) noexcept;
  TrainerHost& operator=(TrainerHost&&) = delete;
  TrainerHost(const TrainerHost&) = delete;
  TrainerHost& operator=(const TrainerHost&) = delete;
  // Kills what still runs, and reaps it.
  ~TrainerHost();

  [[nodiscard]] pid_t pid() const { return pid_; }
  // To poll for reading; -1 entries are closed already.
  [[nodiscard]] std::vector<int> watch_fds() const { return {output_, pidfd_}; }
  // Takes what it printed, its end, its memory and its silence into account. The exit is given once.
  [[nodiscard]] std::optional<TrainerExit> pump(TimePoint now);
  // When `pump` has to be called at the latest though no descriptor is ready.
  [[nodiscard]] TimePoint next_check() const { return next_check_; }

  // It has just shown that it lives and moves (a message, a step).
  void note_progress(TimePoint now) { progress_ = now; }
  // Whether it should be moving: false while it waits for the agent.
  void expect_progress(bool expected, TimePoint now);
  // Asks it to end; safe to call again.
  void stop(TimePoint now);
  // Ends it at once, for this reason.
  void kill(std::string reason);
  [[nodiscard]] std::uint64_t resident_bytes() const;

 private:
  TrainerHost() = default;
  void read_output();
  void take_line(std::string line);
  void signal_group(int signal) const;
  void end_now() const;
  [[nodiscard]] bool ends_within(std::chrono::milliseconds patience) const;
  [[nodiscard]] Duration check_every() const;
  [[nodiscard]] TrainerExit describe(int wait_status, TimePoint now) const;

  TrainerCommand command_;
  pid_t pid_ = -1;
  int output_ = -1;
  int pidfd_ = -1;  // -1 also where the system has none
  TimePoint started_{};
  TimePoint progress_{};
  TimePoint next_check_{};
  bool expected_ = false;
  std::optional<TimePoint> stopping_;
  bool insisted_ = false;
  std::string killed_because_;
  std::uint64_t out_of_memory_kills_ = 0;  // the machine's count when the trainer started
  std::string partial_;
  std::deque<std::string> last_lines_;
};

}  // namespace atl
