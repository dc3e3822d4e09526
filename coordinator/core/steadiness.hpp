// Which paths and islands come and go faster than their loss is noticed, or are lost again and again.
//
// A path that is gone for three seconds of every six is never broken for long, and every round that needs it waits for its next return.
// Islands tell how a path came and went over the last minutes (Availability). After three absences that took more than a tenth of that time
// it counts as unsteady, and again as soon as its next absence follows within an hour. It counts as steady once it was there for a time
// that doubles with each time it became unsteady, up to a bound. An island that was lost three times within the same minutes is unsteady
// itself, as is one whose heartbeats stay away again and again for more than a tenth of them. One outage, however long, is none of this.
// Threads: owned by one core.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/availability.hpp"
#include "transport/base/ids.hpp"

namespace atl::coordinator {

// What is unsteady: the path of data from one island to another; `from` empty: the link of `to` itself.
struct UnsteadyPath {
  IslandId from;
  IslandId to;
  friend auto operator<=>(const UnsteadyPath&, const UnsteadyPath&) = default;
};

// Of the link of an island that counts as unsteady, by what is known of the worst path to it and how often it was lost: "comes and goes: 25
// times in the last 5m00s, there 51 % of that time". One that is trusted again only after a longer time than is looked back at has nothing
// to count at last.
std::string rhythm_text(const Availability& worst, std::size_t losses);

class Steadiness {
 public:
  // How the path came and went. True: from now on it counts as unsteady.
  bool report(const UnsteadyPath& path, const Availability& available, TimePoint now);
  // An island was silent for so long that it counts as lost. True: from now on its link counts as unsteady.
  bool lost(const IslandId& island, TimePoint now);
  // An island that is here said nothing since then, for much longer than it usually does. True: as above.
  bool quiet(const IslandId& island, TimePoint since, TimePoint now);
  // It is heard again; as another process what its link did is forgotten, but for how often.
  void back(const IslandId& island, bool new_process, TimePoint now);
  // What has been steady for long enough counts as steady from now on.
  std::vector<UnsteadyPath> settle(TimePoint now);

  // Both directions, and the links of both.
  [[nodiscard]] bool steady(const IslandId& a, const IslandId& b) const;
  [[nodiscard]] bool any() const;
  // The coordinator lost it, or did not hear it for a while, within the minutes that are looked back at. Of a path that comes and goes
  // between one that is suspected and one that is not, the first is the cause.
  [[nodiscard]] bool suspected(const IslandId& island) const;
  // Its own link comes and goes: the coordinator lost it, or more than half of the paths between it and the others, of whom there are
  // several, are unsteady. Of an island that is not suspected the paths to those that are do not count.
  [[nodiscard]] bool restless(const IslandId& island, const std::vector<IslandId>& others) const;
  // All that counts as unsteady, of these islands.
  [[nodiscard]] std::vector<UnsteadyPath> among(const std::vector<IslandId>& islands) const;
  // What is known of the worse direction between two islands.
  [[nodiscard]] Availability worst_of(const IslandId& a, const IslandId& b, TimePoint now) const;
  [[nodiscard]] Availability of(const UnsteadyPath& path, TimePoint now) const;
  // How often an island was lost within the minutes that are looked back at.
  [[nodiscard]] std::size_t losses(const IslandId& island, TimePoint now) const;
  // When something that is unsteady may count as steady again.
  [[nodiscard]] std::optional<TimePoint> next_change() const;
  // The same of all that concerns one island.
  [[nodiscard]] std::optional<TimePoint> until(const IslandId& island) const;

 private:
  struct Record {
    bool unsteady = false;
    bool away = false;       // an island: it is lost at the moment
    unsigned times = 0;      // that it became so
    TimePoint last_away;     // the newest that is known
    TimePoint until;         // unsteady: as things are
    TimePoint settled;       // when it last counted as steady again
    Availability available;  // as it was last told
    TimePoint told;
    std::deque<TimePoint> losses;  // of an island
    // Of an island: since when it is heard, and when it was quiet meanwhile.
    std::optional<TimePoint> heard_since;
    std::deque<std::pair<TimePoint, TimePoint>> quiet;
  };
  static Availability of_link(const Record& record, TimePoint now);
  static bool begin(Record& record, TimePoint now);
  [[nodiscard]] bool is_unsteady(const UnsteadyPath& path) const;

  std::map<UnsteadyPath, Record> records_;
};

}  // namespace atl::coordinator
