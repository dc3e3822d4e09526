#include "coordinator/core/steadiness.hpp"

#include <algorithm>

#include "transport/base/bytes.hpp"

namespace atl::coordinator {
namespace {

constexpr std::uint32_t kChanges = 5;                         // three absences, of which the last may last
constexpr double kSteadyShare = 0.9;                          // who is there for so much costs no more than the rest
constexpr std::size_t kLosses = 3;                            // of an island, within the minutes that are looked back at
constexpr Duration kLeastWatched = std::chrono::seconds(90);  // of shorter a time too little is known
constexpr std::size_t kMostLosses = 64;                       // that are remembered
constexpr Duration kSteadyFor = std::chrono::minutes(1);      // it has to be steady for so long; doubles with each time that it was not
constexpr unsigned kMostSteadyDoublings = 3;
constexpr Duration kAsNew = std::chrono::hours(1);  // steady for so long: as one that is new

Duration trust(unsigned times) { return kSteadyFor * (1U << std::min(std::max(times, 1U) - 1, kMostSteadyDoublings)); }

}  // namespace

std::string rhythm_text(const Availability& worst, std::size_t losses) {
  if (worst.changes < 2 && losses == 0) {
    return "came and went, and is not trusted again yet";
  }
  if (worst.changes < 2 || losses > 2) {
    return "comes and goes: it was lost " + std::to_string(losses) + (losses == 1 ? " time" : " times") + " in the last " +
           human_duration(kAvailabilityWindow);
  }
  return "comes and goes: " + std::to_string((worst.changes + 1) / 2) + " times in the last " + human_duration(worst.watched) + ", there " +
         std::to_string(static_cast<int>(100 * worst.share())) + " % of that time";
}

bool Steadiness::begin(Record& record, TimePoint now) {
  record.until = record.last_away + trust(record.times + (record.unsteady ? 0 : 1));
  if (record.unsteady || now >= record.until) {
    return false;
  }
  record.times = record.times > 0 && record.last_away - record.settled > kAsNew ? 1 : record.times + 1;
  record.unsteady = true;
  return true;
}

bool Steadiness::report(const UnsteadyPath& path, const Availability& available, TimePoint now) {
  Record& record = records_[path];
  record.available = available;
  record.told = now;
  if (available.changes == 0) {
    return false;
  }
  record.last_away = std::max(record.last_away, now - available.steady);
  if (!record.unsteady && record.times > 0 && record.last_away <= record.settled) {
    return false;  // what it was before it counted as steady again
  }
  const bool again = record.times > 0 && record.last_away - record.settled <= kAsNew;
  const bool comes_and_goes = available.changes >= kChanges && available.share() < kSteadyShare;
  return record.unsteady || again || comes_and_goes ? begin(record, now) : false;
}

bool Steadiness::lost(const IslandId& island, TimePoint now) {
  Record& record = records_[{IslandId(), island}];
  while (!record.losses.empty() && record.losses.front() < now - kAvailabilityWindow) {
    record.losses.pop_front();
  }
  record.losses.push_back(now);
  record.last_away = now;
  record.away = true;
  if (record.losses.size() > kMostLosses) {
    record.losses.pop_front();
  }
  const bool again = record.times > 0 && now - record.settled <= kAsNew && record.losses.size() >= 2;
  return record.unsteady || again || record.losses.size() >= kLosses ? begin(record, now) : false;
}

Availability Steadiness::of_link(const Record& record, TimePoint now) {
  const TimePoint begin = std::max(record.heard_since.value_or(now), now - kAvailabilityWindow);
  Availability all;
  all.watched = now - begin;
  all.there = all.watched;
  all.steady = now - record.last_away;
  for (const auto& [from, until] : record.quiet) {
    all.there -= std::max(Duration(), until - std::max(from, begin));
    all.changes += until >= begin ? 2U : 0U;
  }
  all.there = std::max(all.there, Duration());
  return all;
}

bool Steadiness::quiet(const IslandId& island, TimePoint since, TimePoint now) {
  Record& record = records_[{IslandId(), island}];
  record.heard_since = std::min(record.heard_since.value_or(since), since);
  std::erase_if(record.quiet, [&](const auto& spell) { return spell.second < now - kAvailabilityWindow; });
  record.quiet.emplace_back(since, now);
  if (record.quiet.size() > kMostLosses) {
    record.quiet.pop_front();
  }
  record.last_away = now;
  const Availability available = of_link(record, now);
  const auto fresh = std::ranges::count_if(record.quiet, [&](const auto& spell) { return spell.first > record.settled; });
  const bool again = record.times > 0 && now - record.settled <= kAsNew && fresh >= 2;
  const bool much = seconds(available.watched - available.there) > (1 - kSteadyShare) * seconds(std::max(available.watched, kLeastWatched));
  const bool comes_and_goes = fresh * 2 >= static_cast<std::ptrdiff_t>(kChanges) && much;
  return record.unsteady || again || comes_and_goes ? begin(record, now) : false;
}

void Steadiness::back(const IslandId& island, bool new_process, TimePoint now) {
  Record& link = records_[{IslandId(), island}];
  if (new_process || !link.heard_since) {
    link.heard_since = now;
    link.quiet.clear();
  }
  for (auto& [path, record] : records_) {
    const bool own = path.from.empty() && path.to == island;
    if (new_process && (own || path.from == island || path.to == island)) {
      record.losses.clear();
      record.until = std::min(record.until, now);
    } else if (own && record.away) {
      record.last_away = now;
      record.until = record.unsteady ? now + trust(record.times) : record.until;
    }
    record.away = record.away && !own;
  }
}

std::vector<UnsteadyPath> Steadiness::settle(TimePoint now) {
  std::vector<UnsteadyPath> settled;
  for (auto& [path, record] : records_) {
    std::erase_if(record.losses, [&](TimePoint lost) { return lost < now - kAvailabilityWindow; });
    std::erase_if(record.quiet, [&](const auto& spell) { return spell.second < now - kAvailabilityWindow; });
    if (record.unsteady && !record.away && now >= record.until) {
      record.unsteady = false;
      record.settled = now;
      settled.push_back(path);
    }
  }
  return settled;
}

bool Steadiness::is_unsteady(const UnsteadyPath& path) const {
  const auto found = records_.find(path);
  return found != records_.end() && found->second.unsteady;
}

bool Steadiness::steady(const IslandId& a, const IslandId& b) const {
  return !is_unsteady({a, b}) && !is_unsteady({b, a}) && !is_unsteady({IslandId(), a}) && !is_unsteady({IslandId(), b});
}

bool Steadiness::any() const {
  return std::ranges::any_of(records_, [](const auto& record) { return record.second.unsteady; });
}

bool Steadiness::suspected(const IslandId& island) const {
  const auto found = records_.find({IslandId(), island});
  return found != records_.end() && (found->second.unsteady || !found->second.losses.empty() || !found->second.quiet.empty());
}

bool Steadiness::restless(const IslandId& island, const std::vector<IslandId>& others) const {
  if (is_unsteady({IslandId(), island})) {
    return true;
  }
  std::size_t all = 0;
  std::size_t unsteady = 0;
  for (const IslandId& other : others) {
    if (other != island && (!suspected(other) || suspected(island))) {
      ++all;
      unsteady += is_unsteady({island, other}) || is_unsteady({other, island}) ? 1U : 0U;
    }
  }
  return all >= 2 && unsteady * 2 > all;
}

std::vector<UnsteadyPath> Steadiness::among(const std::vector<IslandId>& islands) const {
  const auto is_one = [&](const IslandId& island) { return std::ranges::find(islands, island) != islands.end(); };
  std::vector<UnsteadyPath> paths;
  for (const auto& [path, record] : records_) {
    if (record.unsteady && is_one(path.to) && (path.from.empty() || is_one(path.from))) {
      paths.push_back(path);
    }
  }
  return paths;
}

// What was last told, as it is by now: a path that is not watched any more was last seen steady.
Availability Steadiness::of(const UnsteadyPath& path, TimePoint now) const {
  const auto found = records_.find(path);
  if (found == records_.end()) {
    return {};
  }
  if (path.from.empty()) {
    return of_link(found->second, now);
  }
  Availability available = found->second.available;
  if (available.steady > Duration()) {
    available.steady += now - found->second.told;
  }
  return available;
}

Availability Steadiness::worst_of(const IslandId& a, const IslandId& b, TimePoint now) const {
  const Availability one = of({a, b}, now);
  const Availability other = of({b, a}, now);
  return one.share() <= other.share() ? one : other;
}

std::size_t Steadiness::losses(const IslandId& island, TimePoint now) const {
  const auto found = records_.find({IslandId(), island});
  return found == records_.end() ? 0 : static_cast<std::size_t>(std::ranges::count_if(found->second.losses, [&](TimePoint lost) {
    return lost >= now - kAvailabilityWindow;
  }));
}

std::optional<TimePoint> Steadiness::next_change() const {
  std::optional<TimePoint> next;
  for (const auto& [path, record] : records_) {
    if (record.unsteady && !record.away) {
      next = next ? std::min(*next, record.until) : record.until;
    }
  }
  return next;
}

std::optional<TimePoint> Steadiness::until(const IslandId& island) const {
  std::optional<TimePoint> latest;
  for (const auto& [path, record] : records_) {
    if (record.unsteady && !record.away && (path.from == island || path.to == island)) {
      latest = latest ? std::max(*latest, record.until) : record.until;
    }
  }
  return latest;
}

}  // namespace atl::coordinator
