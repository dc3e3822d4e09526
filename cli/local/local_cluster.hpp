// LocalCluster: a coordinator and some agents as processes of this machine, on loopback, in a folder of their own.
//
//   FOLDER/coordinator/   the coordinator's state directory; FOLDER/coordinator.log
//   FOLDER/NAME/          each island's; FOLDER/NAME.log
// A folder that was used before is taken up again: the same coordinator, islands and runs. The processes die with this one.
// Threads: one, which must live as long as the cluster.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/host/trainer_host.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/local/fault_script.hpp"
#include "cli/local/links/local_links.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl {

// How long a coordinator that was just started may take to answer: a busy machine is no failure.
inline constexpr Duration kStartPatience = std::chrono::seconds(30);

struct LocalClusterSettings {
  std::string program;  // this executable
  std::filesystem::path folder;
  std::vector<std::string> islands;          // their names
  std::vector<std::string> agent_arguments;  // for each agent
  std::string network = "lan";               // a new coordinator's preset of times
  std::string web = {};                      // where the coordinator's page is served; empty: nowhere
  std::shared_ptr<FaultScript> faults;       // to rehearse; empty: none
  std::optional<LinkTerms> link = {};        // of the paths between islands; empty: loopback as it is
  Duration finish_within = {};               // for the trainers of a completed run to end (LocalCluster::stop)
};

class LocalCluster {
 public:
  // Makes what is missing in the folder and starts the coordinator. Errors: io, conflict; unavailable with the last lines of
  // its log if the coordinator does not come up within `patience`.
  static Result<LocalCluster> start(LocalClusterSettings settings, Duration patience = kStartPatience);
  // Starts the agents; those that are new here get a token.
  Status start_agents();

  [[nodiscard]] CoordinatorClient& client() { return *client_; }
  // Reads what the processes print into their logs, and ends the kills and pauses of the faults whose time has come. The error tells which
  // one ended that should not have, and why.
  Status pump();
  // Asks all to end, agents first, and waits; what is not gone within `patience` is killed. Agents may take `finish_within` longer where it
  // is given, for what stands behind the loops of a completed run's trainers; `goes_on` is asked meanwhile, and false ends that.
  void stop(Duration patience = std::chrono::seconds(20), Duration finish_within = {},
            const std::function<bool(Duration waited)>& goes_on = {});

 private:
  struct Process {
    std::string name;
    std::vector<std::string> arguments;
    std::optional<TrainerHost> host;  // always there; what only its first start is told is not kept
    bool ended = false;
  };
  explicit LocalCluster(LocalClusterSettings settings) : settings_(std::move(settings)) {}
  using Variables = std::map<std::string, std::string>;
  Status launch(const std::string& name, std::vector<std::string> arguments, const Variables& environment = {});
  Result<TrainerHost> start_process(const std::string& name, const std::vector<std::string>& arguments,
                                    const Variables& environment = {}) const;
  Status carry_on(Process& process);
  Status connect(Duration patience);
  void stop_some(bool agents, Duration patience, const std::function<bool(Duration waited)>& goes_on = {});

  void tell_links(const Process& process);

  LocalClusterSettings settings_;
  std::optional<LocalLinks> links_;
  std::vector<Process> processes_;  // the coordinator first
  std::optional<CoordinatorClient> client_;
};

}  // namespace atl
