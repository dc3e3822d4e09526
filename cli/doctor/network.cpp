#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "agent/service/own_port.hpp"
#include "agent/storage/membership_file.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/link/dial.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/relayed_view.hpp"
#include "transport/web/tls.hpp"
#include "transport/zmq/control_client.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr Duration kPatience = std::chrono::seconds(3);
constexpr double kSkewMs = 30'000;         // tokens expire and logs are read by the clock; runs do not care
constexpr double kSoonMs = 3600 * 1000.0;  // a token that expires within this
constexpr std::int64_t kSoonDays = 30;     // a certificate that expires within this
constexpr std::size_t kMostIslands = 64;   // that are dialled

std::string coordinators_text(const std::string& address) { return "the coordinator at " + printable(address) + " "; }

// Name, port and key of a coordinator: whether it can be dialled, and whether who answers has the key that this machine knows.
Finding look_at_way(const std::string& text, const std::string& key, const std::optional<KeyPair>& keys) {
  const Result<Address> address = parse_address(text);
  const Result<Dialled> dialled = address ? dial(*address, kPatience) : Result<Dialled>(address.error());
  if (!dialled) {
    return {"coordinator", Health::bad, coordinators_text(text) + "cannot be reached: " + dialled.error().why};
  }
  const Proxy* const proxy = own_proxy().towards_address(text);
  const std::string over = proxy != nullptr ? " through the proxy " + printable(proxy->shown) + " (from " + proxy->source + ")" : "";
  const std::string far = "answers within " + seconds_text(seconds(dialled->round_trip)) + over;
  if (!keys) {
    return {"coordinator", Health::good, coordinators_text(text) + far};
  }
  ControlClientSettings settings;
  settings.address = text;
  settings.coordinator_key = key;
  settings.keys = *keys;
  settings.log_changes = false;
  settings.connect_timeout = kPatience;
  const Result<std::unique_ptr<ZmqControlClient>> link = ZmqControlClient::open(settings);
  const TimePoint deadline = now() + kPatience;
  while (link && now() < deadline) {
    if (const std::optional<LinkEvent> event = (*link)->receive()) {
      if (std::holds_alternative<LinkUp>(*event)) {
        return {"coordinator", Health::good, coordinators_text(text) + far + " and proves its key"};
      }
      continue;
    }
    pollfd entry{(*link)->fd(), POLLIN, 0};
    ::poll(&entry, 1, 100);
  }
  return {"coordinator", Health::bad,
          coordinators_text(text) + far +
              " but not as the one that this machine joined: another program has the port, or it was made anew; ask "
              "for a new token"};
}

// Version and clock of a coordinator that answers this operator.
void look_at_answers(CoordinatorClient& client, const std::string& address, std::vector<Finding>& findings) {
  const TimePoint begin = now();
  const Result<json> pong = client.ask("ping", json::object());
  const TimePoint end = now();
  if (!pong) {
    findings.push_back({"coordinator", Health::bad, pong.error().why});
    return;
  }
  const std::string version = printable(text_at(*pong, "version"), 40);
  findings.push_back({"coordinator", Health::good, coordinators_text(address) + "answers this operator"});
  findings.push_back({"version", version == ATOLL_VERSION ? Health::good : Health::doubtful,
                      version == ATOLL_VERSION ? "the coordinator has this version, " + version
                                               : "the coordinator has version " + version +
                                                     ", and this program " ATOLL_VERSION
                                                     "; they work together, but upgrade the older one"});
  const double skew = number_at(*pong, "now_unix_ms").value_or(0) - static_cast<double>(unix_ms(begin + (end - begin) / 2));
  const std::string by = seconds_text(std::abs(skew) / 1000);
  findings.push_back({"clock", std::abs(skew) > kSkewMs ? Health::doubtful : Health::good,
                      std::abs(skew) > kSkewMs ? "this machine's clock is " + by + (skew > 0 ? " behind" : " ahead of") +
                                                     " the coordinator's: set it (timedatectl), or times in logs mislead"
                                               : "this machine's clock and the coordinator's are " + by + " apart"});
}

void look_at_tokens(CoordinatorClient& client, std::vector<Finding>& findings) {
  const Result<json> tokens = client.ask("tokens", json::object());
  if (!tokens) {
    return;
  }
  const double now_ms = number_at(*tokens, "now_unix_ms").value_or(0);
  std::size_t usable = 0;
  double first = 0;
  for (const json& token : list_at(*tokens, "tokens")) {
    const double left = number_at(token, "expires_unix_ms").value_or(0) - now_ms;
    if (text_at(token, "state") == "usable") {
      first = usable++ == 0 ? left : std::min(first, left);
    }
  }
  if (usable > 0) {
    findings.push_back({"tokens", first < kSoonMs ? Health::doubtful : Health::good,
                        std::to_string(usable) + (usable == 1 ? " join token is" : " join tokens are") + " unused; the first expires in " +
                            seconds_text(first / 1000)});
  }
}

// Dials every connected island, as the islands do each other.
std::vector<IslandReach> reach_islands(const json& islands) {
  std::vector<IslandReach> reaches;
  for (const json& island : list_at(islands, "islands")) {
    const std::string address = text_at(island, "address");
    if (!flag_at(island, "connected") || address.empty() || reaches.size() == kMostIslands) {
      continue;
    }
    IslandReach reach{text_at(island, "name"),
                      address,
                      0,
                      0,
                      "",
                      number_at(island, "uplink_bits_per_second"),
                      number_at(island, "downlink_bits_per_second")};
    std::vector<std::string> addresses = {address};
    for (const json& one : list_at(island, "addresses")) {
      addresses.push_back(one.is_string() ? one.get<std::string>() : "");
    }
    const Result<Dialled> dialled = dial_nearest(address_text(addresses), kPatience);
    if (dialled) {
      reach.round_trip_ms = seconds(dialled->round_trip) * 1000;
      reach.mtu = dialled->mtu;
    } else {
      reach.why_not = dialled.error().why;
    }
    reaches.push_back(std::move(reach));
  }
  return reaches;
}

Finding verdict_on(const std::vector<IslandReach>& reaches) {
  std::string closed;
  for (const IslandReach& reach : reaches) {
    closed += reach.why_not.empty() ? "" : (closed.empty() ? "" : ", ") + printable(reach.name, 60);
  }
  return closed.empty()
             ? Finding{"islands", Health::good, "every connected island can be dialled from here"}
             : Finding{"islands", Health::doubtful,
                       "not to be dialled from here: " + closed + ". Of two islands one has to reach the other; open the port of one"};
}

// Between which connected islands data pass, as they have found themselves.
void look_at_paths(const json& islands, std::vector<Finding>& findings) {
  std::size_t passing = 0;
  std::map<std::string, std::size_t> over;  // relays, or punched
  const auto address_of = [&](const std::string& name) {
    for (const json& island : list_at(islands, "islands")) {
      if (text_at(island, "name") == name && flag_at(island, "connected")) {
        return printable(text_at(island, "address"), 200);
      }
    }
    return std::string();
  };
  bool broken = false;
  for (const json& island : list_at(islands, "islands")) {
    for (const json& path : flag_at(island, "connected") ? list_at(island, "paths") : json::array()) {
      const std::string reader = text_at(island, "name");
      const std::string from = text_at(path, "from");
      if (flag_at(path, "passes")) {
        ++passing;
        if (const std::string way = text_at(path, "way"); way.starts_with("relay ") || way == "punched" || way == "proxy") {
          ++over[way];
        }
      } else if (const std::string address = address_of(from); !address.empty()) {
        broken = true;
        findings.push_back({"paths", Health::bad,
                            "island " + printable(reader, 60) + " gets no data from island " + printable(from, 60) + ": " +
                                printable(text_at(path, "why"), 300) + ". Open " + address + " for the first or " + address_of(reader) +
                                " for the second, or let both meet at a relay (atoll relay)"});
      }
    }
  }
  std::string relayed;
  for (const auto& [relay, directions] : over) {
    relayed += ", " + std::to_string(directions) + " of them " +
               (relay == "punched" ? "through punched holes"
                : relay == "proxy" ? "through a proxy"
                                   : "over " + printable(relay, 80));
  }
  for (std::string& line : indirect_lines(islands)) {
    findings.push_back({"paths", Health::good, std::move(line)});
  }
  if (passing > 0 && !broken) {
    findings.push_back({"paths", Health::good,
                        "data pass between the islands, as they have tried themselves (" + std::to_string(passing) +
                            (passing == 1 ? " direction" : " directions") + relayed + ")"});
  }
}

void look_at_figures(const std::vector<PathFigures>& paths, std::vector<Finding>& findings) {
  if (paths.empty()) {
    return;
  }
  const PathFigures& slowest = paths.front();
  const std::string ends = "from " + printable(slowest.from, 60) + " to " + printable(slowest.to, 60);
  if (!slowest.bits_per_second) {
    findings.push_back(
        {"bandwidth", Health::doubtful,
         "nothing came " + ends + " while that path was measured: it is slower than a piece of 64 KiB in that time, or broken"});
    return;
  }
  findings.push_back({"bandwidth", Health::good,
                      "the slowest path between islands is that " + ends + ": " + bits_text(slowest.bits_per_second) + ", of " +
                          std::to_string(paths.size()) + " that were measured"});
}

// Of the page: the one that the coordinator of this state directory made, or the one that is given.
std::optional<Finding> look_at_certificate(const fs::path& state, const std::string& given) {
  const fs::path file = given.empty() ? own_certificate_file(state) : fs::path(given);
  std::error_code failure;
  if (given.empty() && !fs::exists(file, failure)) {
    return std::nullopt;
  }
  const Result<TimePoint> end = certificate_end(file);
  if (!end) {
    return Finding{"certificate", Health::bad, end.error().why};
  }
  const auto days = std::chrono::duration_cast<std::chrono::hours>(*end - now()).count() / 24;
  const std::string which = "the page's certificate " + printable(file.string(), 300);
  const std::string renew = given.empty() ? ": remove it and start the coordinator again, which makes a new one"
                                          : ": get a new one and start the coordinator again";
  return *end <= now()      ? Finding{"certificate", Health::bad, which + " has expired" + renew}
         : days < kSoonDays ? Finding{"certificate", Health::doubtful, which + " expires in " + std::to_string(days) + " days" + renew}
                            : Finding{"certificate", Health::good, which + " is good for " + std::to_string(days) + " days"};
}

// Where the agent of this state directory listens. Errors: it has no port yet.
Result<Address> own_address(const fs::path& state, const std::string& config) {
  const Result<AgentSettings> settings = read_agent_settings(state, config);
  std::string port;
  std::getline(std::ifstream(state / "port") >> std::ws, port);
  return parse_address(settings && !settings->bind.empty() ? settings->bind : "127.0.0.1:" + port);
}

// The port at which other islands reach it.
std::optional<Finding> look_at_own_port(const Result<Address>& bind) {
  if (!bind || bind->port == 0) {
    return std::nullopt;
  }
  const bool any = bind->host == "*" || bind->host == "0.0.0.0" || bind->host == "::";
  const Result<Dialled> dialled = dial(Address{any ? "127.0.0.1" : bind->host, bind->port}, kPatience);
  return Finding{"port", dialled ? Health::good : Health::doubtful,
                 dialled
                     ? "the agent listens at port " + std::to_string(bind->port) + "; other islands need a way to it through the firewall"
                     : "no agent listens at port " + std::to_string(bind->port) + " at the moment"};
}

// Where there is one. Of a coordinator that is dialled directly it is said, too, for a proxy that is not used surprises.
void look_at_proxy(const std::string& coordinator, std::vector<Finding>& findings) {
  const std::optional<Proxy>& proxy = own_proxy().proxy();
  if (proxy) {
    const bool used = own_proxy().towards_address(coordinator) != nullptr;
    findings.push_back({"proxy", Health::good,
                        "the proxy is " + printable(proxy->shown) + " (from " + proxy->source + "); the coordinator at " +
                            printable(coordinator) +
                            (used ? " is dialled through it" : " is dialled directly: it is in this machine's networks or NO_PROXY")});
  }
}

void look_as_island(const fs::path& state, const std::string& config, const agent::CoordinatorPlace& place,
                    std::vector<Finding>& findings) {
  const Result<KeyPair> keys = read_key_file(state / "keys" / "island");
  findings.push_back(look_at_way(place.address, place.key, keys ? std::optional(*keys) : std::nullopt));
  const bool known = findings.back().health != Health::bad && keys;
  const Result<Address> listens = own_address(state, config);
  if (std::optional<Finding> port = look_at_own_port(listens)) {
    findings.push_back(*std::move(port));
  }
  if (known) {
    const std::uint16_t port = listens && listens->port != 0 ? listens->port : agent::kAgentPort;
    std::ranges::move(look_at_reach(state, place, *keys, port), std::back_inserter(findings));
  }
}

}  // namespace

std::vector<Finding> look_at_network(const Invocation& invocation, const fs::path& state, const DoctorFiles& files,
                                     const std::optional<Duration>& probe, IslandPaths& between) {
  std::vector<Finding> findings;
  if (const Result<AgentSettings> settings = read_agent_settings(state, files.config);
      settings && !settings->proxy.empty() && invocation.coordinator.proxy.empty()) {
    if (const Status used = use_proxy(invocation, settings->proxy); !used) {
      findings.push_back({"proxy", Health::bad, used.error().why});
    }
  }
  if (std::optional<Finding> certificate = look_at_certificate(state, files.certificate)) {
    findings.push_back(*std::move(certificate));
  }
  if (const Result<agent::CoordinatorPlace> place = agent::read_coordinator(state)) {
    look_at_proxy(place->address, findings);
    look_as_island(state, files.config, *place, findings);
  }
  const Result<CoordinatorAccess> access = find_coordinator(invocation.coordinator, invocation.environment);
  if (!access) {
    const bool nobodys =
        access.error().code == Code::unavailable || access.error().code == Code::unauthorized;  // not an operator's machine
    if (!nobodys) {
      findings.push_back({"coordinator", Health::bad, access.error().why});
    }
    return findings;
  }
  if (!agent::read_coordinator(state)) {
    look_at_proxy(access->address, findings);
  }
  if (Finding way = look_at_way(access->address, access->coordinator_key, std::nullopt); way.health == Health::bad) {
    findings.push_back(std::move(way));
    return findings;
  }
  Result<CoordinatorClient> client = CoordinatorClient::open(*access);
  if (!client) {
    findings.push_back({"coordinator", Health::bad, client.error().why});
    return findings;
  }
  look_at_answers(*client, access->address, findings);
  if (findings.back().what == "coordinator") {
    return findings;  // it does not answer
  }
  look_at_tokens(*client, findings);
  Result<json> islands = probe ? measure_paths(*client, *probe, invocation.streams.err) : client->ask("islands", json::object());
  if (!islands && probe) {
    findings.push_back({"probe", Health::bad, islands.error().why});
    islands = client->ask("islands", json::object());
  }
  if (islands) {
    between.reaches = reach_islands(*islands);
    if (!between.reaches.empty()) {
      findings.push_back(verdict_on(between.reaches));
    }
    look_at_paths(*islands, findings);
    between.measured = measured_figures(*islands);
    look_at_figures(between.measured, findings);
  }
  return findings;
}

}  // namespace atl
