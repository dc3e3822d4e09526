// `atoll up`: the first machine: its coordinator and its agent in one command, and the line that brings the others.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <system_error>
#include <utility>

#include "agent/storage/membership_file.hpp"
#include "cli/line/command.hpp"
#include "cli/line/interrupt.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/dial.hpp"
#include "cli/link/join_token_source.hpp"
#include "cli/local/companion.hpp"
#include "cli/local/reach.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "coordinator/service/init.hpp"
#include "transport/base/free_port.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr Duration kStartWithin = std::chrono::seconds(30);
constexpr Duration kBetweenLooks = std::chrono::seconds(1);  // whether the line has been used
constexpr Duration kComesWithin = std::chrono::seconds(10);  // an island that has joined
constexpr Duration kTokenGoodFor = std::chrono::hours(24);
constexpr Duration kAgentPatience = std::chrono::minutes(15);
constexpr Duration kAgentPatienceAlone = std::chrono::seconds(3);  // without a coordinator no round ends
constexpr Duration kCoordinatorPatience = std::chrono::seconds(20);
constexpr const char* kUsualPage = "127.0.0.1:4480";

struct UpOptions {
  std::string state;
  std::string name;
  std::string bind;
  std::string advertise;
  std::string web;
  std::vector<std::string> data;
  std::vector<std::string> allow_data;
  std::vector<std::string> trainers;
  std::vector<std::string> trainer_environment;
  std::vector<std::string> trainer_folders;
  std::string uplink;
  std::string proxy;
  std::uint64_t relay = 0;
};

// What the coordinator said of itself when it was ready.
struct Ready {
  std::string address;    // where it listens
  std::string advertise;  // what others dial
  std::string page;
};

// "HOST", "HOST:PORT" or "tcp://HOST:PORT" as an address, with the port that the coordinator listens on where none is given.
Result<Address> advertised(const std::string& text, const std::string& bind) {
  ATOLL_ASSIGN(const Address listens, parse_address(bind));
  const bool has_port = text.starts_with("tcp://") || (text.find(':') != std::string::npos && text.back() != ']');
  const Result<Address> address = parse_address(has_port ? text : text + ":" + std::to_string(listens.port));
  return address ? address : with_context(address.error(), "--advertise");
}

class FirstMachine {
 public:
  FirstMachine(const Invocation& invocation, const UpOptions& options, std::string program, fs::path state)
      : invocation_(invocation), options_(options), program_(std::move(program)), state_(std::move(state)) {}

  // From the first start to the end that somebody asked for, or the reason of another one.
  Status run(const Interrupt& interrupt) {
    ATOLL_TRY(prepare());
    const Status ran = work(interrupt);
    stop(interrupt);
    return ran;
  }

 private:
  // The state directory is a coordinator's.
  Status prepare() {
    const Result<CoordinatorFile> file = read_coordinator_file(coordinator::settings_file(state_));
    if (file || file.error().code != Code::not_found) {
      bind_ = file ? (options_.bind.empty() ? file->bind : options_.bind) : "";
      has_page_ = file && !file->web.empty();
      return file ? Status() : Status(file.error());
    }
    coordinator::CoordinatorSettings settings = coordinator::default_settings();
    if (!options_.bind.empty()) {
      settings.bind = options_.bind;
      settings.advertise = coordinator::advertised_for(options_.bind);
    }
    bind_ = settings.bind;
    if (!options_.advertise.empty()) {
      ATOLL_ASSIGN(const Address address, advertised(options_.advertise, bind_));
      settings.advertise = to_string(address);
    }
    return coordinator::init_coordinator(state_, settings);
  }

  Status work(const Interrupt& interrupt) {
    ATOLL_TRY(start_coordinator(interrupt));
    if (stopped_) {
      return {};
    }
    ATOLL_TRY(start_agent());
    show_place();
    ATOLL_TRY(invite());
    for (TimePoint look = now() + kBetweenLooks; !interrupt.came(kLookEvery);) {
      ATOLL_TRY(coordinator_->pump());
      ATOLL_TRY(pump_agent());
      if (now() >= look) {
        look_at_token();
        look = now() + kBetweenLooks;
      }
      if (coordinator_->has_ended()) {
        return Error{Code::unavailable, "the coordinator ended, as somebody asked it to"};
      }
    }
    return {};
  }

  // A page that nobody chose the place of is served beside whatever has that place.
  [[nodiscard]] std::string page_place() const {
    if (!options_.web.empty()) {
      return options_.web;
    }
    const Result<Address> usual = parse_address(kUsualPage);
    const Result<std::uint16_t> port = usual && dial(*usual, std::chrono::milliseconds(300)) ? free_port() : Result<std::uint16_t>(0);
    return port && *port != 0 ? "127.0.0.1:" + std::to_string(*port) : kUsualPage;
  }

  Status start_coordinator(const Interrupt& interrupt) {
    std::vector<std::string> arguments = {"coordinator", "--state", state_.string(), "--json"};
    const auto add = [&](const char* option, const std::string& value) { arguments.insert(arguments.end(), {option, value}); };
    if (!has_page_ || !options_.web.empty()) {
      add("--web", page_place());
    }
    if (!options_.bind.empty()) {
      add("--bind", options_.bind);
    }
    if (!options_.proxy.empty()) {
      add("--proxy", options_.proxy);
    }
    if (options_.relay > 0) {
      add("--relay", std::to_string(options_.relay));
    }
    if (!options_.advertise.empty()) {
      ATOLL_ASSIGN(const Address address, advertised(options_.advertise, bind_));
      add("--advertise", to_string(address));
    }
    ATOLL_ASSIGN(Companion started, Companion::start(program_, arguments, {}, [this](const std::string& line) {
                   const json said = json::parse(line, nullptr, false);
                   if (said.is_object()) {
                     ready_ = Ready{text_at(said, "address"), text_at(said, "advertise"), text_at(said, "web")};
                   } else {
                     say("coordinator", line);
                   }
                 }));
    coordinator_.emplace(std::move(started));
    const TimePoint deadline = now() + kStartWithin;
    while (!ready_) {
      ATOLL_TRY(coordinator_->pump());
      if (coordinator_->has_ended() || now() >= deadline) {
        return Error{Code::unavailable, "the coordinator did not start within " + human_duration(kStartWithin)};
      }
      if (interrupt.came(kLookEvery)) {
        stopped_ = true;
        return {};
      }
    }
    CoordinatorOptions access;
    access.state = state_.string();
    access.coordinator = ready_->address;
    ATOLL_ASSIGN(const CoordinatorAccess found, find_coordinator(access, invocation_.environment));
    key_ = found.coordinator_key;
    ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(found));
    client_.emplace(std::move(client));
    return {};
  }

  Status start_agent() {
    const Result<agent::CoordinatorPlace> place = agent::read_coordinator(state_);
    if (place && place->key != key_) {
      return Error{Code::conflict, "the island of " + state_.string() + " belongs to the coordinator at " + printable(place->address) +
                                       "; give another --state"};
    }
    Companion::Variables variables;
    if (!place) {
      ATOLL_ASSIGN(const json token, client_->ask("token_create", {{"role", "island"}, {"name", ""}, {"expires_ms", 3'600'000}}));
      variables[kJoinTokenVariable] = text_at(token, "token");
    }
    std::vector<std::string> arguments = {"agent", "--state", state_.string(), "--coordinator",
                                          coordinator::advertised_for(ready_->address)};
    const auto add = [&](const char* option, const std::string& value) {
      if (!value.empty()) {
        arguments.insert(arguments.end(), {option, value});
      }
    };
    const auto add_all = [&](const char* option, const std::vector<std::string>& values) {
      std::ranges::for_each(values, [&](const std::string& value) { add(option, value); });
    };
    add("--name", options_.name);
    add("--uplink", options_.uplink);
    add("--proxy", options_.proxy);
    add_all("--data", options_.data);
    add_all("--allow-data", options_.allow_data);
    add_all("--trainer", options_.trainers);
    add_all("--trainer-env", options_.trainer_environment);
    add_all("--trainer-folder", options_.trainer_folders);
    if (!options_.advertise.empty()) {
      ATOLL_ASSIGN(const Address address, advertised(options_.advertise, bind_));
      add("--advertise", address.host);
    }
    ATOLL_ASSIGN(Companion started,
                 Companion::start(program_, arguments, variables, [this](const std::string& line) { say("agent", line); }));
    agent_.emplace(std::move(started));
    return {};
  }

  // An agent that leaves as an operator asked leaves the coordinator to the others.
  Status pump_agent() {
    if (agent_->has_ended()) {
      return {};
    }
    ATOLL_TRY(agent_->pump());
    if (agent_->has_ended()) {
      talk("this machine's island has left, as somebody asked it to; the coordinator goes on, and Ctrl-C ends it");
    }
    return {};
  }

  // A token for the next machine, and the line to type there.
  Status invite() {
    const auto expires_ms = std::chrono::duration_cast<std::chrono::milliseconds>(kTokenGoodFor).count();
    ATOLL_ASSIGN(const json token, client_->ask("token_create", {{"role", "island"}, {"name", ""}, {"expires_ms", expires_ms}}));
    token_ = text_at(token, "id");
    ATOLL_ASSIGN(const Address address, parse_address(ready_->advertise));
    const std::string where = to_string(address).substr(std::string_view("tcp://").size());
    const std::string line = "atoll join " + text_at(token, "token") + "@" + where;
    if (invocation_.json) {
      invocation_.streams.out << json_line({{"schema", 1},
                                            {"join", line},
                                            {"expires_unix_ms", token.value("expires_unix_ms", std::uint64_t{0})},
                                            {"address", ready_->advertise},
                                            {"web", ready_->page.empty() ? json() : json(ready_->page)},
                                            {"state", state_.string()}})
                              << "\n"
                              << std::flush;
      return {};
    }
    talk("on " + std::string(joined_ == 0 ? "another" : "one more") +
         " machine that has Atoll type this line; it is good once, for 24 hours, and the next one comes when it has been used:");
    invocation_.streams.err << "\n" << std::flush;
    invocation_.streams.out << line << "\n" << std::flush;  // unbroken: it is to be copied
    invocation_.streams.err << "\n" << std::flush;
    return {};
  }

  // Whether the line has been used, or is of no use any more: then there is another one. Whatever fails is tried again.
  void look_at_token() {
    tell_of_arrivals();
    const Result<json> tokens = client_->ask("tokens", json::object());
    if (!tokens) {
      return;
    }
    for (const json& token : list_at(*tokens, "tokens")) {
      if (text_at(token, "id") != token_ || text_at(token, "state") == "usable") {
        continue;
      }
      if (const std::string island = text_at(token, "used_by"); !island.empty()) {
        ++joined_;
        arrivals_.emplace_back(island, now());
        tell_of_arrivals();
      }
      static_cast<void>(invite());
      return;
    }
  }

  // Of those that have joined, once they have come: from where is known then. One that does not come is told of all the same.
  void tell_of_arrivals() {
    const Result<json> islands = arrivals_.empty() ? Result<json>(json::object()) : client_->ask("islands", json::object());
    for (const json& island : islands ? list_at(*islands, "islands") : json::array()) {
      const auto arrival = std::ranges::find(arrivals_, text_at(island, "id"), &std::pair<std::string, TimePoint>::first);
      const std::string from = text_at(island, "seen_host");
      if (arrival != arrivals_.end() && (!from.empty() || now() - arrival->second > kComesWithin)) {
        talk("island " + printable(text_at(island, "name")) + " has joined" + (from.empty() ? "" : ", from " + printable(from)));
        arrivals_.erase(arrival);
      }
    }
  }

  void show_place() {
    if (invocation_.json) {
      return;
    }
    const Result<Address> address = parse_address(ready_->advertise);
    row("coordinator", ready_->advertise + ", state in " + state_.string());
    if (!ready_->page.empty()) {
      row("page", ready_->page);
    }
    row("data", data_text());
    if (address) {
      row("reach", reach_text(*address, own_addresses()));
    }
    row("next", "atoll submit run.toml --follow, in another terminal; Ctrl-C here ends both");
    invocation_.streams.err << "\n" << std::flush;
  }

  [[nodiscard]] std::string data_text() const {
    std::string named;
    for (const std::vector<std::string>& given : {options_.data, options_.allow_data}) {
      for (const std::string& one : given) {
        named += (named.empty() ? "" : ", ") + one;
      }
    }
    return !named.empty()                    ? named
           : is_there(state_ / "agent.toml") ? "as agent.toml says"
                                             : "none: runs that read files leave this island out; give --data NAME=PATH";
  }

  void row(const std::string& what, const std::string& text) {
    constexpr std::size_t kIndent = 13;
    std::string line = what;
    line.resize(kIndent, ' ');
    invocation_.streams.err << wrapped(line + printable(text, 1000), kIndent, invocation_.terminal) << "\n" << std::flush;
  }

  void talk(const std::string& text) {
    invocation_.streams.err << wrapped(printable(text, 1000), 0, invocation_.terminal) << "\n" << std::flush;
  }

  // A line of a companion, with its name behind the time.
  void say(const char* who, const std::string& line) {
    constexpr std::size_t kTime = 9;  // "12:34:56 "
    const bool timed = line.size() > kTime && line[2] == ':' && line[5] == ':' && line[8] == ' ';
    const std::string text = (timed ? line.substr(0, kTime) : "") + who + ": " + printable(timed ? line.substr(kTime) : line, 4000);
    invocation_.streams.err << wrapped(text, timed ? kTime : 0, invocation_.terminal) << "\n" << std::flush;
  }

  // The agent first: what it has in hand needs the coordinator.
  void stop(const Interrupt& interrupt) {
    const auto goes_on = [&, asked = interrupt.came()] {
      // The second Ctrl-C ends this process, and its companions with it.
      return asked || !interrupt.came();
    };
    if (agent_ && !agent_->has_ended()) {
      talk("this machine's island finishes the round in hand and leaves; Ctrl-C again ends at once");
      agent_->stop(coordinator_->has_ended() ? kAgentPatienceAlone : kAgentPatience, goes_on);
    }
    if (coordinator_ && !coordinator_->has_ended()) {
      coordinator_->stop(kCoordinatorPatience, goes_on);
    }
  }

  const Invocation& invocation_;
  const UpOptions& options_;
  std::string program_;
  fs::path state_;
  std::string bind_;
  bool has_page_ = false;  // coordinator.toml says where
  bool stopped_ = false;   // before the coordinator was ready
  std::optional<Ready> ready_;
  std::string key_;    // the coordinator's
  std::string token_;  // the id of the one whose line was shown last
  std::size_t joined_ = 0;
  std::vector<std::pair<std::string, TimePoint>> arrivals_;  // ids of islands that are not told of yet, and since when
  std::optional<CoordinatorClient> client_;
  std::optional<Companion> coordinator_;
  std::optional<Companion> agent_;
};

Exit up(const Invocation& invocation, const UpOptions& options) {
  const Result<fs::path> state = state_directory(options.state, invocation.environment);
  const Result<Interrupt> interrupt = Interrupt::open();
  std::error_code failure;
  const fs::path program = fs::read_symlink("/proc/self/exe", failure);
  if (!state || !interrupt || failure) {
    return report(invocation, !state       ? state.error()
                              : !interrupt ? interrupt.error()
                                           : Error{Code::io, "/proc/self/exe: " + failure.message()});
  }
  const Status ran = FirstMachine(invocation, options, program.string(), fs::absolute(*state)).run(*interrupt);
  if (!ran) {
    return report(invocation, ran.error());
  }
  invocation.streams.err << "stopped; `atoll up` goes on\n" << std::flush;
  return Exit::ok;
}

}  // namespace

Command up_command() {
  auto options = std::make_shared<UpOptions>();
  Command command;
  command.name = "up";
  command.summary = "runs the coordinator and this machine's island in the foreground, and says what to type on the other machines";
  command.details =
      "The first time it makes the coordinator. Its state is that of `atoll coordinator` and `atoll agent`, which can take over; the same\n"
      "command goes on where it was. What else an agent can be told is read from agent.toml in the state directory. Ctrl-C lets the\n"
      "island finish the round in hand, then ends the coordinator.";
  command.options = {
      {"--data", "NAME=PATH: the files behind a data set's name; PATH is a file, a folder or a glob", &options->data},
      {"--allow-data", "a folder whose files run files may name", &options->allow_data, false, {}, Completes::folders},
      {"--trainer", "NAME=COMMAND: a training program that runs may name", &options->trainers},
      {"--trainer-env", "NAME=KEY=VALUE: a variable for that trainer", &options->trainer_environment},
      {"--trainer-folder", "NAME=DIR: where that trainer is started (else here)", &options->trainer_folders},
      {"--uplink", "what this island may send to the others, like 50mbit", &options->uplink},
      {"--name", "what this island is called (else the host's name)", &options->name},
      {"--state", "state directory (else $ATOLL_STATE, else ~/.local/state/atoll)", &options->state, false, {}, Completes::folders},
      {"--bind", "where the coordinator listens, tcp://HOST:PORT (else on every interface at port 4400)", &options->bind},
      {"--advertise", "HOST or HOST:PORT that others dial, behind a router or by name (else this machine's first address)",
       &options->advertise},
      {"--web", "where the page is served, on this machine only (else 127.0.0.1:4480, or a free port)", &options->web},
      {"--relay", "a port, such as 4402: islands that cannot dial each other meet here, in the coordinator's process (else nowhere)",
       &options->relay},
      {"--proxy", kProxyDoc, &options->proxy}};
  command.run = [options](Invocation& invocation) {
    const Status proxied = use_proxy(invocation, options->proxy);
    return proxied ? up(invocation, *options) : report(invocation, proxied.error());
  };
  return command;
}

}  // namespace atl
