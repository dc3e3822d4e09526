#include "coordinator/core/paths.hpp"

#include <algorithm>

namespace atl::coordinator {
namespace {

constexpr Duration kChance = std::chrono::seconds(45);  // without news of a broken path; doubles with each time that it breaks
constexpr Duration kTrust = std::chrono::seconds(5);    // before a path that is whole again is used; doubles, too
constexpr unsigned kMostDoublings = 5;
constexpr Duration kForgotten = std::chrono::hours(1);  // without a break

Duration doubled(Duration first, unsigned times) { return first * (1U << std::min(times - 1, kMostDoublings)); }

}  // namespace

bool Paths::broken(const IslandId& reader, const IslandId& from, const std::string& why, TimePoint now) {
  passed_.erase({reader, from});
  Path& path = paths_[{reader, from}];
  const bool news = !path.broken || now >= path.until;
  if (news) {
    path.times = path.times > 0 && now - path.until > kForgotten ? 1 : path.times + 1;
    path.since = now;
    path.broken = true;
  }
  path.mended = false;
  path.why = why;
  path.until = std::max(path.until, now + doubled(kChance, path.times));
  return news;
}

bool Paths::whole(const IslandId& reader, const IslandId& from, TimePoint now) {
  const auto found = paths_.find({reader, from});
  if (found == paths_.end() || !found->second.broken || now >= found->second.until) {
    return false;
  }
  Path& path = found->second;
  path.mended = true;
  path.until = std::min(path.until, std::max(now, path.since + doubled(kTrust, path.times)));
  return true;
}

bool Paths::passed_since(const IslandId& reader, const IslandId& from, TimePoint since) const {
  const auto found = passed_.find({reader, from});
  return found != passed_.end() && found->second >= since;
}

void Paths::forgive(const IslandId& island, TimePoint now) {
  const auto is_end = [&](const auto& ends) { return ends.first == island || ends.second == island; };
  std::erase_if(passed_, [&](const auto& path) { return is_end(path.first); });
  std::erase_if(measured_, [&](const auto& path) { return is_end(path.first); });
  std::erase_if(addresses_, [&](const auto& known) { return is_end(known.first); });
  ways_.erase(island);
  for (auto& [other, ways] : ways_) {
    ways.erase(island);
  }
  for (auto& [ends, path] : paths_) {
    if (path.broken && (ends.first == island || ends.second == island)) {
      path.until = std::min(path.until, now);
      path.times = path.times > 0 ? path.times - 1 : 0;
      path.broken = false;
    }
  }
}

const Paths::Path* Paths::find_broken(const IslandId& reader, const IslandId& from, TimePoint now, bool at_once) const {
  const auto found = paths_.find({reader, from});
  const bool broken = found != paths_.end() && found->second.broken && now < found->second.until && !(at_once && found->second.mended);
  return broken ? &found->second : nullptr;
}

bool Paths::usable(const IslandId& a, const IslandId& b, TimePoint now, bool at_once) const {
  return find_broken(a, b, now, at_once) == nullptr && find_broken(b, a, now, at_once) == nullptr;
}

std::string Paths::why_not(const IslandId& a, const IslandId& b, TimePoint now) const {
  const Path* one = find_broken(a, b, now);
  const Path* other = find_broken(b, a, now);
  const Path* first = one == nullptr || (other != nullptr && other->since < one->since) ? other : one;
  return first == nullptr ? std::string() : first->why;
}

std::map<IslandId, std::string> Paths::into(const IslandId& reader, TimePoint now) const {
  std::map<IslandId, std::string> found;
  for (auto path = passed_.lower_bound({reader, IslandId()}); path != passed_.end() && path->first.first == reader; ++path) {
    found[path->first.second] = "";
  }
  for (auto path = paths_.lower_bound({reader, IslandId()}); path != paths_.end() && path->first.first == reader; ++path) {
    if (find_broken(reader, path->first.second, now) != nullptr) {
      found[path->first.second] = path->second.why;
    }
  }
  return found;
}

void Paths::goes(const IslandId& island, WaysOfIsland ways) {
  for (const auto& [peer, way] : ways) {
    if (!way.address.empty()) {
      addresses_[{island, peer}] = way.address;
    }
  }
  ways_[island] = std::move(ways);
}

std::string Paths::last_address(const IslandId& island, const IslandId& peer) const {
  const auto found = addresses_.find({island, peer});
  return found == addresses_.end() ? "" : found->second;
}

const Paths::WaysOfIsland& Paths::ways_of(const IslandId& island) const {
  static const WaysOfIsland kNone;
  const auto found = ways_.find(island);
  return found == ways_.end() ? kNone : found->second;
}

std::optional<Way> Paths::way(const IslandId& island, const IslandId& peer) const {
  const WaysOfIsland& ways = ways_of(island);
  const auto found = ways.find(peer);
  return found == ways.end() ? std::nullopt : std::optional(found->second);
}

const MeasuredPath* Paths::measurement(const IslandId& reader, const IslandId& from) const {
  const auto found = measured_.find({reader, from});
  return found == measured_.end() ? nullptr : &found->second;
}

bool Paths::any(TimePoint now) const {
  return std::ranges::any_of(paths_, [&](const auto& path) { return path.second.broken && now < path.second.until; });
}

std::optional<TimePoint> Paths::next_change(TimePoint now) const {
  std::optional<TimePoint> next;
  for (const auto& [ends, path] : paths_) {
    if (path.broken && now < path.until) {
      next = next ? std::min(*next, path.until) : path.until;
    }
  }
  return next;
}

std::string text_of(NotPunched why, const std::string& island, const std::string& peer) {
  const auto symmetric = [](const std::string& name) {
    return "the router of island " + name + " gives each connection another port (a symmetric NAT)";
  };
  switch (why) {
    case NotPunched::not_tried:
      return "";
    case NotPunched::own_router:
      return symmetric(island);
    case NotPunched::peers_router:
      return symmetric(peer);
    case NotPunched::nothing_came:
      return "both dialled at the same moment, and the router of one of them let nothing in";
    case NotPunched::switched_off:
      return "island " + island + " was started with --no-hole-punching";
  }
  return "";
}

DetourDecision decide_detour(const DetourInput& input) {
  DetourDecision decision;
  if (input.apart.empty()) {
    return decision;
  }
  std::vector<IslandId> members = input.members;
  const auto apart_from = [&](const IslandId& island) {
    return static_cast<std::size_t>(std::ranges::count_if(members, [&](const IslandId& other) {
      return input.apart.contains(island < other ? std::pair(island, other) : std::pair(other, island));
    }));
  };
  while (members.size() > 2) {
    IslandId worst;
    std::pair<std::size_t, bool> worst_is;  // apart from so many, and suspected
    std::size_t most = 0;
    bool anybody_reaches_all = false;
    for (const IslandId& member : members) {
      const std::size_t count = apart_from(member);
      anybody_reaches_all = anybody_reaches_all || count == 0;
      most = std::max(most, count);
      if (const std::pair is(count, input.suspected.contains(member)); count > 0 && is >= worst_is) {
        worst_is = is;
        worst = member;
      }
    }
    if (most == 0 || (anybody_reaches_all && most * 2 <= members.size() - 1)) {
      break;
    }
    decision.left_out.push_back(worst);
    std::erase(members, worst);
  }
  const bool detour = members.size() > 2 && std::ranges::any_of(members, [&](const IslandId& member) { return apart_from(member) > 0; });
  for (const IslandId& member : members) {
    if (detour) {
      decision.shares.push_back(apart_from(member) == 0 ? 1 : 0);
    }
  }
  return decision;
}

}  // namespace atl::coordinator
