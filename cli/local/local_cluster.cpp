#include "cli/local/local_cluster.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cli/link/join_token_source.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/document.hpp"
#include "coordinator/service/init.hpp"
#include "transport/base/free_port.hpp"
#include "transport/base/private_folder.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr const char* kCoordinator = "coordinator";

std::string last_lines(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
    if (lines.size() > 3) {
      lines.erase(lines.begin());
    }
  }
  std::string text;
  for (const std::string& line : lines) {
    text += (text.empty() ? "" : " | ") + line;
  }
  return text;
}

}  // namespace

Result<LocalCluster> LocalCluster::start(LocalClusterSettings settings, Duration patience) {
  ATOLL_TRY(make_private_folders(settings.folder));
  const fs::path state = settings.folder / "coordinator";
  if (!is_there(state / "coordinator.toml")) {
    ATOLL_ASSIGN(const std::uint16_t port, free_port());
    const std::string address = "tcp://127.0.0.1:" + std::to_string(port);
    ATOLL_TRY(coordinator::init_coordinator(state, {"local", address, address, settings.network}));
  }
  LocalCluster cluster(std::move(settings));
  std::vector<std::string> arguments = {"coordinator", "--state", state.string()};
  if (!cluster.settings_.web.empty()) {
    arguments.insert(arguments.end(), {"--web", cluster.settings_.web});
  }
  ATOLL_TRY(cluster.launch(kCoordinator, std::move(arguments)));
  ATOLL_TRY(cluster.connect(patience));
  return cluster;
}

Result<TrainerHost> LocalCluster::start_process(const std::string& name, const std::vector<std::string>& arguments,
                                                const Variables& environment) const {
  TrainerCommand command;
  command.program = settings_.program;
  command.arguments = arguments;
  command.folder = settings_.folder;
  command.stop_grace += settings_.finish_within;  // what takes longer than `stop` allows is killed there
  if (settings_.faults && name != kCoordinator) {
    command.environment = settings_.faults->environment_of(name);
  }
  command.environment.insert(environment.begin(), environment.end());
  // Files that are named from here: the processes work in a folder of their own.
  for (const char* variable : {"ATOLL_STORE_TOKEN_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    if (const char* path = std::getenv(variable); path != nullptr && *path != '\0') {
      command.environment.emplace(variable, std::filesystem::absolute(path).string());
    }
  }
  command.on_line = [faults = settings_.faults,
                     log = std::make_shared<std::ofstream>(settings_.folder / (name + ".log"), std::ios::app)](const std::string& line) {
    if (!faults || !faults->take_line(line, now())) {
      *log << line << "\n" << std::flush;
    }
  };
  return TrainerHost::start(std::move(command), now());
}

Status LocalCluster::launch(const std::string& name, std::vector<std::string> arguments, const Variables& environment) {
  ATOLL_ASSIGN(TrainerHost host, start_process(name, arguments, environment));
  processes_.push_back({name, std::move(arguments), std::move(host)});
  tell_links(processes_.back());
  return {};
}

// Whose connections are whose.
void LocalCluster::tell_links(const Process& process) {
  const auto island = std::ranges::find(settings_.islands, process.name);
  if (links_ && island != settings_.islands.end()) {
    links_->runs_as(static_cast<std::size_t>(island - settings_.islands.begin()), process.host->pid());
  }
}

// What the faults owe this process now.
Status LocalCluster::carry_on(Process& process) {
  if (process.ended && settings_.faults->starts_now(process.name, now())) {
    ATOLL_ASSIGN(TrainerHost host, start_process(process.name, process.arguments));
    process.host.emplace(std::move(host));
    process.ended = false;
    tell_links(process);
  }
  if (!process.ended && settings_.faults->goes_on_now(process.name, now())) {
    ::kill(process.host->pid(), SIGCONT);
  }
  return {};
}

Status LocalCluster::connect(Duration patience) {
  const TimePoint deadline = now() + patience;
  CoordinatorOptions options;
  options.state = (settings_.folder / "coordinator").string();
  ATOLL_ASSIGN(CoordinatorAccess access, find_coordinator(options, [](const std::string&) { return std::nullopt; }));
  while (true) {
    ATOLL_TRY(pump());
    ATOLL_ASSIGN(CoordinatorClient client, CoordinatorClient::open(access));
    const Result<nlohmann::json> answer = client.ask("ping", nlohmann::json::object(), std::chrono::seconds(1));
    if (answer) {
      client_ = std::move(client);
      return {};
    }
    if (answer.error().code != Code::unavailable || now() >= deadline) {
      return with_context(answer.error(), "the coordinator did not start; its log " + (settings_.folder / "coordinator.log").string() +
                                              " ends: " + last_lines(settings_.folder / "coordinator.log"));
    }
    pause_between_questions(kTick);
  }
}

Status LocalCluster::start_agents() {
  if (settings_.link) {
    ATOLL_ASSIGN(links_, LocalLinks::open(*settings_.link));
  }
  for (const std::string& name : settings_.islands) {
    const fs::path state = settings_.folder / name;
    ATOLL_TRY(make_private_folders(state));
    std::vector<std::string> arguments = {"agent", "--state", state.string(), "--name", name};
    Variables environment;
    if (!is_there(state / "coordinator.json")) {
      ATOLL_ASSIGN(const nlohmann::json token,
                   client_->ask("token_create", {{"role", "island"}, {"name", name}, {"expires_ms", 3'600'000}}, kStartPatience));
      environment[kJoinTokenVariable] = text_at(token, "token");
    }
    arguments.insert(arguments.end(), settings_.agent_arguments.begin(), settings_.agent_arguments.end());
    if (links_) {
      ATOLL_ASSIGN(const std::vector<std::string> addresses, links_->add_island());
      arguments.insert(arguments.end(), addresses.begin(), addresses.end());
    }
    ATOLL_TRY(launch(name, std::move(arguments), environment));
  }
  return {};
}

Status LocalCluster::pump() {
  for (Process& process : processes_) {
    if (settings_.faults) {
      ATOLL_TRY(carry_on(process));
    }
    if (process.ended) {
      continue;
    }
    if (const std::optional<TrainerExit> exit = process.host->pump(now())) {
      process.ended = true;
      if (settings_.faults && settings_.faults->killed(process.name)) {
        continue;
      }
      return Error{Code::internal,
                   "the process of " + process.name + " " + exit->why + "; see " + (settings_.folder / (process.name + ".log")).string()};
    }
  }
  return {};
}

void LocalCluster::stop_some(bool agents, Duration patience, const std::function<bool(Duration waited)>& goes_on) {
  const TimePoint began = now();
  TimePoint deadline = began + patience;
  const auto ours = [&](const Process& process) { return !process.ended && (process.name != kCoordinator) == agents; };
  for (Process& process : processes_) {
    if (ours(process)) {
      if (settings_.faults && settings_.faults->paused(process.name)) {
        ::kill(process.host->pid(), SIGCONT);
      }
      process.host->stop(now());
    }
  }
  while (std::ranges::any_of(processes_, ours)) {
    for (Process& process : processes_) {
      if (ours(process)) {
        process.ended = process.host->pump(now()).has_value();
        if (!process.ended && now() >= deadline) {
          process.host->kill("did not end in time");
        }
      }
    }
    if (goes_on && !goes_on(now() - began)) {
      deadline = now();
    }
    pause_between_questions(kTick);
  }
}

void LocalCluster::stop(Duration patience, Duration finish_within, const std::function<bool(Duration waited)>& goes_on) {
  stop_some(true, patience + finish_within, goes_on);
  stop_some(false, patience);
}

}  // namespace atl
