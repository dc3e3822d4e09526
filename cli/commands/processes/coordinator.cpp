// `atoll coordinator`: the control plane in the foreground, and `init`, which makes its state directory.
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/planning/price.hpp"
#include "cli/settings/notify_settings.hpp"
#include "cli/settings/settings_file.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "coordinator/core/network.hpp"
#include "coordinator/service/backup.hpp"
#include "coordinator/service/check.hpp"
#include "coordinator/service/init.hpp"
#include "coordinator/service/service.hpp"
#include "strategies/codec.hpp"
#include "transport/base/address.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/base/service_manager.hpp"

namespace atl {
namespace {

struct CoordinatorCommandOptions {
  std::string config;
  std::string state;
  std::string name;
  std::string bind;
  std::string advertise;
  std::string network;
  std::string from;  // a backup
  std::string file;  // of a backup
  std::string web;   // where the page is served
  std::string web_certificate;
  std::string web_key;
  std::string price;
  std::uint64_t relay = 0;  // port of one in this process
  std::uint64_t hole_punching = 0;
  std::vector<std::string> relay_tickets;
  std::string proxy;  // of web hooks
  bool insecure = false;
};

void print_line(const Invocation& invocation, const nlohmann::json& document, const std::string& text) {
  invocation.streams.out << (invocation.json ? document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                                             : printable(text, 2000))
                         << "\n"
                         << std::flush;
}

// What was given replaces what is there; an advertised address that was not given follows the one it listens on.
coordinator::CoordinatorSettings settings_with(coordinator::CoordinatorSettings settings, const CoordinatorCommandOptions& options) {
  if (!options.bind.empty()) {
    settings.bind = options.bind;
    settings.advertise = coordinator::advertised_for(options.bind);
  }
  settings.advertise = options.advertise.empty() ? settings.advertise : options.advertise;
  settings.name = options.name.empty() ? settings.name : options.name;
  settings.network = options.network.empty() ? settings.network : options.network;
  return settings;
}

Status init(const Invocation& invocation, const CoordinatorCommandOptions& options) {
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(options.state, invocation.environment));
  const coordinator::CoordinatorSettings settings = settings_with(coordinator::default_settings(), options);
  ATOLL_TRY(options.from.empty() ? coordinator::init_coordinator(state, settings)
                                 : coordinator::init_from_backup(options.from, state, settings));
  print_line(
      invocation,
      {{"schema", 1}, {"state", state.string()}, {"name", settings.name}, {"bind", settings.bind}, {"advertise", settings.advertise}},
      "made a coordinator in " + state.string() + "; islands will dial " + settings.advertise);
  if (!invocation.json) {
    const std::string where = options.state.empty() ? "" : " --state " + printable(options.state, 1000);
    if (!options.from.empty()) {
      invocation.streams.err << "make sure that the old coordinator does not run any more, then: atoll coordinator" << where
                             << "\nand tell each island the new address: atoll agent --coordinator " << settings.advertise << "\n";
      return {};
    }
    invocation.streams.err << "next: atoll coordinator" << where << "\nthen, in another terminal: atoll token create" << where
                           << " (one for each island), atoll agent --join-file FILE on each, and atoll submit run.toml" << where
                           << "\nif islands cannot dial " << settings.advertise << ", change `advertise` in "
                           << coordinator::settings_file(state).string() << "\n";
  }
  return {};
}

Status back_up(const Invocation& invocation, const CoordinatorCommandOptions& options) {
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(options.state, invocation.environment));
  ATOLL_ASSIGN(const coordinator::BackupFacts facts, coordinator::write_backup(state, options.file));
  print_line(invocation, {{"schema", 1}, {"file", options.file}, {"bytes", facts.bytes}, {"runs", facts.runs}, {"islands", facts.islands}},
             "wrote " + options.file + ": " + bytes_text(static_cast<double>(facts.bytes)) + ", " + std::to_string(facts.runs) + " runs, " +
                 std::to_string(facts.islands) + " islands; it holds the coordinator's secret key");
  return {};
}

Status take_relays(const CoordinatorCommandOptions& options, coordinator::ServiceOptions& service) {
  if (options.relay > UINT16_MAX) {
    return Error{Code::invalid_argument, "--relay " + std::to_string(options.relay) + " is no port: give one such as 4402"};
  }
  if (options.hole_punching > UINT16_MAX) {
    return Error{Code::invalid_argument, "--hole-punching " + std::to_string(options.hole_punching) + " is no port: give one such as 4402"};
  }
  if (options.relay > 0 && options.hole_punching > 0) {
    return Error{Code::invalid_argument, "--relay helps islands to punch holes, too: leave --hole-punching out"};
  }
  if (const std::uint64_t port = std::max(options.relay, options.hole_punching); port > 0) {
    service.own_relay.emplace().bind = to_string(Address{"*", static_cast<std::uint16_t>(port)});
    service.own_relay->carries = options.relay > 0;
  }
  for (const std::string& file : options.relay_tickets) {
    ATOLL_ASSIGN(RelayTicket ticket, read_ticket(file));
    service.relays.push_back(std::move(ticket));
  }
  return {};
}

Status serve(const Invocation& invocation, const CoordinatorCommandOptions& options) {
  ATOLL_TRY(raise_descriptor_limit_to_serve());
  ATOLL_ASSIGN(const Interrupt interrupt, Interrupt::open());
  coordinator::ServiceOptions service;
  ATOLL_ASSIGN(service.state, state_directory(options.state, invocation.environment));
  const Result<CoordinatorFile> file = read_coordinator_file(coordinator::settings_file(service.state));
  if (!file) {
    return file.error().code != Code::not_found
               ? file.error()
               : Error{Code::not_found, "there is no coordinator in " + service.state.string() + "; make one with: atoll coordinator init" +
                                            (options.state.empty() ? "" : " --state " + options.state)};
  }
  const std::string network = file->network.empty() ? std::string(coordinator::kDefaultNetwork) : file->network;
  service.settings = settings_with({file->name, file->bind, file->advertise, network}, options);
  ATOLL_ASSIGN(service.core, coordinator::settings_for_network(service.settings.network));
  service.version = ATOLL_VERSION;
  service.core.codec_version = kCodecVersion;
  service.insecure = options.insecure;
  ATOLL_ASSIGN(service.notify, read_notify_settings(coordinator::settings_file(service.state)));
  if (!options.config.empty()) {
    ATOLL_ASSIGN(coordinator::NotifySettings notify, read_notify_settings(options.config));
    service.notify = notify.url.empty() ? service.notify : std::move(notify);
  }
  service.web = {options.web.empty() ? file->web : options.web, options.web_certificate, options.web_key, service.state};
  ATOLL_ASSIGN(service.web.price_per_gigabyte, parse_price(options.price));
  ATOLL_TRY(take_relays(options, service));
  const std::string where = options.state.empty() ? "" : " --state " + options.state;
  const Status ended = coordinator::run_service(service, interrupt.fd(), [&](const std::string& address, const std::string& page) {
    tell_service_manager("READY=1\nSTATUS=listens on " + address + (page.empty() ? "" : ", page at " + page));
    print_line(invocation,
               {{"schema", 1},
                {"address", address},
                {"advertise", service.settings.advertise},
                {"state", service.state.string()},
                {"web", page.empty() ? nlohmann::json() : nlohmann::json(page)}},
               "coordinator " + service.settings.name + " listens on " + address + ", state in " + service.state.string() +
                   (page.empty() ? "" : ", page at " + page) + "; next: atoll token create" + where);
  });
  tell_service_manager("STOPPING=1");
  return ended;
}

std::vector<CommandOption> settings_options(const std::shared_ptr<CoordinatorCommandOptions>& options) {
  return {{"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders},
          {"--bind", "where it listens, tcp://HOST:PORT; tcp://*:PORT for every interface", &options->bind},
          {"--advertise", "what islands dial, tcp://HOST:PORT; goes into join tokens", &options->advertise},
          {"--network",
           "how soon silence counts as a loss: local 1.25 s, lan 5 s (the default), wan 20 s",
           &options->network,
           false,
           {"local", "lan", "wan"}}};
}

Command init_command() {
  auto options = std::make_shared<CoordinatorCommandOptions>();
  Command command;
  command.name = "init";
  command.summary = "makes a coordinator's state directory: its key, the first operator's key, its settings";
  command.options = settings_options(options);
  command.options.push_back({"--name", "what people call it (else the host's name)", &options->name});
  command.options.push_back(
      {"--from", "a backup: the coordinator it was taken of, on this machine", &options->from, false, {}, Completes::files});
  command.run = [options](Invocation& invocation) {
    const Status made = init(invocation, *options);
    return made ? Exit::ok : report(invocation, made.error());
  };
  return command;
}

Command backup_command() {
  auto options = std::make_shared<CoordinatorCommandOptions>();
  Command command;
  command.name = "backup";
  command.summary = "writes a consistent copy of the coordinator into one file, also while it runs";
  command.details =
      "The file holds the ledger and the coordinator's secret key. With it: atoll coordinator init --from FILE, on any machine.";
  command.options = {
      {"FILE", "must not exist yet", &options->file, true, {}, Completes::files},
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders}};
  command.run = [options](Invocation& invocation) {
    const Status done = back_up(invocation, *options);
    return done ? Exit::ok : report(invocation, done.error());
  };
  return command;
}

Status check(const Invocation& invocation, const CoordinatorCommandOptions& options) {
  ATOLL_ASSIGN(const std::filesystem::path state, state_directory(options.state, invocation.environment));
  const std::string what = options.file.empty() ? state.string() : options.file;
  ATOLL_ASSIGN(const coordinator::CheckFacts facts,
               options.file.empty() ? coordinator::check_state(state) : coordinator::check_backup(options.file));
  print_line(invocation,
             {{"schema", 1},
              {"checked", what},
              {"rows", facts.rows},
              {"runs", facts.runs},
              {"islands", facts.islands},
              {"generation", facts.generation}},
             what + " is sound: " + std::to_string(facts.rows) + " rows, " + std::to_string(facts.runs) + " runs, " +
                 std::to_string(facts.islands) + " islands, generation " + facts.generation);
  return {};
}

Command check_coordinator_command() {
  auto options = std::make_shared<CoordinatorCommandOptions>();
  Command command;
  command.name = "check";
  command.summary = "reads everything in a stopped coordinator's state directory, or in a backup, and tells whether it is sound";
  command.details = "Exits with 0 if all is sound, and with 1 if something is damaged; it names what. Nothing is changed.";
  command.options = {
      {"BACKUP", "a backup to check instead of the state directory", &options->file, false, {}, Completes::files},
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders}};
  command.run = [options](Invocation& invocation) {
    const Status done = check(invocation, *options);
    return done ? Exit::ok : report(invocation, done.error());
  };
  return command;
}

}  // namespace

Command coordinator_command() {
  auto options = std::make_shared<CoordinatorCommandOptions>();
  Command command;
  command.name = "coordinator";
  command.summary = "runs the coordinator in the foreground, until SIGTERM or Ctrl-C";
  command.details = "Make its state directory first: atoll coordinator init. The Debian package has a unit for systemd.";
  command.options = settings_options(options);
  command.options.push_back({"--web", "where its page and /metrics are served: 127.0.0.1:4480, on this machine only", &options->web});
  command.options.push_back(
      {"--web-certificate",
       "serve the page by TLS to viewers with a token, at any address: a PEM file, or `own` for a certificate that signs "
       "itself",
       &options->web_certificate,
       false,
       {},
       Completes::files});
  command.options.push_back(
      {"--web-key", "the certificate's key (else in the certificate's file)", &options->web_key, false, {}, Completes::files});
  command.options.push_back({"--price", "of what islands send, as 0.09/GB; the page says what a run has cost", &options->price});
  command.options.push_back(
      {"--relay", "a port, such as 4402: islands that cannot dial each other meet here, in this process (else nowhere)", &options->relay});
  command.options.push_back({"--hole-punching",
                             "a port, such as 4402, and the one after it: as --relay, but islands only learn here how to dial each other "
                             "through their routers, and no data pass (else nowhere)",
                             &options->hole_punching});
  command.options.push_back({"--relay-ticket",
                             "the ticket of a relay that runs elsewhere (atoll relay); islands try relays in the order given",
                             &options->relay_tickets,
                             false,
                             {},
                             Completes::files});
  command.options.push_back({"--proxy", std::string("of web hooks: ") + kProxyDoc, &options->proxy});
  command.options.push_back({"--insecure", "no encryption, and keys are believed; on loopback only", &options->insecure});
  command.options.push_back(
      {"--config",
       "TOML with these options' values: web = \"127.0.0.1:4480\"; they count before those of coordinator.toml in the "
       "state directory",
       &options->config,
       false,
       {},
       Completes::files});
  command.subcommands = {init_command(), backup_command(), check_coordinator_command()};
  command.serves = true;
  command.run = [options, described = command.options](Invocation& invocation) {
    static constexpr std::array<std::string_view, 2> kNotInFile = {"config", "state"};
    static constexpr std::array<std::string_view, 1> kTables = {"notify"};
    Status configured =
        options->config.empty() ? Status() : take_settings(options->config, described, invocation.given, kNotInFile, kTables);
    configured = configured ? use_proxy(invocation, options->proxy) : configured;
    const Status served = configured ? serve(invocation, *options) : configured;
    return served ? Exit::ok : report(invocation, served.error());
  };
  return command;
}

}  // namespace atl
