// `atoll agent`: one island, in the foreground; `check`, which reads what it keeps; and `atoll join`, the agent by the line that `up`
// prints.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "agent/service/driver.hpp"
#include "agent/storage/check.hpp"
#include "agent/storage/membership_file.hpp"
#include "cli/line/command.hpp"
#include "cli/link/dial.hpp"
#include "cli/link/join_token_source.hpp"
#include "cli/local/links/uplink.hpp"
#include "cli/settings/settings_file.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/store_address.hpp"
#include "transport/http/object_store.hpp"
#include "transport/identity/join_token.hpp"

namespace atl {
namespace {

struct AgentCommandOptions {
  std::string config;
  std::string state;
  std::string join;
  std::string join_file;
  std::string name;
  std::string coordinator;
  std::string bind;
  std::vector<std::string> advertise;
  std::vector<std::string> prefer;
  std::vector<std::string> never_over;
  std::string proxy;
  std::vector<std::string> data;
  std::vector<std::string> allow_data;
  std::vector<std::string> allow_copy;
  std::vector<std::string> trainers;
  std::vector<std::string> trainer_environment;
  std::vector<std::string> trainer_folders;
  std::string uplink;
  std::string link_memory;
  std::uint64_t threads = 0;
  std::string metrics;
  std::string trainer_memory;
  Duration trainer_hang_after = std::chrono::minutes(5);
  bool check_arena = false;
  std::string leave_file;
  std::string leave_command;
  std::optional<Duration> leave_idle;
  Duration leave_within = std::chrono::seconds(60);
  std::string keep_ended = "30";
  bool keep_removed = false;
  std::uint64_t relay = 0;  // port of one in this process
  std::string relay_rate;
  std::string relay_rate_of_an_island;
  bool no_hole_punching = false;
  bool no_port_mapping = false;
  bool insecure = false;
};

// Days, or "forever".
Result<std::optional<Duration>> keep_of(const std::string& text) {
  if (text == "forever") {
    return std::optional<Duration>();
  }
  constexpr std::uint64_t kMostDays = 36'500;
  std::uint64_t days = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), days);
  if (failure != std::errc() || end != text.data() + text.size() || days > kMostDays) {
    return Error{Code::invalid_argument, "--keep-ended " + text + ": a number of days up to " + std::to_string(kMostDays) + ", or forever"};
  }
  return std::optional<Duration>(std::chrono::hours(24 * days));
}

Status take_relay(const AgentCommandOptions& given, agent::AgentOptions& options) {
  if (given.relay > UINT16_MAX) {
    return Error{Code::invalid_argument, "--relay " + std::to_string(given.relay) + " is no port: give one such as 4402"};
  }
  if (given.relay == 0) {
    return given.relay_rate.empty() && given.relay_rate_of_an_island.empty()
               ? Status()
               : Error{Code::invalid_argument, "--relay-rate and --relay-rate-per-island are of a relay: give --relay PORT, too"};
  }
  RelaySettings& relay = options.relay.emplace();
  relay.bind = to_string(Address{"*", static_cast<std::uint16_t>(given.relay)});
  if (!given.relay_rate.empty()) {
    ATOLL_ASSIGN(relay.bits_per_second, parse_bits_per_second(given.relay_rate));
  }
  if (!given.relay_rate_of_an_island.empty()) {
    ATOLL_ASSIGN(relay.bits_per_second_of_an_island, parse_bits_per_second(given.relay_rate_of_an_island));
  }
  return {};
}

Result<agent::AgentOptions> agent_options(const Invocation& invocation, const AgentCommandOptions& given) {
  agent::AgentOptions options;
  ATOLL_ASSIGN(options.state, state_directory(given.state, invocation.environment));
  options.name = given.name;
  ATOLL_ASSIGN(options.join_token, join_token_text(invocation, given.join, given.join_file));
  options.coordinator = given.coordinator;
  options.bind = given.bind;
  options.advertise = given.advertise;
  options.interfaces = {given.prefer, given.never_over};
  options.metrics = given.metrics;
  options.insecure = given.insecure;
  options.hole_punching = !given.no_hole_punching;
  options.port_mapping = !given.no_port_mapping;
  ATOLL_TRY(take_relay(given, options));
  options.version = ATOLL_VERSION;
  options.trainer_hang_after = given.trainer_hang_after;
  options.check_arena = given.check_arena;
  options.leave_file = given.leave_file;
  options.leave_command = given.leave_command;
  if (given.leave_idle && *given.leave_idle < std::chrono::seconds(1)) {
    return Error{Code::invalid_argument, "--leave-idle: it is at least 1s: an island has nothing to train until a run takes it"};
  }
  options.leave_idle = given.leave_idle;
  options.leave_within = given.leave_within;
  ATOLL_ASSIGN(options.keep_ended, keep_of(given.keep_ended));
  options.keep_removed = given.keep_removed;
  if (const std::optional<std::string> faults = invocation.environment(agent::kRehearsalVariable)) {
    ATOLL_ASSIGN(options.faults, agent::parse_faults(*faults));
  }
  if (!given.uplink.empty()) {
    ATOLL_ASSIGN(options.uplink, parse_uplink(given.uplink));
  }
  if (!given.link_memory.empty()) {
    const Result<std::uint64_t> bytes = parse_bytes(given.link_memory);
    if (!bytes) {
      return with_context(bytes.error(), "--link-memory");
    }
    if (*bytes < kLeastLinkMemory) {
      return Error{Code::invalid_argument,
                   "--link-memory " + given.link_memory + ": the link needs at least " + human_bytes(kLeastLinkMemory)};
    }
    options.link_memory_bytes = *bytes;
  }
  constexpr std::uint64_t kMostThreads = 64;
  if (given.threads > kMostThreads) {
    return Error{Code::invalid_argument,
                 "--threads " + std::to_string(given.threads) + ": an agent computes with at most " + std::to_string(kMostThreads)};
  }
  options.threads = static_cast<unsigned>(given.threads);
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
  for (const std::string& place : given.allow_copy) {
    if (const Status checked = check_store_address(place); !checked) {
      return with_context(checked.error(), "--allow-copy");
    }
    // One without keys would be asked for copies in vain.
    ATOLL_ASSIGN(options.store, StoreCredentials::from(invocation.environment));
    if (const Result<ObjectStore> store = ObjectStore::open(place, options.store); !store) {
      return with_context(store.error(), "--allow-copy");
    }
    options.copies.push_back(place);
  }
  ATOLL_ASSIGN(options.trainers, agent::trainer_programs({given.trainers, given.trainer_environment, given.trainer_folders},
                                                         invocation.environment("PATH").value_or("")));
  return options;
}

// What a settings file says, where the command line does not: --config, or agent.toml in the state directory if it is there.
Status read_config(const Invocation& invocation, const AgentCommandOptions& given, std::span<const CommandOption> options) {
  static constexpr std::array<std::string_view, 3> kNotInFile = {"config", "state", "join"};
  std::filesystem::path path = given.config;
  if (path.empty()) {
    ATOLL_ASSIGN(path, state_directory(given.state, invocation.environment));
    path /= "agent.toml";
    std::error_code failure;
    if (!std::filesystem::exists(path, failure)) {
      return {};
    }
  }
  return take_settings(path, options, invocation.given, kNotInFile);
}

Exit run_island(const Invocation& invocation, const AgentCommandOptions& given) {
  const Result<agent::AgentOptions> options = agent_options(invocation, given);
  if (!options) {
    return report(invocation, options.error());
  }
  std::signal(SIGPIPE, SIG_IGN);
  const Status enough = raise_descriptor_limit_to_serve();
  const Status ran = enough ? agent::run_agent(*options) : enough;
  if (!ran && ran.error().code == Code::cancelled) {
    return Exit::interrupted;
  }
  return ran ? Exit::ok : report(invocation, ran.error());
}

Exit check_island(const Invocation& invocation, const std::string& given) {
  const Result<std::filesystem::path> state = state_directory(given, invocation.environment);
  const Result<agent::AgentCheck> check = state ? agent::check_state(*state) : Result<agent::AgentCheck>(state.error());
  if (!check) {
    return report(invocation, check.error());
  }
  std::ostream& out = invocation.streams.out;
  if (invocation.json) {
    nlohmann::json faults = nlohmann::json::array();
    for (const Error& fault : check->faults) {
      faults.push_back({{"code", to_string(fault.code)}, {"text", fault.why}});
    }
    const nlohmann::json document = {{"schema", 1},
                                     {"checked", state->string()},
                                     {"sound", check->faults.empty()},
                                     {"runs", check->runs},
                                     {"checkpoints", check->checkpoints},
                                     {"files", check->files},
                                     {"bytes", check->bytes},
                                     {"faults", faults}};
    out << document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
    return check->faults.empty() ? Exit::ok : Exit::run_failed;
  }
  for (const Error& fault : check->faults) {
    out << printable(fault.why, 2000) << "\n";
  }
  const std::string read = std::to_string(check->checkpoints) + " checkpoints of " + std::to_string(check->runs) + " runs, " +
                           std::to_string(check->files) + " other files, " + human_bytes(check->bytes) + " read";
  if (check->faults.empty()) {
    out << printable(state->string(), 2000) << " is sound: " << read << "\n";
    return Exit::ok;
  }
  invocation.streams.err << "atoll: " << check->faults.size() << " faults in " << printable(state->string(), 2000) << " (" << read
                         << "); the agent does without a checkpoint that is damaged, and copies the state from its peers\n";
  return Exit::run_failed;
}

Command check_agent_command() {
  auto state = std::make_shared<std::string>();
  Command command;
  command.name = "check";
  command.summary = "reads everything in a stopped agent's state directory, and tells whether it is sound";
  command.details = "Exits with 0 if all is sound, and with 1 if something is damaged; it names each file. Nothing is changed.";
  command.options = {
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", state.get(), false, {}, Completes::folders}};
  command.run = [state](Invocation& invocation) { return check_island(invocation, *state); };
  return command;
}

// What an island is and may do, whoever starts it.
std::vector<CommandOption> island_options(const std::shared_ptr<AgentCommandOptions>& options) {
  return {
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders},
      {"--config",
       "TOML with these options' values: data = [\"corpus=/srv/text\"], uplink = \"50mbit\" (else agent.toml in the state directory, if "
       "there)",
       &options->config,
       false,
       {},
       Completes::files},
      {"--name", "what the island is called (else the host's name)", &options->name},
      {"--data", "NAME=PATH: the files behind a data set's name; PATH is a file, a folder or a glob", &options->data},
      {"--allow-data", "a folder whose files run files may name", &options->allow_data, false, {}, Completes::folders},
      {"--allow-copy",
       "a place like s3://bucket/prefix where runs may keep copies of checkpoints and read them, and below it; keys come from "
       "AWS_ACCESS_KEY_ID and the like, of https a token from ATOLL_STORE_TOKEN",
       &options->allow_copy},
      {"--trainer", "NAME=COMMAND: a training program that runs may name; split without a shell; NAME=attach waits for one that you start",
       &options->trainers},
      {"--trainer-env", "NAME=KEY=VALUE: a variable for that trainer", &options->trainer_environment},
      {"--trainer-folder", "NAME=DIR: where that trainer is started (else the agent's working directory)", &options->trainer_folders},
      {"--bind", "where other islands reach it, tcp://HOST:PORT (else port 4401, or the one it had before)", &options->bind},
      {"--advertise", "HOST or HOST:PORT that other islands dial, as often as there are such addresses (else found out)",
       &options->advertise},
      {"--prefer", "a network interface: what can be reached over it is reached over it, whatever else there is", &options->prefer},
      {"--never-over", "a network interface over which nothing goes from island to island", &options->never_over},
      {"--proxy", kProxyDoc, &options->proxy},
      {"--uplink",
       "what this island may send to the others, like 50mbit, or by the time of day here: \"50mbit mon-fri 08:00-18:00, 500mbit "
       "otherwise\" (else as much as the line bears)",
       &options->uplink},
      {"--link-memory",
       "what pieces on their way to and from the others may take, like 1GiB (else 512 MiB); a long fat line needs twice what it holds",
       &options->link_memory},
      {"--threads", "that the agent computes digests and outer steps of large models with (else a quarter of the cores, at most 8)",
       &options->threads},
      {"--metrics", "where Prometheus finds this island's figures, HOST:PORT; whoever reaches it reads them (else nowhere)",
       &options->metrics},
      {"--trainer-memory", "a trainer that needs more is ended, like 8GiB (else no limit)", &options->trainer_memory},
      {"--check-arena", "for debugging a trainer: one that writes into the arena out of turn fails, with the fragment's number",
       &options->check_arena},
      {"--trainer-hang-after", "a trainer that makes no progress for so long is restarted", &options->trainer_hang_after},
      {"--leave-file", "leave once this file is there; its first line is the reason", &options->leave_file, false, {}, Completes::files},
      {"--leave-command", "leave once this command (run every 5 s by sh) exits with 0; its first line is the reason",
       &options->leave_command},
      {"--leave-idle", "leave after so long without anything to do, as on machines that are paid for by the hour (else never)",
       &options->leave_idle},
      {"--leave-within", "go after so long at the latest, whatever is in hand; a trainer that still finishes is ended then",
       &options->leave_within},
      {"--keep-ended",
       "for how many days the newest checkpoint of a run that ended stays here, or forever; the older ones go a day after the end",
       &options->keep_ended},
      {"--keep-removed", "what an operator removes by `atoll runs rm` stays on this island", &options->keep_removed},
      {"--relay",
       "a port, such as 4402: islands of this coordinator that cannot dial each other meet here, in this process; what they say, sealed, "
       "goes over this machine's line (else nowhere)",
       &options->relay},
      {"--relay-rate", "what all islands together may send through that relay, like 100mbit (else as much as the line bears)",
       &options->relay_rate},
      {"--relay-rate-per-island", "what one island may send through it (else as much as the line bears)",
       &options->relay_rate_of_an_island},
      {"--no-hole-punching", "where neither of two islands can dial the other this one does not try to reach it through both routers",
       &options->no_hole_punching},
      {"--no-port-mapping", "this machine's router is not asked to pass the island's port on to it", &options->no_port_mapping}};
}

// TOKEN@HOST:PORT, or TOKEN alone, which holds an address. One that joined before needs none; where the first time cannot succeed, it is
// said before anything is waited for.
Status take_line(const Invocation& invocation, const std::string& line, AgentCommandOptions& options) {
  constexpr Duration kAnswersWithin = std::chrono::seconds(5);
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(options.state, invocation.environment));
  const Result<agent::CoordinatorPlace> place = agent::read_coordinator(state);
  ATOLL_ASSIGN(const std::string given, join_token_text(invocation, line, ""));
  if (given.empty()) {
    return place || place.error().code != Code::not_found
               ? Status()
               : Error{Code::not_found,
                       "this machine has joined nothing yet: type the whole line that `atoll up` prints on the first machine, atoll join "
                       "TOKEN@HOST:PORT"};
  }
  const std::size_t at = given.rfind('@');
  ATOLL_ASSIGN(const JoinToken token, join_token_from_text(given.substr(0, at)));
  std::string coordinator = token.coordinator_address;
  if (at != std::string::npos) {
    ATOLL_ASSIGN(const Address address, parse_address(given.substr(at + 1)));
    coordinator = to_string(address);
  }
  if (place && place->key != token.coordinator_key) {
    return Error{Code::conflict, "this machine's island belongs to another coordinator, at " + printable(place->address) +
                                     "; for one more island here give another --state"};
  }
  options.coordinator = coordinator;
  if (place) {
    return {};  // the same line again
  }
  ATOLL_TRY(check_expiry(token, now()));
  ATOLL_ASSIGN(const Address address, parse_address(coordinator));
  if (const Result<Dialled> dialled = dial(address, kAnswersWithin); !dialled) {
    return Error{Code::unavailable, "the coordinator at " + coordinator + " cannot be reached: " + dialled.error().why};
  }
  options.join = given.substr(0, at);
  return {};
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
  command.options = {{"--join-file",
                      "the file of a join token, to enrol this island; - for standard input (else $ATOLL_JOIN_TOKEN)",
                      &options->join_file,
                      false,
                      {},
                      Completes::files},
                     {"--join", "a join token itself, which others on this machine can see", &options->join},
                     {"--coordinator", "the coordinator's address, if it is not the one joined at", &options->coordinator},
                     {"--insecure", "no encryption; loopback only", &options->insecure}};
  std::ranges::move(island_options(options), std::back_inserter(command.options));
  command.subcommands = {check_agent_command()};
  command.serves = true;
  command.run = [options, described = command.options](Invocation& invocation) {
    Status configured = read_config(invocation, *options, described);
    configured = configured ? use_proxy(invocation, options->proxy) : configured;
    return configured ? run_island(invocation, *options) : report(invocation, configured.error());
  };
  return command;
}

Command join_command() {
  auto options = std::make_shared<AgentCommandOptions>();
  auto line = std::make_shared<std::string>();
  Command command;
  command.name = "join";
  command.summary = "makes this machine an island by the line that `atoll up` prints elsewhere, and runs its agent in the foreground";
  command.details =
      "The token holds the coordinator's key, so nobody else can pose as it, and is good once; HOST:PORT is where this machine finds the\n"
      "coordinator. After that `atoll join` alone goes on, and so does `atoll agent`, whose state this is. Ctrl-C finishes the round in\n"
      "hand and leaves.";
  command.options = {{"TOKEN@HOST:PORT", "what `atoll up` printed, the first time", line.get()}};
  std::ranges::move(island_options(options), std::back_inserter(command.options));
  command.serves = true;
  command.run = [options, line, described = command.options](Invocation& invocation) {
    Status begun = read_config(invocation, *options, described);
    begun = begun ? use_proxy(invocation, options->proxy) : begun;
    begun = begun ? take_line(invocation, *line, *options) : begun;
    return begun ? run_island(invocation, *options) : report(invocation, begun.error());
  };
  return command;
}

}  // namespace atl
