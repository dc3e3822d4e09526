// `atoll logs`: what happened in a run.
#include <memory>

#include "cli/command.hpp"
#include "cli/follow.hpp"

namespace atl {
namespace {

struct LogsOptions {
  std::string run;
  bool follow = false;
  std::string island;
  std::optional<Duration> since;
};

Exit logs(const Invocation& invocation, const LogsOptions& options) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  FollowOptions what;
  what.run = options.run;
  what.island = options.island;
  what.until_end = options.follow;
  if (options.since) {
    what.since_unix_ms = unix_ms(now() - *options.since);
  }
  const Result<std::string> state = follow_events(invocation, *client, what);
  return state ? Exit::ok : report(invocation, state.error());
}

}  // namespace

Command logs_command() {
  auto options = std::make_shared<LogsOptions>();
  Command command;
  command.name = "logs";
  command.summary = "prints a run's events; JSON lines with --json";
  command.options = {{"RUN", "the run", &options->run, true, {}, Completes::runs},
                     {"-f,--follow", "go on until the run has ended", &options->follow},
                     {"--island", "only of this island", &options->island, false, {}, Completes::islands},
                     {"--since", "only the last while, like 10m", &options->since}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return logs(invocation, *options); };
  return command;
}

}  // namespace atl
