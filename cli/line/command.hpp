// Command: what a subcommand is called, takes and does. One function in one file describes each (`cli/commands/runs/validate.cpp`);
// parsing, --help and shell completion all come from these descriptions.
// Threads: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "cli/line/command_line.hpp"
#include "cli/line/exit_code.hpp"
#include "cli/views/parts/terminal.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

// Where an option's value goes. A bool is a flag; a Duration is written "30s"; a list may be given several times.
using OptionTarget =
    std::variant<bool*, std::string*, std::vector<std::string>*, std::uint64_t*, double*, Duration*, std::optional<Duration>*>;

// What a shell offers for an option's value.
enum class Completes { nothing, files, folders, runs, islands };

struct CommandOption {
  std::string names;  // "-f,--follow", or "FILE" for an argument without a dash
  std::string doc;
  OptionTarget target;
  bool required = false;
  std::vector<std::string> choices = {};
  Completes completes = Completes::nothing;
  std::vector<std::string> suggested = {};  // values that a shell offers among others that are taken, too
};

// Where the coordinator is, for the commands that ask it.
struct CoordinatorOptions {
  std::string coordinator;  // tcp://HOST:PORT; empty: from the state directory
  std::string key;          // file of an operator's key
  std::string state;        // state directory; empty: the environment's or the default one
  std::string proxy;        // URL or "none"; empty: the variables say (transport/proxy/proxy_rules.hpp)
  bool insecure = false;    // the coordinator was started so
};

// One call of a command.
struct Invocation {
  const Streams& streams;
  const Environment& environment;
  Terminal terminal;  // of stdout
  bool json = false;
  CoordinatorOptions coordinator;
  std::vector<std::string> rest;  // of a command that passes its arguments on
  std::set<std::string> given;    // the long names of the options that are on the command line
};

struct Command {
  std::string name;
  std::string summary;  // one line
  std::string details = {};
  std::vector<CommandOption> options = {};
  std::vector<Command> subcommands = {};
  std::function<Exit(Invocation&)> run = {};  // empty: a subcommand is required
  bool asks_coordinator = false;              // takes --coordinator, --key, --state
  bool serves = false;                        // others wait for it as long as it runs: its log is written beside (LogWrites)
  bool passes_arguments = false;              // everything after its name goes to `rest`, --help included
  bool short_output = true;                   // -o is --output FORMAT; false where -o means something else (--json stays)
};

// What every command that runs takes.
struct CommonOptions {
  std::string format = "text";
  bool json = false;
  std::string log_level = "info";
  bool log_json = false;
  CoordinatorOptions coordinator;
};
std::vector<CommandOption> common_options(const Command& command, CommonOptions& common);

// From now on what this process dials goes through this proxy: of --proxy, or "" for that of the variables. Errors: invalid_argument.
Status use_proxy(const Invocation& invocation, const std::string& given);
// What --proxy is, of every command that has it.
inline constexpr const char* kProxyDoc =
    "what leads out of this network: socks5://, socks5h:// or http://[USER:PASSWORD@]HOST:PORT, or none (else $ALL_PROXY, $HTTPS_PROXY; "
    "$NO_PROXY lists what is dialled directly)";

// Prints "atoll: why" (or a JSON object with --json) to stderr, below what was logged, and returns the code's exit code.
Exit report(const Invocation& invocation, const Error& error);

// The whole tree.
Command atoll_command();

// As run_command_line (cli/line/command_line.hpp), with these commands.
int run_command_line(const Command& tree, std::span<const std::string> arguments, const Streams& streams, const Environment& environment);

Command coordinator_command();
Command token_command();
Command agent_command();
Command relay_command();
Command submit_command();
Command validate_command();
Command plan_command();
Command runs_command();
Command status_command();
Command islands_command();
Command logs_command();
Command trace_command();
Command events_command();
Command data_command();
Command metrics_command();
Command plot_command();
Command compare_command();
Command diff_command();
Command wait_command();
Command cancel_command();
Command pause_command();
Command resume_command();
Command drain_command();
Command export_command();
Command restore_command();
Command local_command();
Command version_command();
Command doctor_command();
Command example_command();
Command up_command();
Command join_command();
Command completion_command();
Command manual_command();
Command trainer_command();
Command generate_command();
Command sample_command();

}  // namespace atl
