// `atoll agent`: one island, in the foreground.
#include <csignal>
#include <filesystem>
#include <memory>
#include <ostream>

#include "agent/service/driver.hpp"
#include "cli/command.hpp"
#include "cli/join_token_source.hpp"
#include "cli/local/uplink.hpp"
#include "cli/state_directory.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/descriptor_limit.hpp"

namespace atl {
namespace {

struct AgentCommandOptions {
  std::string state;
  std::string join;
  std::string join_file;
  std::string name;
  std::string coordinator;
  std::string bind;
  std::string advertise;
  std::vector<std::string> data;
  std::vector<std::string> allow_data;
  std::vector<std::string> trainers;
  std::vector<std::string> trainer_environment;
  std::vector<std::string> trainer_folders;
  std::string uplink;
  std::string trainer_memory;
  Duration trainer_hang_after = std::chrono::minutes(5);
  std::string leave_file;
  std::string leave_command;
  Duration leave_within = std::chrono::seconds(60);
  bool insecure = false;
};

Result<agent::AgentOptions> agent_options(const Invocation& invocation, const AgentCommandOptions& given) {
  agent::AgentOptions options;
  ATOLL_ASSIGN(options.state, state_directory(given.state, invocation.environment));
  options.name = given.name;
  ATOLL_ASSIGN(options.join_token, join_token_text(invocation, given.join, given.join_file));
  options.coordinator = given.coordinator;
  options.bind = given.bind;
  options.advertise = given.advertise;
  options.insecure = given.insecure;
  options.version = ATOLL_VERSION;
  options.trainer_hang_after = given.trainer_hang_after;
  options.leave_file = given.leave_file;
  options.leave_command = given.leave_command;
  options.leave_within = given.leave_within;
  if (const std::optional<std::string> faults = invocation.environment(agent::kRehearsalVariable)) {
    ATOLL_ASSIGN(options.faults, agent::parse_faults(*faults));
  }
  if (!given.uplink.empty()) {
    ATOLL_ASSIGN(options.uplink_bits_per_second, parse_uplink(given.uplink));
  }
  if (!given.trainer_memory.empty()) {
    ATOLL_ASSIGN(options.trainer_memory_bytes, parse_bytes(given.trainer_memory));
  }
  for (const std::string& mapping : given.data) {
    if (const Status added = add_data_mapping(options.data, mapping); !added) {
      return with_context(added.error(), "--data");
    }
  }
  for (const std::string& folder : given.allow_data) {
    options.data.folders.emplace_back(folder);
  }
  ATOLL_ASSIGN(options.trainers, agent::trainer_programs({given.trainers, given.trainer_environment, given.trainer_folders},
                                                         invocation.environment("PATH").value_or("")));
  return options;
}

Exit run_island(const Invocation& invocation, const AgentCommandOptions& given) {
  const Result<agent::AgentOptions> options = agent_options(invocation, given);
  if (!options) {
    return report(invocation, options.error());
  }
  std::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();
  const Status ran = agent::run_agent(*options);
  if (!ran && ran.error().code == Code::cancelled) {
    return Exit::interrupted;
  }
  return ran ? Exit::ok : report(invocation, ran.error());
}

}  // namespace

Command agent_command() {
  auto options = std::make_shared<AgentCommandOptions>();
  Command command;
  command.name = "agent";
  command.summary = "runs an island's agent in the foreground until SIGTERM or Ctrl-C";
  command.details =
      "The first time with a join token (atoll token create prints one): in a file (--join-file), on standard input\n"
      "(--join-file -) or in $ATOLL_JOIN_TOKEN. `ps` shows a token after --join. After that the island is known by its key.\n"
      "Runs read nothing but what --data and --allow-data name, and start nothing but what --trainer names. SIGTERM finishes the round in "
      "hand, with the\n"
      "steps done so far, and leaves; so do the leave file and the leave command, for machines that are taken away at short notice.";
  command.options = {
      {"--join-file",
       "the file of a join token, to enrol this island; - for standard input (else $ATOLL_JOIN_TOKEN)",
       &options->join_file,
       false,
       {},
       Completes::files},
      {"--join", "a join token itself, which others on this machine can see", &options->join},
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders},
      {"--name", "what the island is called (else the host's name)", &options->name},
      {"--data", "NAME=PATH: the files behind a data set's name; PATH is a file, a folder or a glob", &options->data},
      {"--allow-data", "a folder whose files run files may name", &options->allow_data, false, {}, Completes::folders},
      {"--trainer", "NAME=COMMAND: a training program that runs may name; split without a shell; NAME=attach waits for one that you start",
       &options->trainers},
      {"--trainer-env", "NAME=KEY=VALUE: a variable for that trainer", &options->trainer_environment},
      {"--trainer-folder", "NAME=DIR: where that trainer is started (else the agent's working directory)", &options->trainer_folders},
      {"--coordinator", "the coordinator's address, if it is not the one joined at", &options->coordinator},
      {"--bind", "where other islands reach it, tcp://HOST:PORT (else any free port)", &options->bind},
      {"--advertise", "HOST or HOST:PORT that other islands dial (else found out)", &options->advertise},
      {"--uplink", "what this island may send to the others, like 50mbit (else as much as the line bears)", &options->uplink},
      {"--trainer-memory", "a trainer that needs more is ended, like 8GiB (else no limit)", &options->trainer_memory},
      {"--trainer-hang-after", "a trainer that makes no progress for so long is restarted", &options->trainer_hang_after},
      {"--leave-file", "leave once this file is there; its first line is the reason", &options->leave_file, false, {}, Completes::files},
      {"--leave-command", "leave once this command (run every 5 s by sh) exits with 0; its first line is the reason",
       &options->leave_command},
      {"--leave-within", "go after so long at the latest, whatever is in hand", &options->leave_within},
      {"--insecure", "no encryption; loopback only", &options->insecure}};
  command.run = [options](Invocation& invocation) { return run_island(invocation, *options); };
  return command;
}

}  // namespace atl
