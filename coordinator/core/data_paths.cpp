// Between which islands data pass, and what follows where they do not.
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

constexpr std::size_t kMostNeighbours = 32;
constexpr std::uint64_t kMostRoundTripUs = 3'600'000'000;

bool contains(const std::vector<IslandId>& islands, const IslandId& island) { return std::ranges::find(islands, island) != islands.end(); }

}  // namespace

const Run* Core::State::common_run(const IslandId& a, const IslandId& b) const {
  const auto found = std::ranges::find_if(
      runs, [&](const auto& run) { return !run.second.life.over() && run.second.is_member(a) && run.second.is_member(b); });
  return found == runs.end() ? nullptr : &found->second;
}

void Core::State::touch_runs_of(const IslandId& a, const IslandId& b) {
  for (const auto& [id, run] : runs) {
    if (!run.life.over() && run.memberships.contains(a) && run.memberships.contains(b)) {
      touch(run);
    }
  }
}

std::vector<IslandId> Core::State::neighbours() const {
  std::vector<IslandId> near;
  for (const auto& [id, island] : islands.all()) {
    if (island.greeted && near.size() == kMostNeighbours) {
      return {};
    }
    if (island.greeted) {
      near.push_back(id);
    }
  }
  return near;
}

void Core::State::name_neighbours(const IslandId& to) {
  std::vector<IslandId> others = neighbours();
  std::erase(others, to);
  send(to, Neighbours{islands.members_of(others)});
}

void Core::State::name_neighbours() {
  const auto connected = std::ranges::count_if(islands.all(), [](const auto& one) { return one.second.greeted; });
  if (static_cast<std::size_t>(connected) > kMostNeighbours + 1) {
    return;  // they know that there are too many
  }
  for (const auto& [id, island] : islands.all()) {
    if (island.greeted) {
      name_neighbours(id);
    }
  }
}

// In each turn an island reads from another one, and nobody sends to two of them.
Result<std::uint32_t> Core::State::measure_paths(Duration each) {
  const std::vector<IslandId> near = neighbours();
  if (near.size() < 2) {
    const bool many = std::ranges::count_if(islands.all(), [](const auto& one) { return one.second.greeted; }) > 1;
    return Error{Code::unavailable,
                 many ? "more than " + std::to_string(kMostNeighbours) + " islands are connected: so many paths are not measured"
                      : "fewer than two islands are connected: there is no path to measure"};
  }
  event({}, {}, "info", "paths_measured",
        "the paths between " + std::to_string(near.size()) + " islands are measured for " + human_duration(each) + " each");
  ++measurements;
  for (std::size_t i = 0; i < near.size(); ++i) {
    std::vector<IslandId> in_turn;
    for (std::size_t k = 1; k < near.size(); ++k) {
      in_turn.push_back(near[(i + k) % near.size()]);
    }
    const auto each_ms = std::chrono::duration_cast<std::chrono::milliseconds>(each).count();
    send(near[i], Neighbours{islands.members_of(in_turn), measurements, static_cast<std::uint32_t>(each_ms)});
  }
  return measurements;
}

// Who is neither a neighbour nor a member is not admitted by all others yet: that nothing comes says nothing then.
void Core::State::on_path_report(const IslandId& island, const PathReport& message) {
  if (islands.find(message.from) == nullptr || message.from == island) {
    return;
  }
  if (message.measurement != 0) {
    if (message.measurement == measurements) {
      paths.measured(island, message.from,
                     {std::chrono::microseconds(std::min<std::uint64_t>(message.round_trip_us, kMostRoundTripUs)),
                      static_cast<double>(message.bytes_per_second), now(), message.measurement});
    }
    return;
  }
  const std::vector<IslandId> near = neighbours();
  const bool tried = contains(near, island) && contains(near, message.from);
  if (!message.whole) {
    // One of the two may not admit the other, for it did not hear that it is there.
    if (tried) {
      name_neighbours(island);
      name_neighbours(message.from);
    }
    if (islands.alive(message.from) && (tried || common_run(island, message.from) != nullptr)) {
      note_broken(island, message.from, bounded(message.why, 512));
    }
    return;
  }
  if (tried) {
    paths.passed(island, message.from, now());
  }
  note_whole(island, message.from);
}

void Core::State::note_whole(const IslandId& reader, const IslandId& from) {
  if (!paths.whole(reader, from, now())) {
    return;
  }
  const Run* run = common_run(reader, from);
  event(run == nullptr ? RunId{} : run->about.id, reader, "info", "path_whole",
        "island " + islands.name_of(reader) + " gets data from island " + islands.name_of(from) + " again");
  touch_runs_of(reader, from);
}

void Core::State::note_broken(const IslandId& reader, const IslandId& from, const std::string& why) {
  if (!paths.broken(reader, from, why, now())) {
    return;
  }
  const std::string one = islands.name_of(reader);
  const std::string other = islands.name_of(from);
  const Run* run = common_run(reader, from);
  event(run == nullptr ? RunId{} : run->about.id, reader, "warning", "path_broken",
        "island " + one + " gets no data from island " + other + ": " + why +
            ". One of them has to reach the other: " + islands.opening_for(from, reader) + ", or " + islands.opening_for(reader, from) +
            ". Until then a third island sums for both, where there is one");
  touch_runs_of(reader, from);
}

DetourInput Core::State::detour_input(const std::vector<IslandId>& members, bool at_once) const {
  DetourInput input{members, {}};
  if (!paths.any(now())) {
    return input;
  }
  for (const IslandId& a : members) {
    for (const IslandId& b : members) {
      if (a < b && !paths.usable(a, b, now(), at_once)) {
        input.apart.emplace(a, b);
      }
    }
  }
  return input;
}

std::string Core::State::why_apart(const IslandId& island, const std::vector<IslandId>& others) const {
  std::vector<std::string> names;
  std::string why;
  for (const IslandId& other : others) {
    if (other != island && !paths.usable(island, other, now())) {
      names.push_back(islands.name_of(other));
      why = paths.why_not(island, other, now());
    }
  }
  return "data do not pass between it and " + list_of(names) + ": " + why;
}

bool Core::State::reaches(const IslandId& island, const Run& run) {
  if (!paths.any(now())) {
    return true;
  }
  std::vector<IslandId> all = run.members;
  all.push_back(island);
  const DetourInput input = detour_input(all, run.members.size() < run.spec.islands.min);
  const bool alone = all.size() == 2 && !input.apart.empty();
  if (!alone && !contains(decide_detour(input).left_out, island)) {
    return true;
  }
  if (const std::optional<TimePoint> change = paths.next_change(now())) {
    wake_at(*change);
  }
  return false;
}

// Two islands alone that are apart train nothing together.
std::optional<Wait> Core::State::wait_for_paths(const Run& run) {
  if (run.members.size() != 2 || run.spec.islands.min < 2 || detour_input(run.members, true).apart.empty()) {
    return std::nullopt;
  }
  if (const std::optional<TimePoint> again = paths.next_change(now())) {
    wake_at(*again);  // then it is tried again, which is no deadline
  }
  return Wait{text_of_apart(run.members.front(), run.members.back()), std::nullopt};
}

std::string Core::State::text_of_apart(const IslandId& a, const IslandId& b) const {
  return "islands " + islands.name_of(a) + " and " + islands.name_of(b) + " cannot exchange data: " + paths.why_not(a, b, now()) +
         ". One of them has to reach the other: " + islands.opening_for(a, b) + ", or " + islands.opening_for(b, a);
}

}  // namespace atl::coordinator
