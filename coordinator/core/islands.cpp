#include "coordinator/core/islands.hpp"

#include <algorithm>

#include "transport/base/address.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kHeldCheckpoints = 16;  // remembered of an island
constexpr std::size_t kHeldRuns = 64;
constexpr std::size_t kOutlived = 16;
constexpr Duration kChangesWithin = std::chrono::minutes(1);

std::uint64_t milliseconds_of(Duration duration) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// Whole addresses: half of one would make what is sent on to others unreadable.
std::string said_addresses(const Hello& hello) {
  std::vector<std::string> said = addresses_in(hello.bulk_address);
  if (!said.empty()) {
    said.front() = bounded(said.front(), 256);
  }
  return address_text(said);
}

// With the host that its connection comes from: the router's, of an island behind one that passes the port on; else nobody answers there.
std::string with_seen(const std::string& said, const std::string& host) {
  const Result<Address> first = parse_address(first_address(said));
  std::vector<std::string> all = addresses_in(said);
  if (!first || first->port == 0 || first->is_loopback()) {
    return said;
  }
  const Address seen{host, first->port};
  const auto is_there = [&](const std::string& one) {
    const Result<Address> address = parse_address(one);
    return address && address->host == host;
  };
  if (!parse_address(to_string(seen)) || seen.is_loopback() || std::ranges::any_of(all, is_there)) {
    return said;
  }
  all.push_back(to_string(seen));
  return address_text(all);
}

}  // namespace

void Islands::recover(std::vector<IslandRecord> known, std::map<IslandId, std::string> former_names, TimePoint now) {
  former_names_ = std::move(former_names);
  for (IslandRecord& value : known) {
    Island& island = islands_[value.id];
    island.boot = value.boot;
    island.heard = now;
    island.record = std::move(value);
  }
}

void Islands::admit(const IslandId& id, const std::string& name, const std::string& public_key, Outbox& out) {
  Island& island = islands_[id];
  island.record.id = id;
  island.record.name = name;
  island.record.public_key = public_key;
  out.record(island.record);
  out.event({}, id, "info", "island_admitted", "island " + name + " was admitted");
}

void Islands::revoke(const IslandId& id) {
  former_names_[id] = islands_.at(id).record.name;
  islands_.erase(id);
}

void Islands::tell(const RunId& run, const IslandId& id, std::string level, std::string kind, const std::string& text,
                   std::vector<Field> fields, Outbox& out) {
  const auto found = islands_.find(id);
  if (std::optional<std::string> passed = found == islands_.end() ? std::nullopt : found->second.events.pass(out.now(), text)) {
    out.event(run, id, std::move(level), std::move(kind), *std::move(passed), std::move(fields));
  }
}

bool Islands::hears(const IslandId& id, std::uint64_t boot, const Message& message, Outbox& out) {
  const auto found = islands_.find(id);
  if (found == islands_.end()) {
    out.post(id, boot, Refused{Error{Code::unauthorized, "this island's key is not admitted; ask for a join token"}});
    return false;
  }
  Island& island = found->second;
  if (std::holds_alternative<Hello>(message)) {
    return false;
  }
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    boot = heartbeat->boot;
  }
  if (!island.greeted) {
    // A restarted coordinator, or an island that was silent for too long: what it has must be heard first.
    if (out.now() - island.told_to_greet >= std::chrono::milliseconds(200)) {
      island.told_to_greet = out.now();
      out.post(id, boot, Refused{Error{Code::unavailable, "say hello first"}});
    }
    return false;
  }
  if (boot != island.boot) {
    if (std::ranges::find(island.outlived, boot) != island.outlived.end()) {
      // It was silent, suspended perhaps, and thinks that it takes part.
      out.post(id, boot,
               Refused{Error{Code::conflict, "another agent with the identity of island " + island.record.name +
                                                 " took this one's place while it was silent; stop one of them, or give it an identity of "
                                                 "its own"}});
    }
    return false;  // another instance, which was not let in
  }
  island.heard = out.now();
  island.spoke = out.now();
  if (island.probe && std::holds_alternative<Heartbeat>(message) && out.now() - island.probe->since >= settings_.probe / 2) {
    const Error error{Code::conflict, "another agent with the identity of island " + island.record.name +
                                          " is already connected; stop that one first, or give this one an identity of its own"};
    out.post(id, island.probe->boot, Refused{error});
    out.event({}, id, "warning", "identity_conflict", "a second agent with the identity of island " + island.record.name + " was refused");
    island.probe.reset();
  }
  return true;
}

std::optional<Error> Islands::incompatible(const Hello& hello) const {
  const std::string agent = "this agent (version " + bounded(hello.version, 64) + ") ";
  if (hello.protocol != kProtocolVersion) {
    return Error{Code::invalid_argument, agent + "speaks protocol " + std::to_string(hello.protocol) + ", the coordinator (version " +
                                             settings_.version + ") speaks protocol " + std::to_string(kProtocolVersion) +
                                             "; install the same version on both"};
  }
  if (hello.codec_version != settings_.codec_version) {
    return Error{Code::invalid_argument, agent + "has version " + std::to_string(hello.codec_version) +
                                             " of the codecs, the coordinator's islands (version " + settings_.version + ") have version " +
                                             std::to_string(settings_.codec_version) +
                                             ": they could not read each other's contributions; install the same version on all"};
  }
  return std::nullopt;
}

std::optional<Arrival> Islands::greet(const IslandId& id, std::uint64_t boot, const Hello& hello, Outbox& out) {
  const auto found = islands_.find(id);
  if (found == islands_.end()) {
    return std::nullopt;
  }
  Island& island = found->second;
  if (const std::optional<Error> error = incompatible(hello)) {
    out.post(id, boot, Refused{*error});
    return std::nullopt;
  }
  if (island.greeted && boot != island.boot) {
    if (!island.probe || island.probe->boot != boot) {
      island.probe = Probe{boot, hello, out.now()};
    }
    return std::nullopt;
  }
  const bool changes = !island.greeted || boot != island.boot || said_addresses(hello) != island.record.bulk_address;
  if (changes && !may_change(island, out)) {
    return std::nullopt;
  }
  return accept(island, boot, hello, out);
}

bool Islands::may_change(Island& island, Outbox& out) const {
  while (!island.changes.empty() && out.now() - island.changes.front() >= kChangesWithin) {
    island.changes.pop_front();
  }
  if (island.changes.size() < kMostChanges) {
    return true;
  }
  if (!island.told_restless || out.now() - *island.told_restless >= kChangesWithin) {
    island.told_restless = out.now();
    out.event({}, island.record.id, "warning", "island_restless",
              "island " + island.record.name + " came, or came back with another address, " + std::to_string(kMostChanges) + " times in " +
                  human_duration(kChangesWithin) + ": what it says of itself is not looked at before that time is over. " +
                  "Its agent is started again and again, its address changes, or its key is misused (`atoll islands revoke`)");
  }
  return false;
}

std::optional<Arrival> Islands::accept(Island& island, std::uint64_t boot, const Hello& hello, Outbox& out) {
  const std::string address = said_addresses(hello);
  const bool moved = !island.record.bulk_address.empty() && island.record.bulk_address != address;
  const bool fresh = !island.greeted || boot != island.boot;
  const Arrival arrival{boot != island.boot, moved, !fresh};
  if (boot != island.boot) {
    island.outlived.push_back(island.boot);
    if (island.outlived.size() > kOutlived) {
      island.outlived.erase(island.outlived.begin());
    }
  }
  if (fresh || moved) {
    island.changes.push_back(out.now());
    if (island.changes.size() > kMostChanges) {
      island.changes.pop_front();
    }
  }
  island.boot = boot;
  island.heard = out.now();
  island.spoke = out.now();
  island.greeted = true;
  island.probe.reset();
  // An island says hello again where one of these has changed.
  island.uplink_budget = hello.uplink_bits_per_second;
  island.kernels = bounded(hello.kernels, 256);
  out.post(island.record.id, boot,
           Welcome{settings_.version, island.record.id, milliseconds_of(settings_.heartbeat), milliseconds_of(settings_.dead_after),
                   milliseconds_of(settings_.stall_after), settings_.generation});
  if (moved) {
    out.event({}, island.record.id, "info", "island_moved",
              "island " + island.record.name + " is reached at " + addresses_for_people(address) + ", no longer at " +
                  addresses_for_people(island.record.bulk_address));
  }
  if (!fresh && !moved) {
    return std::nullopt;
  }
  if (fresh) {
    note_hello(island, boot, hello, out);
  } else {
    island.record.bulk_address = address;
    out.record(island.record);
  }
  return arrival;
}

void Islands::note_hello(Island& island, std::uint64_t boot, const Hello& hello, Outbox& out) {
  island.departure = Departure{};
  island.unreported_since.reset();
  island.reports.clear();
  island.held.clear();
  for (const HeldRun& run : hello.runs) {
    if (island.held.size() < kHeldRuns) {
      island.held[run.run] = run;
    }
  }
  island.link_memory_bytes = hello.link_memory_bytes;
  island.trainers.assign(hello.trainers.begin(),
                         hello.trainers.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(hello.trainers.size(), 256)));
  island.copies.assign(hello.copies.begin(),
                       hello.copies.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(hello.copies.size(), 256)));
  island.place = bounded(hello.place, 256);
  IslandRecord& value = island.record;
  value.bulk_address = said_addresses(hello);
  value.version = bounded(hello.version, 64);
  value.platform = bounded(hello.platform, 256);
  value.data_sets.assign(hello.data_sets.begin(),
                         hello.data_sets.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(hello.data_sets.size(), 256)));
  value.boot = boot;
  value.last_hello = out.now();
  out.record(value);
  out.event({}, value.id, "info", "island_connected", "island " + value.name + " is connected");
}

std::optional<Probe> Islands::successor(const Island& island, Outbox& out) const {
  // An agent with the same place has outlived the one before it (StateLock::place). Any other one has to wait until that one is silent.
  // So does one that has been outlived itself, and whose greeting was on its way for long.
  const bool outlived = island.probe && !island.place.empty() && island.probe->hello.place == island.place &&
                        std::ranges::find(island.outlived, island.probe->boot) == island.outlived.end();
  if (const bool restless = island.changes.size() >= kMostChanges && out.now() - island.changes.front() < kChangesWithin;
      island.probe && restless) {
    out.wake_at(island.changes.front() + kChangesWithin);
    return std::nullopt;
  }
  if (island.probe && (outlived || out.now() - island.probe->since >= settings_.probe)) {
    return island.probe;
  }
  if (island.probe) {
    out.wake_at(island.probe->since + settings_.probe);
  }
  return std::nullopt;
}

std::optional<Arrival> Islands::succeed(const IslandId& id, const Probe& successor, Outbox& out) {
  return accept(islands_.at(id), successor.boot, successor.hello, out);
}

void Islands::excuse(Duration silence) {
  for (auto& [id, island] : islands_) {
    island.heard += silence;
  }
}

std::optional<std::string> Islands::silence(const Island& island, Outbox& out) const {
  if (!island.greeted) {
    return std::nullopt;
  }
  if (out.now() - island.heard > settings_.dead_after) {
    const std::string time = human_duration(settings_.dead_after);
    out.event({}, island.record.id, "warning", "island_lost", "island " + island.record.name + " gave no sign of life for " + time);
    return "no sign of life for " + time;
  }
  out.wake_at(island.heard + settings_.dead_after + std::chrono::milliseconds(1));
  return std::nullopt;
}

void Islands::lost(const IslandId& id) {
  Island& island = islands_.at(id);
  island.greeted = false;
  island.probe.reset();
  island.reports.clear();
}

void Islands::report(const IslandId& id, std::vector<IslandReport> reports, TimePoint now) {
  Island& island = islands_.at(id);
  island.reports.clear();
  for (IslandReport& report : reports) {
    report.state = bounded(report.state, 64);
    report.reason = bounded(report.reason, 512);
    const RunId run = report.run;
    island.reports[run] = std::move(report);
  }
  if (!island.reports.empty() && (island.lent_to.empty() || island.reports.contains(island.lent_to))) {
    island.unreported_since.reset();
  } else {
    island.unreported_since = island.unreported_since.value_or(now);
  }
}

void Islands::leave(const IslandId& id, const Leave& leave, Outbox& out) {
  Island& island = islands_.at(id);
  island.departure.contributes = leave.contributes;
  if (!island.leaving()) {
    island.departure.leaving = bounded(leave.why, 512);
    out.event({}, id, "info", "island_leaving", "island " + island.record.name + " is leaving: " + *island.departure.leaving);
  }
}

Status Islands::drain(const IslandId& id, const std::string& why, Outbox& out) {
  const auto found = islands_.find(id);
  if (found == islands_.end()) {
    return Error{Code::not_found, "there is no island " + id.text};
  }
  Island& island = found->second;
  if (!island.greeted) {
    return Error{Code::conflict, "island " + island.record.name + " is not connected: there is nothing to drain"};
  }
  if (!island.departure.asked && !island.leaving()) {
    island.departure.asked = why;
    send(id, Drain{why}, out);
    out.event({}, id, "info", "island_draining", "island " + island.record.name + " is asked to leave: " + why);
  }
  return {};
}

void Islands::contributed(const IslandId& id) {
  if (const auto found = islands_.find(id); found != islands_.end()) {
    found->second.departure.contributes = false;
  }
}

void Islands::expect_reports(const IslandId& id) {
  if (const auto found = islands_.find(id); found != islands_.end()) {
    found->second.unreported_since.reset();
  }
}

void Islands::lend(const IslandId& id, const RunId& group) {
  if (const auto found = islands_.find(id); found != islands_.end()) {
    found->second.lent_to = group;
  }
}

void Islands::take_back(const IslandId& id, const RunId& group) {
  if (const auto found = islands_.find(id); found != islands_.end() && found->second.lent_to == group) {
    found->second.lent_to = RunId();
  }
}

const HeldRun& Islands::held(const IslandId& id, const RunId& run) const {
  static const HeldRun kNothing;
  const auto found = islands_.find(id);
  if (found == islands_.end() || !found->second.held.contains(run)) {
    return kNothing;
  }
  return found->second.held.at(run);
}

void Islands::not_live(const IslandId& id, const RunId& run) {
  if (const auto found = islands_.find(id); found != islands_.end()) {
    found->second.held[run].live = false;
  }
}

void Islands::live(const IslandId& id, const RunId& run, const HeldCheckpoint& state) {
  HeldRun& held = islands_.at(id).held[run];
  held.live = true;
  held.committed = state.round;
  held.digest = state.digest;
}

void Islands::keeps(const IslandId& id, const RunId& run, const HeldCheckpoint& checkpoint) {
  HeldRun& held = islands_.at(id).held[run];
  held.run = run;
  std::erase_if(held.checkpoints, [&](const HeldCheckpoint& old) { return old.round == checkpoint.round; });
  held.checkpoints.push_back(checkpoint);
  if (held.checkpoints.size() > kHeldCheckpoints) {
    held.checkpoints.erase(held.checkpoints.begin());
  }
}

void Islands::keeps_not(const IslandId& id, const RunId& run, Round round) {
  std::erase_if(islands_.at(id).held[run].checkpoints, [&](const HeldCheckpoint& held) { return held.round == round; });
}

void Islands::forget_run(const RunId& run) {
  for (auto& [id, island] : islands_) {
    island.held.erase(run);
    island.reports.erase(run);
    if (island.lent_to == run) {
      island.lent_to = RunId();
    }
  }
}

const Island* Islands::find(const IslandId& id) const {
  const auto found = islands_.find(id);
  return found == islands_.end() ? nullptr : &found->second;
}

bool Islands::alive(const IslandId& id) const {
  const Island* island = find(id);
  return island != nullptr && island->greeted;
}

bool Islands::leaving(const IslandId& id) const {
  const Island* island = find(id);
  return island != nullptr && island->leaving();
}

std::optional<bool> Islands::trains(const IslandId& id, const RunId& run) const {
  const Island* island = find(id);
  if (island == nullptr || !island->reports.contains(run)) {
    return std::nullopt;
  }
  return !island->reports.at(run).awaits_trainer;
}

bool Islands::is_routine(const IslandId& id, const Heartbeat& heartbeat) const {
  const Island* island = find(id);
  if (island == nullptr) {
    return false;
  }
  const bool as_before =
      heartbeat.reports.size() == island->reports.size() && (!heartbeat.reports.empty() || island->unreported_since) &&
      std::ranges::all_of(heartbeat.reports, [&](const IslandReport& report) { return trains(id, report.run) == !report.awaits_trainer; });
  return island->greeted && !island->probe && heartbeat.boot == island->boot && as_before;
}

const std::string& Islands::name_of(const IslandId& id) const {
  if (const Island* island = find(id); island != nullptr && !island->record.name.empty()) {
    return island->record.name;
  }
  const auto former = former_names_.find(id);
  return former == former_names_.end() ? id.text : former->second;
}

std::vector<std::string> Islands::names_of(const std::vector<IslandId>& ids) const {
  std::vector<std::string> names;
  names.reserve(ids.size());
  for (const IslandId& id : ids) {
    names.push_back(name_of(id));
  }
  return names;
}

void Islands::see(const IslandId& id, const std::string& host) {
  if (const auto found = islands_.find(id); found != islands_.end()) {
    found->second.seen_host = bounded(host, 64);
  }
}

std::string Islands::opening_for(const IslandId& id, const IslandId& other) const {
  const Island* island = find(id);
  const std::string said = island == nullptr ? "" : first_address(island->record.bulk_address);
  const Result<Address> address = parse_address(said);
  const std::string open = "open " + said + " of " + name_of(id) + " for " + name_of(other);
  if (!address) {
    return open;
  }
  const std::string port = std::to_string(address->port);
  const Address seen{island->seen_host, address->port};
  const bool elsewhere = !seen.host.empty() && seen.host != address->host && !seen.is_loopback();
  if (address->is_loopback() && elsewhere) {
    return name_of(id) + " says that it is reached at " + said +
           ", which only its own machine can: start its agent without that --bind or "
           "--advertise, for the coordinator sees it at " +
           seen.host;
  }
  if (address->is_loopback()) {
    return name_of(id) + " says that it is reached at " + said +
           ", which only its own machine can: start its agent with --advertise and "
           "the address at which " +
           name_of(other) + " can dial it";
  }
  if (address->is_private() && elsewhere && !seen.is_private()) {
    return said + " is an address of " + name_of(id) + "'s own network: let its router pass port " + port + " of " + seen.host +
           ", which the coordinator sees, on to it (at another port there: start its agent with --advertise " + seen.host + ":PORT)";
  }
  return open;
}

Member Islands::member_of(const IslandId& id) const {
  const Island* island = find(id);
  if (island == nullptr) {
    return Member{id, name_of(id), "", ""};
  }
  return Member{id, island->record.name, island->record.public_key, with_seen(island->record.bulk_address, island->seen_host)};
}

std::vector<Member> Islands::members_of(const std::vector<IslandId>& ids) const {
  std::vector<Member> members;
  members.reserve(ids.size());
  for (const IslandId& id : ids) {
    members.push_back(member_of(id));
  }
  return members;
}

void Islands::send(const IslandId& id, Message message, Outbox& out) const {
  const Island* island = find(id);
  if (island != nullptr && island->greeted) {
    out.post(id, island->boot, std::move(message));
  }
}

}  // namespace atl::coordinator
