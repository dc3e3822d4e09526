// `atoll doctor`: whether this machine is fit to be an island, a coordinator or an operator's, and what to do where it is not.
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "agent/host/blas_kernels.hpp"
#include "agent/island_link/arena.hpp"
#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/state_directory.hpp"
#include "cli/trainer_module.hpp"
#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/descriptor_limit.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFewDescriptors = 4096;
constexpr std::uintmax_t kLittleSpace = std::uintmax_t{1} << 30;
constexpr const char* kSharedMemory = "/dev/shm";
constexpr const char* kArenaPrefix = "atoll-i-";  // of the arenas that agents make (agent/service)

enum class Health : std::uint8_t { good, doubtful, bad };
constexpr std::array<std::string_view, 3> kHealth = {"good", "doubtful", "bad"};

struct Finding {
  std::string what;
  Health health = Health::good;
  std::string text;
};

Finding look_at_kernels(const Environment& environment) {
  const Kernels kernels = choose_kernels(environment(kCoreTypeVariable));
  const bool found = !probe_blas(kernels.core_type).file.empty();
  return {"arithmetic", found ? Health::good : Health::doubtful,
          found ? "trainers compute with " + kernels.text
                : "no BLAS library was found: the built-in trainer cannot run here (apt-get install "
                  "libopenblas0-pthread libtorch-dev)"};
}

Finding look_at_module(const Environment& environment) {
  const std::vector<fs::path> places = trainer_module_places(environment);
  std::error_code failure;
  const auto found = std::ranges::find_if(places, [&](const fs::path& place) { return fs::exists(place, failure); });
  if (found != places.end()) {
    return {"trainer", Health::good, "the built-in trainer is " + found->string()};
  }
  return {"trainer", Health::doubtful,
          "there is no built-in trainer (" + places.front().string() + "); a coordinator and an operator need none"};
}

std::uintmax_t free_bytes(const fs::path& folder) {
  struct statvfs facts {};
  return ::statvfs(folder.c_str(), &facts) == 0 ? std::uintmax_t{facts.f_bavail} * facts.f_frsize : 0;
}

// What agents that were killed left behind goes.
Finding look_at_shared_memory() {
  const std::size_t removed = island_link::remove_abandoned_arenas(kSharedMemory, kArenaPrefix).size();
  const std::uintmax_t free = free_bytes(kSharedMemory);
  const std::string cleared = removed == 0 ? "" : "; " + std::to_string(removed) + " left behind by killed agents were removed";
  return {"memory", free < kLittleSpace ? Health::doubtful : Health::good,
          human_bytes(free) + " are free in " + kSharedMemory + ", where models being trained lie, 4 bytes a parameter" + cleared};
}

Finding look_at_descriptors() {
  const std::size_t limit = raise_descriptor_limit();
  const std::string text = "agents and coordinators may have " + std::to_string(limit) + " files and connections open";
  return limit < kFewDescriptors ? Finding{"descriptors", Health::doubtful,
                                           text + ", some eight for each island; raise it (ulimit -Hn, LimitNOFILE of systemd)"}
                                 : Finding{"descriptors", Health::good, text};
}

Finding look_at_state(const fs::path& state) {
  struct stat facts {};
  if (::stat(state.c_str(), &facts) != 0) {
    return {"state", Health::good, state.string() + " is not there yet: this machine has joined nothing"};
  }
  if ((facts.st_mode & 0077) != 0) {
    return {"state", Health::bad, state.string() + " holds keys and can be read by others: chmod 700 " + state.string()};
  }
  const std::uintmax_t free = free_bytes(state);
  return {"state", free < kLittleSpace ? Health::doubtful : Health::good,
          state.string() + " is its owner's alone, " + human_bytes(free) + " are free there for checkpoints"};
}

std::optional<Finding> look_at_coordinator(const Invocation& invocation) {
  const Result<CoordinatorAccess> access = find_coordinator(invocation.coordinator, invocation.environment);
  if (!access) {
    return access.error().code == Code::unavailable || access.error().code == Code::unauthorized
               ? std::nullopt  // this machine is no operator's
               : std::optional(Finding{"coordinator", Health::bad, access.error().why});
  }
  Result<CoordinatorClient> client = CoordinatorClient::open(*access);
  const Result<nlohmann::json> document = client ? client->ask("runs", nlohmann::json::object()) : Result<nlohmann::json>(client.error());
  return document ? Finding{"coordinator", Health::good, "the coordinator at " + access->address + " answers this operator"}
                  : Finding{"coordinator", Health::bad, document.error().why};
}

Exit examine(const Invocation& invocation) {
  const Result<fs::path> state = state_directory(invocation.coordinator.state, invocation.environment);
  if (!state) {
    return report(invocation, state.error());
  }
  std::vector<Finding> findings = {look_at_kernels(invocation.environment), look_at_module(invocation.environment), look_at_shared_memory(),
                                   look_at_descriptors(), look_at_state(*state)};
  if (std::optional<Finding> coordinator = look_at_coordinator(invocation)) {
    findings.push_back(*std::move(coordinator));
  }
  const bool bad = std::ranges::any_of(findings, [](const Finding& finding) { return finding.health == Health::bad; });
  if (invocation.json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& finding : findings) {
      list.push_back({{"what", finding.what}, {"health", kHealth[static_cast<std::size_t>(finding.health)]}, {"text", finding.text}});
    }
    invocation.streams.out << json_line({{"schema", 1}, {"fit", !bad}, {"findings", std::move(list)}}) << "\n";
  } else {
    for (const Finding& finding : findings) {
      std::string health(kHealth[static_cast<std::size_t>(finding.health)]);
      health.resize(10, ' ');
      invocation.streams.out << health << printable(finding.text, 1000) << "\n";
    }
    invocation.streams.out << std::flush;
  }
  return bad ? Exit::run_failed : Exit::ok;
}

}  // namespace

Command doctor_command() {
  Command command;
  command.name = "doctor";
  command.summary = "looks whether this machine is fit: arithmetic, trainer, memory, descriptors, state directory, coordinator";
  command.details = "Clears shared memory that killed agents left behind. Exits with 1 if something must be mended; it says what to do.";
  command.asks_coordinator = true;
  command.run = [](Invocation& invocation) { return examine(invocation); };
  return command;
}

}  // namespace atl
