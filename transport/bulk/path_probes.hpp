// Whether this island gets data from each of its peers: a blob of some full-size packets is read from every peer that is new or in doubt.
//
// Heartbeats are small and go another way: a path that drops large packets, or two islands that cannot dial each other, show only here.
// A peer from which the probe does not come in time is tried again, after pauses that double; the newest finding of each is told whenever a
// try ends.
// Sans-I/O. Threads: one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/bulk/transfer.hpp"
#include "transport/bulk/want_schedule.hpp"

namespace atl {

struct PathFinding {
  IslandId from;
  bool whole = false;  // a probe came
  bool linked = true;  // there is a connection at least
  std::string why;     // if not whole: what did not come
};

class PathProbes final : public Transfer {
 public:
  // These are the peers now, each with a run of which it has heard, or with none. Those that were not there before are tried, and those
  // that come into a run are tried once more.
  void set_peers(const std::map<IslandId, RunId>& peers, TimePoint now);
  // It delivered nothing in an exchange: it is tried again.
  void suspect(const IslandId& peer, TimePoint now);
  // What came of tries that ended since the last call.
  std::vector<PathFinding> take_findings(TimePoint now);

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint now, const IslandId& peer) override;
  void not_sent(TimePoint now, const OutgoingWant& want) override;
  [[nodiscard]] bool reads(const BlobId& blob) const override;
  std::vector<OutgoingWant> take_wants(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const override;

 private:
  struct Path {
    RunId run;
    std::optional<WantSchedule> reading;  // a try that is under way
    TimePoint until;                      // its end, and the latest that this may be moved to
    TimePoint latest;
    std::optional<TimePoint> next_try;  // nothing: it is whole
    Duration pause{};                   // before the next try
    bool linked = false;                // in this try something could be sent
  };
  void begin(Path& path, const IslandId& peer, TimePoint now);

  std::map<IslandId, Path> paths_;
  std::vector<PathFinding> findings_;
  std::vector<std::byte> sink_;
};

}  // namespace atl
