// Between which islands data pass, and what follows where they do not.
#include "coordinator/core/data_paths.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "coordinator/core/core_state.hpp"
#include "transport/base/address.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMostNeighbours = 32;
constexpr std::uint64_t kMostRoundTripUs = 3'600'000'000;
constexpr Duration kQuiet = std::chrono::seconds(2);
const std::string kHowLong = "Rounds go another way, or on without it, until it has been steady for a while";

template <typename T>
bool contains(const std::vector<T>& all, const T& one) {
  return std::ranges::find(all, one) != all.end();
}

}  // namespace

const Run* DataPaths::common_run(const IslandId& a, const IslandId& b) const {
  const auto found = std::ranges::find_if(
      runs_, [&](const auto& run) { return !run.second.life.over() && run.second.is_member(a) && run.second.is_member(b); });
  return found == runs_.end() ? nullptr : &found->second;
}

void DataPaths::touch_runs_of(const IslandId& a, const IslandId& b) {
  for (const auto& [id, run] : runs_) {
    if (!run.life.over() && run.memberships.contains(a) && run.memberships.contains(b)) {
      touch(run);
    }
  }
}

std::vector<IslandId> DataPaths::neighbours() const {
  std::vector<IslandId> near;
  for (const auto& [id, island] : islands_.all()) {
    if (island.greeted && near.size() == kMostNeighbours) {
      return {};
    }
    if (island.greeted) {
      near.push_back(id);
    }
  }
  return near;
}

void DataPaths::name_neighbours(const IslandId& to) {
  std::vector<IslandId> others = neighbours();
  std::erase(others, to);
  send(to, Neighbours{islands_.members_of(others)});
}

void DataPaths::name_neighbours() {
  const auto connected = std::ranges::count_if(islands_.all(), [](const auto& one) { return one.second.greeted; });
  if (static_cast<std::size_t>(connected) > kMostNeighbours + 1) {
    return;  // they know that there are too many
  }
  for (const auto& [id, island] : islands_.all()) {
    if (island.greeted) {
      name_neighbours(id);
    }
  }
}

// In each turn an island reads from another one, and nobody sends to two of them.
Result<std::uint32_t> DataPaths::measure(Duration each) {
  const std::vector<IslandId> near = neighbours();
  if (near.size() < 2) {
    const bool many = std::ranges::count_if(islands_.all(), [](const auto& one) { return one.second.greeted; }) > 1;
    return Error{Code::unavailable,
                 many ? "more than " + std::to_string(kMostNeighbours) + " islands are connected: so many paths are not measured"
                      : "fewer than two islands are connected: there is no path to measure"};
  }
  event({}, {}, "info", "paths_measured",
        "the paths between " + std::to_string(near.size()) + " islands are measured for " + human_duration(each) + " each");
  ++measurements_;
  for (std::size_t i = 0; i < near.size(); ++i) {
    std::vector<IslandId> in_turn;
    for (std::size_t k = 1; k < near.size(); ++k) {
      in_turn.push_back(near[(i + k) % near.size()]);
    }
    const auto each_ms = std::chrono::duration_cast<std::chrono::milliseconds>(each).count();
    send(near[i], Neighbours{islands_.members_of(in_turn), measurements_, static_cast<std::uint32_t>(each_ms)});
  }
  return measurements_;
}

// Who is neither a neighbour nor a member is not admitted by all others yet: that nothing comes says nothing then.
void DataPaths::hear(const IslandId& island, const PathReport& message) {
  if (islands_.find(message.from) == nullptr || message.from == island) {
    return;
  }
  if (message.measurement != 0) {
    if (message.measurement == measurements_) {
      paths_.measured(island, message.from,
                      {std::chrono::microseconds(std::min<std::uint64_t>(message.round_trip_us, kMostRoundTripUs)),
                       static_cast<double>(message.bytes_per_second), now(), message.measurement});
    }
    return;
  }
  const std::vector<IslandId> near = neighbours();
  const bool tried = contains(near, island) && contains(near, message.from);
  if (message.available.watched > Duration()) {
    if (islands_.alive(message.from) && (tried || common_run(island, message.from) != nullptr)) {
      note_available(island, message.from, message.available);
    }
    return;
  }
  if (!message.whole) {
    // One of the two may not admit the other, for it did not hear that it is there.
    if (tried) {
      name_neighbours(island);
      name_neighbours(message.from);
    }
    if (islands_.alive(message.from) && (tried || common_run(island, message.from) != nullptr)) {
      note_broken(island, message.from, bounded(message.why, 512));
    }
    return;
  }
  if (tried) {
    paths_.passed(island, message.from, now());
  }
  note_whole(island, message.from);
}

void DataPaths::hear(const IslandId& island, const Ways& message) {
  Paths::WaysOfIsland ways;
  for (PeerWay said : message.peers) {
    if (said.peer != island && islands_.alive(said.peer)) {
      said.way.relay = bounded(said.way.relay, 64);
      said.way.address = parse_address(said.way.address) ? bounded(said.way.address, kMostAddressBytes) : std::string();
      note_way(island, said.peer, said.way);
      ways.insert_or_assign(said.peer, std::move(said.way));
    }
  }
  paths_.goes(island, std::move(ways));
}

// Told once of the two: both say it.
void DataPaths::note_way(const IslandId& island, const IslandId& peer, const Way& way) {
  const auto as_before = [&](const std::optional<Way>& other) { return other && to_string(*other) == to_string(way); };
  const std::optional<Way> before = paths_.way(island, peer);
  if (way.is_direct() && before.value_or(Way()).is_direct()) {
    note_address(island, peer, way.address);
    return;
  }
  if (as_before(before) || as_before(paths_.way(peer, island))) {
    return;
  }
  const std::string why = way.relay.empty() ? "" : text_of(way.not_punched, islands_.name_of(island), islands_.name_of(peer));
  const Run* run = common_run(island, peer);
  told(run == nullptr ? RunId{} : run->about.id, island, "info", "path_way",
       "data between islands " + std::min(islands_.name_of(island), islands_.name_of(peer)) + " and " +
           std::max(islands_.name_of(island), islands_.name_of(peer)) + " go " +
           (way.punched       ? "through a hole that both punched into their routers"
            : way.is_direct() ? "directly"
                              : "over " + to_string(way)) +
           (why.empty() ? "" : "; no hole is punched: " + why));
}

// Another of the peer's addresses is the best now. Of a way that the peer alone dials no address is known.
void DataPaths::note_address(const IslandId& island, const IslandId& peer, const std::string& address) {
  const std::string before = paths_.last_address(island, peer);
  if (before.empty() || address.empty() || before == address) {
    return;
  }
  const Run* run = common_run(island, peer);
  told(run == nullptr ? RunId{} : run->about.id, island, "info", "path_address",
       "island " + islands_.name_of(island) + " reaches island " + islands_.name_of(peer) + " at " + address + ", no longer at " + before);
}

// Of what both say: each knows of its own router, and whether its owner lets it punch.
std::string DataPaths::why_indirect(const IslandId& a, const IslandId& b) const {
  const Way there = paths_.way(a, b).value_or(Way());
  const Way back = paths_.way(b, a).value_or(there);
  if (there.is_direct() && back.is_direct()) {
    return "";
  }
  std::string hole;
  if (!there.punched && !back.punched) {
    const bool both = there.not_punched == NotPunched::own_router && back.not_punched == NotPunched::own_router;
    hole = both ? "both routers give each connection another port (symmetric NATs)"
                : text_of(there.not_punched, islands_.name_of(a), islands_.name_of(b));
    hole = hole.empty() ? text_of(back.not_punched, islands_.name_of(b), islands_.name_of(a)) : hole;
  }
  return "neither can dial the other" + (hole.empty() ? "" : ", and " + hole);
}

std::vector<IndirectView> DataPaths::indirect_views(const Run& run) const {
  std::map<std::pair<IslandId, IslandId>, Way> indirect;
  for (const IslandId& island : run.members) {
    for (const auto& [peer, way] : paths_.ways_of(island)) {
      if (!way.is_direct() && run.is_member(peer) && islands_.alive(island) && islands_.alive(peer)) {
        indirect.emplace(std::minmax(island, peer), way);
      }
    }
  }
  std::vector<IndirectView> views;
  for (const auto& [ends, way] : indirect) {
    const auto& [a, b] = ends;
    const MeasuredPath* there = paths_.measurement(a, b);
    const MeasuredPath* back = paths_.measurement(b, a);
    const double rate = there == nullptr || back == nullptr ? 0 : std::min(there->bytes_per_second, back->bytes_per_second);
    const bool in_order = islands_.name_of(a) < islands_.name_of(b);
    const IslandId& first = in_order ? a : b;
    const IslandId& second = in_order ? b : a;
    views.push_back({first, second, islands_.name_of(first), islands_.name_of(second), way, rate, why_indirect(first, second)});
  }
  return views;
}

void DataPaths::note_whole(const IslandId& reader, const IslandId& from) {
  if (!paths_.whole(reader, from, now())) {
    return;
  }
  const Run* run = common_run(reader, from);
  told(run == nullptr ? RunId{} : run->about.id, reader, "info", "path_whole",
       "island " + islands_.name_of(reader) + " gets data from island " + islands_.name_of(from) + " again");
  touch_runs_of(reader, from);
}

void DataPaths::note_broken(const IslandId& reader, const IslandId& from, const std::string& why) {
  if (!paths_.broken(reader, from, why, now())) {
    return;
  }
  const std::string one = islands_.name_of(reader);
  const std::string other = islands_.name_of(from);
  const Run* run = common_run(reader, from);
  told(run == nullptr ? RunId{} : run->about.id, reader, "warning", "path_broken",
       "island " + one + " gets no data from island " + other + ": " + why + remedy_for(from, reader) +
           ". Until then a third island sums for both, where there is one");
  touch_runs_of(reader, from);
}

void DataPaths::note_available(const IslandId& reader, const IslandId& from, const Availability& available) {
  const UnsteadyPath path{from, reader};
  const UnsteadyPath back{reader, from};
  const std::vector<UnsteadyPath> before = steadiness_.among({reader, from});
  const bool news = steadiness_.report(path, available, now());
  if (news && !contains(before, back)) {  // told once of the two directions
    tell_unsteady(reader, text_of_unsteady(path) + ". " + kHowLong);
  }
  if (news) {
    touch_runs_of(reader, from);
  }
}

// The island's own link, by its losses.
void DataPaths::note_lost(const IslandId& island) {
  if (steadiness_.lost(island, now())) {
    tell_unsteady(island, text_of_unsteady({IslandId(), island}) + ". " + kHowLong);
  }
}

// It was last heard then, and now: that is longer than a late heartbeat or two.
void DataPaths::note_heard(const IslandId& island, TimePoint before) {
  const Duration most = std::max<Duration>(settings_.heartbeat * 5 / 2, kQuiet);
  // A time in which nobody was heard is the coordinator's own, or that of its link.
  const Duration deaf_meanwhile = std::max(Duration(), core_.presence.deaf().second - std::max(core_.presence.deaf().first, before));
  if (now() - before - deaf_meanwhile > most && steadiness_.quiet(island, before, now())) {
    tell_unsteady(island, text_of_unsteady({IslandId(), island}) + ". " + kHowLong);
    for (const auto& [id, run] : runs_) {
      if (!run.life.over() && run.memberships.contains(island)) {
        touch(run);
      }
    }
  }
}

void DataPaths::tell_unsteady(const IslandId& island, const std::string& text) {
  event(run_that_knows(island), island, "warning", "path_unsteady", text);
}

// In which it has a place, though it may be absent; empty: none.
RunId DataPaths::run_that_knows(const IslandId& island) const {
  const auto found =
      std::ranges::find_if(runs_, [&](const auto& run) { return !run.second.life.over() && run.second.memberships.contains(island); });
  return found == runs_.end() ? RunId() : found->first;
}

// Of two directions it is told once, with the later one.
void DataPaths::settle() {
  std::vector<UnsteadyPath> told;
  for (const UnsteadyPath& path : steadiness_.settle(now())) {
    const UnsteadyPath back{path.to, path.from};
    if (steadiness_.steady(path.from.empty() ? path.to : path.from, path.to) && !contains(told, back)) {
      told.push_back(path);
      event(run_that_knows(path.to), path.to, "info", "path_steady", name_of_path(path) + " is steady again");
    }
  }
  if (const std::optional<TimePoint> next = steadiness_.next_change()) {
    wake_at(*next);
  }
}

std::string DataPaths::name_of_path(const UnsteadyPath& path) const {
  return path.from.empty() ? "the link of island " + islands_.name_of(path.to)
                           : "the path " + islands_.name_of(path.from) + " -> " + islands_.name_of(path.to);
}

// "the path a -> b comes and goes: there 51 % of the last 5 minutes, 50 changes"
std::string DataPaths::text_of_unsteady(const UnsteadyPath& path) const {
  return name_of_path(path) + " " + (path.from.empty() ? rhythm_of(path.to, {}) : "comes and goes: " + steadiness_.of(path, now()).text());
}

// Of a run's islands, for people: where all that concerns an island comes and goes its link is named, and not each path.
std::vector<UnsteadyView> DataPaths::unsteady_views(const Run& run) const {
  std::vector<IslandId> all;
  for (const auto& [id, membership] : run.memberships) {
    if (islands_.alive(id) || steadiness_.losses(id, now()) > 0) {
      all.push_back(id);
    }
  }
  std::vector<UnsteadyView> views;
  for (const IslandId& id : all) {
    if (steadiness_.restless(id, all)) {
      views.push_back(
          {"", islands_.name_of(id), worst_to(id, all), name_of_path({IslandId(), id}) + " " + rhythm_of(id, all), steadiness_.until(id)});
    }
  }
  for (const UnsteadyPath& path : steadiness_.among(all)) {
    if (!path.from.empty() && !steadiness_.restless(path.from, all) && !steadiness_.restless(path.to, all)) {
      views.push_back({islands_.name_of(path.from), islands_.name_of(path.to), steadiness_.of(path, now()), text_of_unsteady(path),
                       steadiness_.until(path.to)});
    }
  }
  return views;
}

// Of an unsteady path between an island and the others, the one that was away most.
Availability DataPaths::worst_to(const IslandId& island, const std::vector<IslandId>& others) const {
  Availability worst = steadiness_.of({IslandId(), island}, now());
  for (const IslandId& other : others) {
    const Availability one = steadiness_.worst_of(island, other, now());
    worst = other != island && one.share() < worst.share() ? one : worst;
  }
  return worst;
}

std::string DataPaths::rhythm_of(const IslandId& island, const std::vector<IslandId>& others) const {
  return rhythm_text(worst_to(island, others), steadiness_.losses(island, now()));
}

// `at_once`: for those who cannot do without a path that is not trusted yet, or that comes and goes.
DetourInput DataPaths::detour_input(const std::vector<IslandId>& members, bool at_once) const {
  DetourInput input{members, {}, {}};
  if (!paths_.any(now()) && !steadiness_.any()) {
    return input;
  }
  std::ranges::copy_if(members, std::inserter(input.suspected, input.suspected.end()),
                       [&](const IslandId& member) { return steadiness_.suspected(member); });
  for (const IslandId& a : members) {
    for (const IslandId& b : members) {
      if (a < b && (!paths_.usable(a, b, now(), at_once) || (!at_once && !steadiness_.steady(a, b)))) {
        input.apart.emplace(a, b);
      }
    }
  }
  return input;
}

// A path that comes and goes is better than none: where the run cannot do without one of its members it is used.
DetourDecision DataPaths::detour_among(const Run& run, const std::vector<IslandId>& participants) const {
  const DetourDecision steady = decide_detour(detour_input(participants));
  if (steady.left_out.empty() || run.members.size() >= run.spec.islands.min + steady.left_out.size()) {
    return steady;
  }
  DetourInput broken = detour_input(participants);
  for (const std::pair<IslandId, IslandId>& pair : std::exchange(broken.apart, {})) {
    if (!paths_.usable(pair.first, pair.second, now())) {
      broken.apart.insert(pair);
    }
  }
  return decide_detour(broken);
}

PlaceCouples DataPaths::to_avoid(const std::vector<IslandId>& members) const {
  const DetourInput input = detour_input(members);
  PlaceCouples couples;
  for (std::uint32_t a = 0; !input.apart.empty() && a < members.size(); ++a) {
    for (std::uint32_t b = a + 1; b < members.size() && !steadiness_.restless(members[a], members); ++b) {
      const auto& [first, second] = std::minmax(members[a], members[b]);
      if (input.apart.contains({first, second}) && !steadiness_.restless(members[b], members) && couples.size() < kMaxPlaceCouples) {
        couples.emplace_back(a, b);
      }
    }
  }
  return couples;
}

std::string DataPaths::why_apart(const IslandId& island, const std::vector<IslandId>& others) const {
  if (steadiness_.restless(island, others)) {
    return "its link " + rhythm_of(island, others);
  }
  std::vector<std::string> names;
  std::string why;
  for (const IslandId& other : others) {
    if (other != island && !paths_.usable(island, other, now())) {
      names.push_back(islands_.name_of(other));
      why = paths_.why_not(island, other, now());
    }
  }
  for (const IslandId& other : others) {
    if (names.empty() && other != island && !steadiness_.steady(island, other)) {
      return "the path between it and " + islands_.name_of(other) + " comes and goes: " + steadiness_.worst_of(island, other, now()).text();
    }
  }
  return "data do not pass between it and " + list_of(names) + ": " + why;
}

bool DataPaths::reaches(const IslandId& island, const Run& run) {
  if (!paths_.any(now()) && !steadiness_.any()) {
    return true;
  }
  std::vector<IslandId> all = run.members;
  all.push_back(island);
  const DetourInput input = detour_input(all, run.members.size() < run.spec.islands.min);
  const bool alone = all.size() == 2 && !input.apart.empty();
  if (!alone && !contains(decide_detour(input).left_out, island)) {
    return true;
  }
  if (const std::optional<TimePoint> change = paths_.next_change(now())) {
    wake_at(*change);
  }
  return false;
}

// An island that could take part but for a link that comes and goes stays away until that is steady, unless the run needs it.
bool DataPaths::waits_for_steadiness(Run& run, Membership& membership) {
  const IslandId island = membership.record.island;
  if (!steadiness_.until(island) || run.members.size() < run.spec.islands.min || reaches(island, run)) {
    return false;
  }
  std::vector<IslandId> all = run.members;
  all.push_back(island);
  if (membership.record.cause.find("comes and goes") == std::string::npos && steadiness_.restless(island, all)) {
    membership.record.cause = "its link " + rhythm_of(island, all);
    core_.save(run, membership);
  }
  return true;
}

// Two islands alone that are apart train nothing together.
std::optional<Wait> DataPaths::wait_for(const Run& run) {
  if (run.members.size() != 2 || run.spec.islands.min < 2 || detour_input(run.members, true).apart.empty()) {
    return std::nullopt;
  }
  if (const std::optional<TimePoint> again = paths_.next_change(now())) {
    wake_at(*again);  // then it is tried again, which is no deadline
  }
  return Wait{text_of_apart(run.members.front(), run.members.back()), std::nullopt};
}

std::string DataPaths::text_of_apart(const IslandId& a, const IslandId& b) const {
  return "islands " + islands_.name_of(a) + " and " + islands_.name_of(b) + " cannot exchange data: " + paths_.why_not(a, b, now()) +
         remedy_for(a, b);
}

std::string DataPaths::remedy_for(const IslandId& a, const IslandId& b) const {
  return ". One of them has to reach the other: " + islands_.opening_for(a, b) + ", or " + islands_.opening_for(b, a) +
         (settings_.relays.empty()
              ? "; or start the coordinator with --relay PORT, or with the ticket of a relay that both can dial (atoll relay), "
                "or an island that both can dial with --relay PORT"
              : "; or both have to reach relay " + list_of(settings_.relays));
}

}  // namespace atl::coordinator
