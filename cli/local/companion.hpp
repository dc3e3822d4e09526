// Companion: another command of this program as a process, watched by the command that started it (`atoll up`).
//
// Its lines are given on as they come. It has a process group of its own, so a terminal's Ctrl-C reaches only who watches it, and dies
// with the watcher. Why it ends in error, it says itself ("atoll: WHY", or with --json an object).
// Threads: one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

class TrainerHost;

class Companion {
 public:
  using Variables = std::map<std::string, std::string>;

  // `arguments` begin with the command's name, which is the companion's; `variables` are added to the environment. Errors: io.
  static Result<Companion> start(const std::string& program, const std::vector<std::string>& arguments, const Variables& variables,
                                 std::function<void(const std::string& line)> on_line);
  Companion(Companion&&) noexcept;
  Companion& operator=(Companion&&) = delete;
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  // Kills what still runs.
  ~Companion();

  // Takes what it printed, and its end, into account. An error once, when it has ended in error: its own words, with the code of its exit
  // status.
  Status pump();
  [[nodiscard]] bool has_ended() const { return ended_; }
  // Asks it to end, and waits for that so long; then it is killed. `goes_on` is asked in between: false kills it at once.
  void stop(Duration patience, const std::function<bool()>& goes_on);

 private:
  struct Said;
  Companion(std::string name, std::unique_ptr<TrainerHost> host, std::shared_ptr<Said> said);

  std::string name_;
  std::unique_ptr<TrainerHost> host_;
  std::shared_ptr<Said> said_;
  bool ended_ = false;
};

}  // namespace atl
