#include "transport/bulk/path_watch.hpp"

#include <algorithm>

namespace atl {
namespace {

constexpr std::uint32_t kAnswerBytes = 1024;
constexpr std::uint32_t kPart = 1;  // of the blob, so that the questions are nobody else's
constexpr Duration kEvery = std::chrono::seconds(1);
constexpr Duration kAwayAfter = std::chrono::milliseconds(1500);  // without an answer, and
constexpr int kUsualTimes = 4;                                    // so many of the usual times, on a slow path or where much is on its way
constexpr std::size_t kAnswers = 9;                               // of which the middle one is the usual time
constexpr std::size_t kFirstAnswers = 3;                          // before the usual time is known nothing is judged
constexpr Duration kIdleDoubt = std::chrono::seconds(30);         // a path that was never away is watched for so long
constexpr Duration kTellEvery = std::chrono::seconds(5);
constexpr Duration kTellAwayEvery = std::chrono::seconds(15);
constexpr Duration kLongAway = std::chrono::seconds(15);  // from then on it is asked less often
constexpr Duration kSeldom = std::chrono::seconds(4);
constexpr Duration kMissedLook = std::chrono::milliseconds(1200);  // so late this end was busy with something else

Duration usual(const std::deque<Duration>& answers) {
  std::vector<Duration> sorted(answers.begin(), answers.end());
  std::ranges::sort(sorted);
  return sorted.empty() ? Duration() : sorted[sorted.size() / 2];
}

}  // namespace

void PathWatch::keep_only(const std::set<IslandId>& peers) {
  std::erase_if(paths_, [&](const auto& path) { return !peers.contains(path.first); });
}

void PathWatch::look(TimePoint now) {
  const Duration pause = now - looked_;
  looked_ = now;
  if (pause <= kMissedLook) {
    return;
  }
  for (auto& [peer, path] : paths_) {
    if (path.asked && !path.gone) {
      path.asked = std::min(now, *path.asked + pause);
      path.heard = std::min(now, path.heard + pause);
    }
  }
}

void PathWatch::doubt(const IslandId& peer, TimePoint now) {
  const auto [found, fresh] = paths_.try_emplace(peer);
  found->second.doubted = now;
  if (fresh) {
    found->second.since = now;
    found->second.ask_at = now;
    found->second.heard = now;
    found->second.told = now;
  }
}

// Whether it was away until now, as it is if nothing came.
void PathWatch::judge(Watched& path, TimePoint now, bool came) {
  const bool known = path.answers.size() >= kFirstAnswers;
  if (path.asked && !path.gone && known) {
    const TimePoint silent = std::max(*path.asked, path.heard);
    if (now - silent > std::max(kAwayAfter, kUsualTimes * usual(path.answers))) {
      path.gone = silent;
      path.untold = path.untold.value_or(now);
    }
  }
  if (came) {
    if (path.gone) {
      path.away.push_back({*path.gone, now});
      path.gone.reset();
      path.untold = path.untold.value_or(now);
    }
    path.heard = now;
  }
}

void PathWatch::heard(const IslandId& peer, TimePoint now) {
  if (const auto path = paths_.find(peer); path != paths_.end()) {
    look(now);
    judge(path->second, now, true);
  }
}

Availability PathWatch::availability(const Watched& path, TimePoint now) {
  const TimePoint begin = std::max(path.since, now - kAvailabilityWindow);
  Availability all;
  all.watched = now - begin;
  all.there = all.watched;
  all.steady = all.watched;
  for (const Away& away : path.away) {
    all.there -= std::max(Duration(), away.until - std::max(away.from, begin));
    all.changes += away.from >= begin ? 2U : away.until >= begin ? 1U : 0U;
    all.steady = std::min(all.steady, now - away.until);
  }
  if (path.gone) {
    all.there -= now - std::max(*path.gone, begin);
    all.changes += *path.gone >= begin ? 1U : 0U;
    all.steady = Duration();
  }
  all.there = std::max(all.there, Duration());
  return all;
}

std::vector<WatchedPath> PathWatch::take_findings(TimePoint now) {
  std::vector<WatchedPath> findings;
  for (auto path = paths_.begin(); path != paths_.end();) {
    Watched& watched = path->second;
    while (!watched.away.empty() && watched.away.front().until < now - kAvailabilityWindow) {
      watched.away.pop_front();
      watched.untold = watched.away.empty() ? watched.untold.value_or(now) : watched.untold;
    }
    const bool was_away = !watched.away.empty() || watched.gone;
    const bool over = !was_away && now - watched.doubted >= kIdleDoubt;
    const Duration told = now - watched.told;
    if ((watched.untold && (told >= kTellEvery || over)) || (watched.gone && told >= kTellAwayEvery)) {
      findings.push_back({path->first, availability(watched, now)});
      watched.untold.reset();
      watched.told = now;
    }
    path = over ? paths_.erase(path) : std::next(path);
  }
  return findings;
}

std::span<std::byte> PathWatch::destination(const IslandId& from, const BlobPiece& piece) {
  const auto path = paths_.find(from);
  if (path == paths_.end() || !path->second.asked || piece.blob.round != Round(path->second.number)) {
    return {};
  }
  sink_.resize(piece.length);
  return sink_;
}

void PathWatch::arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) {
  const auto found = paths_.find(from);
  if (found == paths_.end() || !found->second.asked || piece.blob.round != Round(found->second.number)) {
    return;
  }
  look(now);
  Watched& path = found->second;
  judge(path, now, true);
  path.answers.push_back(now - *path.asked);
  if (path.answers.size() > kAnswers) {
    path.answers.pop_front();
  }
  path.asked.reset();
  path.ask_at = now + kEvery;
}

// A peer that does not know this kind of blob cannot be watched.
void PathWatch::gone(TimePoint /*now*/, const IslandId& from, const Gone& gone) {
  if (const auto path = paths_.find(from); path != paths_.end() && gone.blob.round == Round(path->second.number)) {
    paths_.erase(path);
  }
}

void PathWatch::connected(TimePoint now, const IslandId& peer) {
  if (const auto path = paths_.find(peer); path != paths_.end()) {
    path->second.ask_at = now;
  }
}

void PathWatch::not_sent(TimePoint now, const OutgoingWant& want) {
  if (const auto path = paths_.find(want.to); path != paths_.end()) {
    path->second.ask_at = now + kPauseAfterRefusedSend;
  }
}

bool PathWatch::reads(const BlobId& blob) const { return blob.kind == BlobKind::probe && blob.part == kPart; }

std::vector<OutgoingWant> PathWatch::take_wants(TimePoint now) {
  std::vector<OutgoingWant> wants;
  look(now);
  for (auto& [peer, path] : paths_) {
    judge(path, now, false);
    if (now < path.ask_at) {
      continue;
    }
    if (!path.asked) {
      ++path.number;  // a want that equals one that waits is not served twice
      path.asked = now;
    }
    path.ask_at = now + (path.gone && now - *path.gone >= kLongAway ? kSeldom : kEvery);
    Want want;
    want.blob.kind = BlobKind::probe;
    want.blob.round = Round(path.number);
    want.blob.part = kPart;
    want.length = kAnswerBytes;
    wants.push_back({peer, want});
  }
  return wants;
}

std::optional<TimePoint> PathWatch::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [peer, path] : paths_) {
    next = next ? std::min(*next, path.ask_at) : path.ask_at;
  }
  return next;
}

}  // namespace atl
