// Between which islands data do not pass: what exchanges and probes have shown of it.
//
// A path is one direction, from the island that sends to the one that reads. It is found broken by an exchange in which nothing came, or by
// a probe; a probe that comes shows it whole. What is broken again and again is used again later each time: the pause doubles, and is
// remembered. Without news a path is given another chance once its time is over.
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/control/way.hpp"

namespace atl::coordinator {

// What an operator had measured of a path.
struct MeasuredPath {
  Duration round_trip{};        // 0: nothing came
  double bytes_per_second = 0;  // 0: no full piece came
  TimePoint at;
  std::uint32_t measurement = 0;
};

class Paths {
 public:
  // `reader` got nothing from `from`. True if that is news.
  bool broken(const IslandId& reader, const IslandId& from, const std::string& why, TimePoint now);
  // `reader` got a probe from `from`. True if that is news.
  bool whole(const IslandId& reader, const IslandId& from, TimePoint now);
  // `reader` got a probe from `from`, to be remembered until it breaks or one of them is lost.
  void passed(const IslandId& reader, const IslandId& from, TimePoint now) { passed_[{reader, from}] = now; }
  // Data came when the reader tried the path, which it told at `since` or later.
  [[nodiscard]] bool passed_since(const IslandId& reader, const IslandId& from, TimePoint since) const;
  // To whom an island is connected, and how. Those of now take the place of those before.
  using WaysOfIsland = std::map<IslandId, Way>;
  void goes(const IslandId& island, WaysOfIsland ways);
  [[nodiscard]] const WaysOfIsland& ways_of(const IslandId& island) const;
  // Nothing: it is not connected, as far as is known.
  [[nodiscard]] std::optional<Way> way(const IslandId& island, const IslandId& peer) const;
  // At which of the peer's addresses the island reached it last, also before a break; empty: it never dialled it.
  [[nodiscard]] std::string last_address(const IslandId& island, const IslandId& peer) const;
  void measured(const IslandId& reader, const IslandId& from, const MeasuredPath& path) { measured_[{reader, from}] = path; }
  // It was lost, or is another process: what was found of its paths may have been its own doing.
  void forgive(const IslandId& island, TimePoint now);

  // Data pass in both directions, as far as is known. What was broken and is whole again is trusted after a while only; `at_once`: for
  // those who cannot do without it.
  [[nodiscard]] bool usable(const IslandId& a, const IslandId& b, TimePoint now, bool at_once = false) const;
  // Why not: of the direction that was found broken first.
  [[nodiscard]] std::string why_not(const IslandId& a, const IslandId& b, TimePoint now) const;
  // What is known of the paths to `reader`, by the islands that they come from; of one that is broken why, of one that passed "".
  [[nodiscard]] std::map<IslandId, std::string> into(const IslandId& reader, TimePoint now) const;
  // The newest measurement, until one of the two is lost.
  [[nodiscard]] const MeasuredPath* measurement(const IslandId& reader, const IslandId& from) const;
  [[nodiscard]] bool any(TimePoint now) const;
  // When a path may be used again.
  [[nodiscard]] std::optional<TimePoint> next_change(TimePoint now) const;

 private:
  struct Path {
    bool broken = false;
    bool mended = false;  // a probe came since
    TimePoint since;
    TimePoint until;     // broken: then it is given another chance
    unsigned times = 0;  // found broken, in a row
    std::string why;
  };
  [[nodiscard]] const Path* find_broken(const IslandId& reader, const IslandId& from, TimePoint now, bool at_once = false) const;

  std::map<std::pair<IslandId, IslandId>, Path> paths_;        // of those that were ever broken: reader, from
  std::map<std::pair<IslandId, IslandId>, TimePoint> passed_;  // reader, from
  std::map<std::pair<IslandId, IslandId>, MeasuredPath> measured_;
  std::map<IslandId, WaysOfIsland> ways_;
  std::map<std::pair<IslandId, IslandId>, std::string> addresses_;  // island, peer
};

// Of a way that is not punched though it could be: why, as `island` says of `peer`, by their names. Empty: nobody tried.
std::string text_of(NotPunched why, const std::string& island, const std::string& peer);

// ---- who sums, and who stays out, where data do not pass -------------------------------------------------------------------------------

struct DetourInput {
  std::vector<IslandId> members;                  // in order
  std::set<std::pair<IslandId, IslandId>> apart;  // pairs between which data do not pass, the smaller id first
  std::set<IslandId> suspected = {};              // whose own links were away lately
};
struct DetourDecision {
  std::vector<std::uint8_t> shares;  // per member that stays: 1 it sums a share, 0 it sums none; empty: everybody does
  std::vector<IslandId> left_out;    // cannot exchange with most of the others, or with nobody who could sum for both
};
// Two islands that are apart need not speak to each other where a third sums for both: whoever is apart from somebody sums nothing. An
// island that is apart from more than half of the others is left out, and so is the most secluded one (of several one that is suspected,
// else the later in order) as long as nobody is left who reaches all. Two islands alone that are apart: nobody is left out, for that would
// help nobody.
DetourDecision decide_detour(const DetourInput& input);

}  // namespace atl::coordinator
