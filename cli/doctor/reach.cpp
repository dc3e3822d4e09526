// How others reach this machine's island: what the coordinator and its relays see of it.
#include <sys/epoll.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "agent/service/own_port.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/bulk/interface_addresses.hpp"
#include "transport/proxy/proxy_rules.hpp"
#include "transport/relay/hole_punch.hpp"
#include "transport/relay/relay_pass.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMostRelays = 4;  // that are asked
constexpr Duration kRelayPatience = std::chrono::seconds(4);
constexpr const char* kNobody = "doctor";  // no island has this id, so that nobody comes to meet it

bool is_private(const std::string& host) { return Address{host, 0}.is_private(); }
bool is_one_of(const std::vector<std::string>& hosts, const std::string& host) { return std::ranges::find(hosts, host) != hosts.end(); }

// The public address of IPv6, which no router translates.
std::string ipv6_text(const std::vector<std::string>& own) {
  const auto found = std::ranges::find_if(own, [](const std::string& host) {
    return host.find(':') != std::string::npos && !is_private(host) && !Address{host, 0}.is_loopback();
  });
  return found == own.end() ? "; no IPv6" : "; IPv6: " + *found;
}

// What is behind a router is seen there, by those places that see the same one.
std::string router_of(const ReachFacts& facts) {
  std::vector<std::string> hosts = {facts.seen_host};
  std::ranges::transform(facts.sightings, std::back_inserter(hosts), [](const Sighting& one) { return one.at.host; });
  std::erase_if(hosts, [&](const std::string& host) {
    return host.empty() || Address{host, 0}.is_loopback() || is_one_of(facts.own, host);
  });
  const auto open = std::ranges::find_if_not(hosts, is_private);
  return open != hosts.end() ? *open : hosts.empty() ? "" : hosts.front();
}

enum class Ports : std::uint8_t { unknown, same, others };

Ports ports_of(const std::vector<Sighting>& seen) {
  const bool same = std::ranges::all_of(seen, [&](const Sighting& one) { return one.at == seen.front().at; });
  return seen.size() < 2 ? Ports::unknown : same ? Ports::same : Ports::others;
}

std::string ports_text(const std::vector<Sighting>& seen, Ports ports, const ReachFacts& facts) {
  if (ports == Ports::unknown) {
    return "; whether holes can be punched through it cannot be told: " + facts.why_no_more;
  }
  if (ports == Ports::same) {
    return "; it gives one port of this machine the same port towards each of " + std::to_string(seen.size()) +
           " places: holes can be punched through it";
  }
  std::string each;
  for (const Sighting& one : seen) {
    each += (each.empty() ? "" : ", ") + std::to_string(one.at.port) + " for " + one.place;
  }
  return "; it gives another port for each connection (" + each +
         "; a symmetric NAT): no hole can be punched through it, and islands that it " +
         (facts.relay ? "cannot dial it meets at a relay" : "cannot dial it does not reach: start the coordinator with --relay PORT");
}

Finding administrators(const std::string& what) {
  return {"open", Health::good, "for an administrator: Please " + what + ": other machines of our group connect to it (Atoll)."};
}

// Of one port of this machine, that of `punches` where there is one.
void ask_relay(const json& relay, const IslandId& self, ReachFacts& facts, std::vector<HolePunch>& punches) {
  const std::string name = "relay " + printable(text_at(relay, "name"), 60);
  const std::string address = text_at(relay, "address");
  const std::uint16_t own_port = punches.empty() ? std::uint16_t{0} : punches.front().own_port();
  const FileDescriptor poll(::epoll_create1(EPOLL_CLOEXEC));
  const std::string request = request_with(text_at(relay, "pass"), IslandId(kNobody));
  Result<HolePunch> punch = HolePunch::begin({address, request, self, IslandId(kNobody), own_port}, poll.get(), 0);
  HolePunch::State state = HolePunch::State::works;
  for (const TimePoint deadline = now() + kRelayPatience; punch && state == HolePunch::State::works && now() < deadline;) {
    epoll_event event{};
    (void)::epoll_wait(poll.get(), &event, 1, 50);
    state = punch->advance(now());
  }
  const std::vector<SeenAddress> seen = punch ? punch->sightings() : std::vector<SeenAddress>();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    facts.sightings.push_back({i == 0 ? name : "its second port", to_address(seen[i])});
  }
  if (seen.empty()) {
    facts.why_no_more =
        name + " at " + printable(address, 200) + " does not answer" + (punch && !punch->why().empty() ? ": " + punch->why() : "");
  } else if (seen.size() == 1) {
    facts.why_no_more = "one place alone saw it, " + name + "; " +
                        (punch->second_port() == 0 ? "free the port after its own there, and start it again"
                                                   : "let TCP port " + std::to_string(punch->second_port()) + " there through as well");
  }
  if (punch) {
    punches.push_back(*std::move(punch));
  }
}

}  // namespace

std::vector<Finding> judge_reach(const ReachFacts& facts) {
  const std::string router = router_of(facts);
  const auto public_one = std::ranges::find_if(facts.dialled, [](const std::string& text) {
    const Result<Address> address = parse_address(text);
    return address && !address->is_private() && !address->is_loopback();
  });
  const std::string dialled =
      public_one == facts.dialled.end() ? "" : "; another island dials it at " + printable(*public_one, 200) + " now";
  const std::string port = std::to_string(facts.listens.port);
  if (router.empty() && facts.seen_host.empty()) {
    return {{"reach", Health::doubtful, "how others reach this island cannot be told: the coordinator did not say where it sees it"}};
  }
  if (router.empty()) {
    const std::string& own = facts.seen_host;
    const bool inside = is_private(own);
    const bool here = Address{own, 0}.is_loopback();
    const std::string text =
        here     ? "the coordinator is on this machine: what islands elsewhere see cannot be told from here"
        : inside ? "the coordinator sees this machine's own address, " + own +
                       ", which is private: both are in one network, and what islands elsewhere see cannot be told from here"
                 : "others see this machine's own address, " + own + ": no router is in between";
    std::vector<Finding> findings = {{"reach", Health::good, text + dialled + ipv6_text(facts.own)}};
    if (!here && dialled.empty()) {
      findings.push_back(administrators("let TCP connections to " + own + ", port " + port + ", through the firewall" +
                                        (inside ? " of this network" : "")));
    }
    return findings;
  }
  std::vector<Sighting> seen = facts.sightings;
  std::erase_if(seen, [&](const Sighting& one) { return one.at.host != router; });
  const Ports ports = ports_of(seen);
  const bool passed_on = !facts.mapped.empty() || !dialled.empty();
  const std::string text = "others see " + router + ", which is a router's: this machine has " + facts.listens.host +
                           (is_private(router) ? " (the first is private, too: there may be one more router behind it)" : "") +
                           ports_text(seen, ports, facts) +
                           (!facts.mapped.empty() ? "; it passes " + facts.mapped + " on to this island"
                            : dialled.empty()     ? "; no port of the router is passed on"
                                                  : "") +
                           dialled + ipv6_text(facts.own);
  const bool joins = passed_on || ports == Ports::same || facts.relay;
  std::vector<Finding> findings = {{"reach", joins && (passed_on || ports != Ports::unknown) ? Health::good : Health::doubtful, text}};
  if (!passed_on) {
    findings.push_back(administrators("pass TCP port " + port + " of " + router + " on to " + facts.listens.host + ", port " + port));
  }
  return findings;
}

std::vector<Finding> look_at_reach(const fs::path& state, const agent::CoordinatorPlace& place, const KeyPair& keys, std::uint16_t port) {
  if (const Proxy* const proxy = own_proxy().towards_address(place.address)) {
    return {{"reach", Health::good,
             "the coordinator sees the proxy " + printable(proxy->shown) +
                 ": nobody dials this island there, and no hole is punched; it dials the others, or meets them at a relay"}};
  }
  Result<CoordinatorClient> client = CoordinatorClient::open(CoordinatorAccess{place.address, place.key, keys});
  const Result<json> told = client ? client->ask("reach", json::object()) : Result<json>(client.error());
  if (!told) {
    return {{"reach", Health::doubtful,
             "how others reach this island cannot be told: " + printable(told.error().why, 300) +
                 (told.error().code == Code::unauthorized ? " (a coordinator of an older version never tells it)" : "")}};
  }
  ReachFacts facts;
  facts.seen_host = printable(text_at(*told, "seen_host"), 64);
  facts.why_no_more = "start the coordinator with --relay PORT or --hole-punching PORT";
  for (const InterfaceAddress& own : interface_addresses()) {
    facts.own.push_back(own.host);
  }
  facts.listens = {first_host(interface_addresses()).value_or(""), port};
  const std::string mapped = agent::remembered_mapping(state);
  bool found = false;
  for (const json& one : list_at(*told, "addresses")) {
    const std::string text = one.is_string() ? one.get<std::string>() : "";
    facts.mapped = !text.empty() && text == mapped ? text : facts.mapped;
    const Result<Address> address = parse_address(text);
    if (address && !address->is_loopback() && is_one_of(facts.own, address->host) && !std::exchange(found, true)) {
      facts.listens = *address;  // the first: this machine's towards the coordinator
    }
  }
  for (const json& one : list_at(*told, "dialled_at")) {
    facts.dialled.push_back(one.is_string() ? one.get<std::string>() : "");
  }
  std::vector<HolePunch> punches;  // open until the last one was asked, so that the router goes on with what it gave to the port
  const json& relays = list_at(*told, "relays");
  for (std::size_t i = 0; i < std::min(relays.size(), kMostRelays); ++i) {
    facts.why_no_more = i == 0 ? "the places that saw this machine are in networks of their own" : facts.why_no_more;
    facts.relay = facts.relay || flag_at(relays[i], "carries");
    if (own_proxy().towards_address(text_at(relays[i], "address")) == nullptr) {
      ask_relay(relays[i], island_of(keys.public_key), facts, punches);
    }
  }
  return judge_reach(facts);
}

}  // namespace atl
