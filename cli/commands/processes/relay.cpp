// `atoll relay`: a place where islands meet that cannot dial each other, in the foreground.
#include <csignal>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/commands/processes/relay_metrics.hpp"
#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/settings/settings_file.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/printable.hpp"
#include "coordinator/service/init.hpp"
#include "transport/base/address.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/name.hpp"
#include "transport/base/private_folder.hpp"
#include "transport/base/service_manager.hpp"
#include "transport/identity/identity.hpp"
#include "transport/relay/relay_server.hpp"
#include "transport/relay/relay_ticket.hpp"

namespace atl {
namespace {

struct RelayCommandOptions {
  std::string config;
  std::string state;
  std::string bind = "tcp://*:4402";
  std::string advertise;
  std::string name;
  std::string rate;
  std::string rate_of_an_island;
  std::uint64_t connections = RelayLimits().connections;
  std::uint64_t connections_of_an_island = RelayLimits().connections_of_an_island;
  std::string metrics;
};

Result<double> rate_of(const std::string& text, const char* option) {
  if (text.empty()) {
    return 0.0;
  }
  const Result<double> rate = parse_bits_per_second(text);
  return rate ? rate : Result<double>(with_context(rate.error(), option));
}

Result<RelaySettings> settings_of(const RelayCommandOptions& options) {
  RelaySettings settings;
  settings.bind = options.bind;
  settings.limits.connections = options.connections;
  settings.limits.connections_of_an_island = options.connections_of_an_island;
  if (options.connections < 2 || options.connections_of_an_island < 1) {
    return Error{Code::invalid_argument, "--connections and --connections-per-island: at least one for each of two islands"};
  }
  ATOLL_ASSIGN(settings.bits_per_second, rate_of(options.rate, "--rate"));
  ATOLL_ASSIGN(settings.bits_per_second_of_an_island, rate_of(options.rate_of_an_island, "--rate-per-island"));
  return settings;
}

// What it is called and where islands reach it; of the port the one that it has.
Result<RelayTicket> ticket_of(const RelayCommandOptions& options, const RelaySettings& settings, const std::string& bound) {
  ATOLL_ASSIGN(const Address listens, parse_address(bound));
  const std::string given = options.advertise.empty() ? coordinator::advertised_for(bound) : options.advertise;
  ATOLL_ASSIGN(Address address, parse_address(given));
  address.port = address.port == 0 ? listens.port : address.port;
  if (address.host == "*" || address.host == "0.0.0.0" || address.host == "::") {
    return Error{Code::invalid_argument,
                 "--advertise " + given + " is no address that an island can dial: give this machine's name or address"};
  }
  const std::string name = options.name.empty() ? coordinator::default_settings().name : options.name;
  if (!is_name(name)) {
    return Error{Code::invalid_argument, "--name " + shown_name(name) + ": a name has " + std::string(kNameRule)};
  }
  return RelayTicket{name, to_string(address), settings.secret, true};
}

Status serve(const Invocation& invocation, const RelayCommandOptions& options) {
  ATOLL_TRY(raise_descriptor_limit_to_serve());
  ATOLL_ASSIGN(const Interrupt interrupt, Interrupt::open());
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(options.state, invocation.environment));
  ATOLL_ASSIGN(RelaySettings settings, settings_of(options));
  ATOLL_TRY(make_private_folders(state));
  ATOLL_ASSIGN(const KeyPair keys, read_or_make_key_file(state / "keys" / "relay"));
  settings.secret = relay_secret(keys.secret_key);
  ATOLL_ASSIGN(const std::unique_ptr<RelayServer> relay, RelayServer::open(settings));
  const std::string bound = relay->bound_address();
  ATOLL_ASSIGN(const RelayTicket ticket, ticket_of(options, settings, bound));
  const std::filesystem::path file = state / "relay.ticket";
  ATOLL_TRY(write_ticket(file, ticket));
  std::unique_ptr<HttpServer> metrics;
  if (!options.metrics.empty()) {
    ATOLL_ASSIGN(metrics, serve_relay_metrics(options.metrics, *relay, ticket.name, ATOLL_VERSION));
  }
  tell_service_manager("READY=1\nSTATUS=listens on " + bound);
  const nlohmann::json document = {
      {"schema", 1}, {"name", ticket.name}, {"address", bound}, {"advertise", ticket.address}, {"ticket", file.string()}};
  const std::string text = "relay " + ticket.name + " listens on " + bound + ", islands reach it at " + ticket.address;
  invocation.streams.out << (invocation.json ? document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                                             : printable(text, 2000))
                         << "\n"
                         << std::flush;
  if (!invocation.json) {
    invocation.streams.err << "next: copy " << printable(file.string(), 1000)
                           << " to the coordinator's machine, for its user alone, and start it with --relay-ticket FILE\n";
  }
  const Status ended = relay->run(interrupt.fd());
  tell_service_manager("STOPPING=1");
  return ended;
}

}  // namespace

Command relay_command() {
  auto options = std::make_shared<RelayCommandOptions>();
  Command command;
  command.name = "relay";
  command.summary = "runs a relay in the foreground, where islands meet that cannot dial each other, until SIGTERM or Ctrl-C";
  command.details =
      "On a machine that all of them can dial. It serves whom its coordinator sends: the coordinator is started with --relay-ticket and\n"
      "the file relay.ticket of the relay's state directory. What passes through it is sealed from island to island; it has no key of a "
      "run.\n"
      "A coordinator that islands can dial has one of its own: atoll coordinator --relay PORT.";
  command.options = {
      {"--bind", "where it listens, tcp://HOST:PORT", &options->bind},
      {"--advertise", "what islands dial, tcp://HOST:PORT (else found out)", &options->advertise},
      {"--name", "what people call it (else the host's name)", &options->name},
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders},
      {"--rate", "what all islands together may send through it, like 1gbit (else as much as the line bears)", &options->rate},
      {"--rate-per-island", "what one island may send through it, like 100mbit (else as much as the line bears)",
       &options->rate_of_an_island},
      {"--connections", "that it has at most", &options->connections},
      {"--connections-per-island", "that one island has at most; each pair of islands takes one to some thirty",
       &options->connections_of_an_island},
      {"--metrics", "where Prometheus finds its figures, HOST:PORT; whoever reaches it reads them (else nowhere)", &options->metrics},
      {"--config", "TOML with these options' values: rate = \"1gbit\"", &options->config, false, {}, Completes::files}};
  command.serves = true;
  command.run = [options, described = command.options](Invocation& invocation) {
    static constexpr std::array<std::string_view, 2> kNotInFile = {"config", "state"};
    const Status configured = options->config.empty() ? Status() : take_settings(options->config, described, invocation.given, kNotInFile);
    const Status served = configured ? serve(invocation, *options) : configured;
    return served ? Exit::ok : report(invocation, served.error());
  };
  return command;
}

}  // namespace atl
