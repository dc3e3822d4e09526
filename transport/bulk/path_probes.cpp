#include "transport/bulk/path_probes.hpp"

#include <algorithm>

namespace atl {
namespace {

constexpr Duration kTry =
    std::chrono::seconds(4);  // from its beginning, or from a connection that is made meanwhile: that takes round trips
constexpr Duration kLongestTry = std::chrono::seconds(12);
constexpr Duration kFirstPause = std::chrono::seconds(2);
constexpr Duration kLongestPause = std::chrono::seconds(15);

BlobId probe_of(const RunId& run) {
  BlobId blob;
  blob.run = run;
  blob.kind = BlobKind::probe;
  return blob;
}

}  // namespace

void PathProbes::begin(Path& path, const IslandId& peer, TimePoint now) {
  WantSettings wants;
  wants.again_after = std::chrono::seconds(1);
  path.reading.emplace(peer, probe_of(path.run), std::vector<std::uint64_t>{0, kProbeBytes}, wants, now);
  path.until = now + kTry;
  path.latest = now + kLongestTry;
  path.linked = false;
}

void PathProbes::set_peers(const std::map<IslandId, RunId>& peers, TimePoint now) {
  std::erase_if(paths_, [&](const auto& path) { return !peers.contains(path.first); });
  for (const auto& [peer, run] : peers) {
    const auto [found, added] = paths_.try_emplace(peer);
    Path& path = found->second;
    if (added || (path.run != run && !path.reading)) {
      const bool fresh = path.run.empty();
      path.run = run;
      path.next_try = fresh ? std::optional(now) : path.next_try;
    }
  }
}

void PathProbes::suspect(const IslandId& peer, TimePoint now) {
  if (const auto path = paths_.find(peer); path != paths_.end() && !path->second.reading && !path->second.next_try) {
    path->second.next_try = now;
  }
}

std::vector<PathFinding> PathProbes::take_findings(TimePoint now) {
  for (auto& [peer, path] : paths_) {
    if (path.reading && now >= path.until) {
      path.reading.reset();
      path.pause = std::clamp(path.pause * 2, kFirstPause, kLongestPause);
      path.next_try = now + path.pause;
      findings_.push_back({peer, false, path.linked,
                           path.linked ? "it is connected, but data in full-size packets do not come: does something on the way drop large "
                                         "packets (a tunnel's MTU)?"
                                       : "there is no connection, as where a firewall keeps them apart"});
    }
  }
  return std::exchange(findings_, {});
}

std::span<std::byte> PathProbes::destination(const IslandId& from, const BlobPiece& piece) {
  const auto path = paths_.find(from);
  if (path == paths_.end() || !path->second.reading || !path->second.reading->outstanding(piece)) {
    return {};
  }
  sink_.resize(piece.length);
  return sink_;
}

void PathProbes::arrived(TimePoint /*now*/, const IslandId& from, const BlobPiece& piece) {
  const auto path = paths_.find(from);
  if (path == paths_.end() || !path->second.reading || !path->second.reading->outstanding(piece)) {
    return;
  }
  path->second.reading.reset();
  path->second.next_try.reset();
  path->second.pause = {};
  findings_.push_back({from, true, true, ""});
}

// It answers, so small frames pass; one that does not know this kind of blob cannot be tried.
void PathProbes::gone(TimePoint /*now*/, const IslandId& from, const Gone& /*gone*/) {
  if (const auto path = paths_.find(from); path != paths_.end() && path->second.reading) {
    path->second.reading.reset();
    path->second.next_try.reset();
  }
}

void PathProbes::connected(TimePoint now, const IslandId& peer) {
  const auto path = paths_.find(peer);
  if (path == paths_.end()) {
    return;
  }
  if (path->second.reading) {
    path->second.reading->ask_again(now);
    path->second.until = std::min(path->second.latest, std::max(path->second.until, now + kTry));
  } else if (path->second.next_try) {
    path->second.next_try = now;
  }
}

void PathProbes::not_sent(TimePoint now, const OutgoingWant& want) {
  if (const auto path = paths_.find(want.to); path != paths_.end() && path->second.reading) {
    path->second.linked = false;
    path->second.reading->ask_again(now, kPauseAfterRefusedSend);
  }
}

bool PathProbes::reads(const BlobId& blob) const { return blob.kind == BlobKind::probe && blob.round == Round(0); }

std::vector<OutgoingWant> PathProbes::take_wants(TimePoint now) {
  std::vector<OutgoingWant> wants;
  for (auto& [peer, path] : paths_) {
    if (!path.reading && path.next_try && now >= *path.next_try) {
      begin(path, peer, now);
    }
    if (path.reading) {
      const std::size_t before = wants.size();
      path.reading->take(now, SIZE_MAX, wants);
      path.linked = path.linked || wants.size() > before;
    }
  }
  return wants;
}

std::optional<TimePoint> PathProbes::next_deadline() const {
  std::optional<TimePoint> next;
  for (const auto& [peer, path] : paths_) {
    std::optional<TimePoint> due = path.next_try;
    if (path.reading) {
      due = std::min(path.until, path.reading->next_deadline().value_or(path.until));
    }
    next = !due ? next : next ? std::min(*next, *due) : *due;
  }
  return next;
}

}  // namespace atl
