// FaultScript: the faults of one `atoll local --faults`, from the file to the report: which have struck, what the cluster owes a struck
// island, and what followed.
//
// Agents tell of a strike by a line on stdout (agent/faults/rehearsal.hpp); a kill and a pause are ended here, by starting the agent again
// or letting it go on. Threads: one.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run_file/fault_file.hpp"
#include "transport/base/time.hpp"

namespace atl {

class FaultScript {
 public:
  explicit FaultScript(std::vector<ScriptedFault> faults);

  // What an agent of this island is started with: the faults that have not struck.
  [[nodiscard]] std::map<std::string, std::string> environment_of(const std::string& island) const;
  // A line that an agent printed; false if it is an ordinary one.
  bool take_line(std::string_view line, TimePoint now);
  // Whether its end was ordered: it was killed, and has not been started since.
  [[nodiscard]] bool killed(const std::string& island) const;
  // True once, when its time has come.
  bool starts_now(const std::string& island, TimePoint now);
  bool goes_on_now(const std::string& island, TimePoint now);
  // What is still to go on, at the end of everything.
  [[nodiscard]] bool paused(const std::string& island) const;

  // The report, a list: each fault, when it struck, and from the run's events what followed. events: the coordinator's documents, as a list
  // in order of time.
  [[nodiscard]] nlohmann::json report(const nlohmann::json& events, std::optional<double> started_unix_ms) const;

 private:
  struct Entry {
    ScriptedFault scripted;
    std::optional<agent::Strike> struck;
    std::optional<TimePoint> ends;  // of a kill or pause that lasts
  };
  [[nodiscard]] const Entry* lasting(const std::string& island, agent::FaultAction action) const;
  bool end(const std::string& island, agent::FaultAction action, TimePoint now);
  [[nodiscard]] std::int64_t next_strike_after(const Entry& entry) const;

  std::vector<Entry> entries_;
};

}  // namespace atl
