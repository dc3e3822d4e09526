// `atoll logs`, `atoll events`: what happened in a run; for people, and all of it.
#include <memory>

#include "cli/line/command.hpp"
#include "cli/link/follow.hpp"

namespace atl {
namespace {

struct LogsOptions {
  std::string run;
  bool follow = false;
  std::string island;
  std::optional<Duration> since;
};

Exit follow(const Invocation& invocation, const LogsOptions& options, bool tape) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  FollowOptions what;
  what.run = options.run;
  what.island = options.island;
  what.until_end = options.follow;
  what.tape = tape;
  if (options.since) {
    what.since_unix_ms = unix_ms(now() - *options.since);
  }
  const Result<std::string> state = follow_events(invocation, *client, what);
  return state ? Exit::ok : report(invocation, state.error());
}

Command follow_command(const char* name, const char* summary, bool tape) {
  auto options = std::make_shared<LogsOptions>();
  Command command;
  command.name = name;
  command.summary = summary;
  command.options = {{"RUN", "the run", &options->run, true, {}, Completes::runs},
                     {"-f,--follow", "go on until the run has ended", &options->follow},
                     {"--island", "only of this island", &options->island, false, {}, Completes::islands},
                     {"--since", "only the last while, like 10m", &options->since}};
  command.asks_coordinator = true;
  command.run = [options, tape](Invocation& invocation) { return follow(invocation, *options, tape); };
  return command;
}

}  // namespace

Command logs_command() { return follow_command("logs", "prints what happened in a run; JSON lines with --json", false); }
Command events_command() {
  return follow_command("events", "prints a run's tape: every membership, attempt, commit, verdict and wait; JSON lines with --json", true);
}

}  // namespace atl
