// How paths from peers come and go: who was in doubt is asked for a few bytes once a second, until it has been steady for long.
//
// An exchange notices a path that is gone for many seconds, and a probe (path_probes.hpp) says whether it is there at all. A path that is
// gone for three seconds of every six is neither: each round waits for its next return. So a peer of which a transfer got nothing for a
// moment is watched. An answer that stays away for longer than answers usually take, while nothing else comes from that peer either, is a
// time in which the path was away; what it was over the last minutes (Availability) is told while there is any such time in them.
// A steady path costs nothing, a doubt that proves idle half a minute of an answer of 1 KiB a second.
// Sans-I/O. Threads: one.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "transport/base/availability.hpp"
#include "transport/bulk/transfer.hpp"

namespace atl {

struct WatchedPath {
  IslandId from;
  Availability available;
};

class PathWatch final : public Transfer {
 public:
  // Others are not watched any more.
  void keep_only(const std::set<IslandId>& peers);
  // A transfer waits for this peer, from which nothing has come for a moment.
  void doubt(const IslandId& peer, TimePoint now);
  // Something of any kind came from it.
  void heard(const IslandId& peer, TimePoint now);
  // What is to be told now: of a path that came back, and every few seconds of one that is away; at last that it has been steady for long.
  std::vector<WatchedPath> take_findings(TimePoint now);

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint now, const IslandId& peer) override;
  void not_sent(TimePoint now, const OutgoingWant& want) override;
  [[nodiscard]] bool reads(const BlobId& blob) const override;
  std::vector<OutgoingWant> take_wants(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const override;

 private:
  struct Away {
    TimePoint from;
    TimePoint until;
  };
  struct Watched {
    TimePoint since;
    TimePoint doubted;
    TimePoint heard;
    std::uint64_t number = 0;         // of the newest question
    std::optional<TimePoint> asked;   // it is not answered
    TimePoint ask_at;                 // the next one, or the same once more
    std::deque<Duration> answers;     // how long the newest took
    std::deque<Away> away;            // that are over, within the minutes that are looked back at
    std::optional<TimePoint> gone;    // it is away, since then
    std::optional<TimePoint> untold;  // something is to be told since then
    TimePoint told;
  };
  [[nodiscard]] static Availability availability(const Watched& path, TimePoint now);
  // When nobody looked, nobody saw an answer either.
  void look(TimePoint now);
  static void judge(Watched& path, TimePoint now, bool came);

  std::map<IslandId, Watched> paths_;
  TimePoint looked_;
  std::vector<std::byte> sink_;
};

}  // namespace atl
