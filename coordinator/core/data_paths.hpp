// Between which islands data pass, and what follows where they do not: who tries which paths, who is left out, and what waits.
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/paths.hpp"
#include "coordinator/core/services.hpp"
#include "coordinator/core/steadiness.hpp"

namespace atl::coordinator {

class DataPaths : protected Services {
 public:
  explicit DataPaths(Core::State& core) : Services(core) {}

  [[nodiscard]] const Paths& paths() const { return paths_; }
  [[nodiscard]] const Steadiness& steadiness() const { return steadiness_; }
  // It is lost, or was started anew: what was known of its paths is not so any more.
  void forgive(const IslandId& island) { paths_.forgive(island, now()); }
  // It is connected again.
  void back(const IslandId& island, bool new_boot) { steadiness_.back(island, new_boot, now()); }
  // What an island has tried.
  void hear(const IslandId& island, const PathReport& message);
  // By which ways it is connected to the others.
  void hear(const IslandId& island, const Ways& message);
  // In an exchange nothing came to the reader; it came after all.
  void note_broken(const IslandId& reader, const IslandId& from, const std::string& why);
  void note_whole(const IslandId& reader, const IslandId& from);
  // An island was not heard for long; it is heard again, after the time before.
  void note_lost(const IslandId& island);
  void note_heard(const IslandId& island, TimePoint before);
  // What changed with time: paths that pass again, or have been steady for long enough. At each look at all runs.
  void settle();
  [[nodiscard]] std::vector<UnsteadyView> unsteady_views(const Run& run) const;
  // The pairs of a run's islands whose data do not go directly.
  [[nodiscard]] std::vector<IndirectView> indirect_views(const Run& run) const;
  // Why data between the two take no better way; empty: they go directly.
  [[nodiscard]] std::string why_indirect(const IslandId& a, const IslandId& b) const;
  // How a round goes around the paths that do not pass, and who has to be left out.
  [[nodiscard]] DetourDecision detour_among(const Run& run, const std::vector<IslandId>& participants) const;
  // The couples of these whose pairs are better drawn otherwise, at most kMaxPlaceCouples. An island whose own link comes and goes is no
  // better off with anybody.
  [[nodiscard]] PlaceCouples to_avoid(const std::vector<IslandId>& members) const;
  // An island that came and went is let in later.
  bool waits_for_steadiness(Run& run, Membership& membership);
  [[nodiscard]] std::string why_apart(const IslandId& island, const std::vector<IslandId>& others) const;
  // It could take part in exchanges with the members.
  [[nodiscard]] bool reaches(const IslandId& island, const Run& run);
  // Members that no way joins: what the run waits for.
  [[nodiscard]] std::optional<Wait> wait_for(const Run& run);
  [[nodiscard]] std::string text_of_apart(const IslandId& a, const IslandId& b) const;
  // Who is there to be tried.
  void name_neighbours(const IslandId& to);
  void name_neighbours();  // to everybody
  // As Core::measure_paths.
  Result<std::uint32_t> measure(Duration each);

 private:
  void note_way(const IslandId& island, const IslandId& peer, const Way& way);
  void note_address(const IslandId& island, const IslandId& peer, const std::string& address);
  // What can be done that data pass between two islands, for people.
  [[nodiscard]] std::string remedy_for(const IslandId& a, const IslandId& b) const;
  void note_available(const IslandId& reader, const IslandId& from, const Availability& available);
  void tell_unsteady(const IslandId& island, const std::string& text);
  [[nodiscard]] RunId run_that_knows(const IslandId& island) const;
  [[nodiscard]] std::string name_of_path(const UnsteadyPath& path) const;
  [[nodiscard]] std::string text_of_unsteady(const UnsteadyPath& path) const;
  [[nodiscard]] Availability worst_to(const IslandId& island, const std::vector<IslandId>& others) const;
  [[nodiscard]] std::string rhythm_of(const IslandId& island, const std::vector<IslandId>& others) const;
  void touch_runs_of(const IslandId& a, const IslandId& b);
  // In which both are members; none: nullptr.
  [[nodiscard]] const Run* common_run(const IslandId& a, const IslandId& b) const;
  [[nodiscard]] DetourInput detour_input(const std::vector<IslandId>& members, bool at_once = false) const;
  // Islands that try the paths between them before they share a run: all that are connected; nobody where those are too many.
  [[nodiscard]] std::vector<IslandId> neighbours() const;

  Paths paths_;
  Steadiness steadiness_;
  std::uint32_t measurements_ = 0;  // asked for in this life of the coordinator
};

}  // namespace atl::coordinator
