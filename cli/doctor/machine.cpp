#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>

#include "agent/host/trainer_facts.hpp"
#include "agent/island_link/arena.hpp"
#include "agent/service/data_access.hpp"
#include "cli/doctor/doctor.hpp"
#include "cli/line/command_places.hpp"
#include "cli/settings/settings_file.hpp"
#include "cli/settings/trainer_module.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/descriptor_limit.hpp"
#include "transport/zmq/tcp_tuning.hpp"
#include "transport/zmq/zmq_bulk_link.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFewDescriptors = 4096;
constexpr std::uint64_t kSmallBuffer = 2ULL << 20;  // 20 MB/s over 100 ms
constexpr std::uintmax_t kLittleSpace = std::uintmax_t{1} << 30;
constexpr const char* kSharedMemory = "/dev/shm";
constexpr const char* kArenaPrefix = "atoll-i-";  // of the arenas that agents make (agent/service)

// The built-in trainer's file, if there is one.
std::optional<fs::path> built_in_trainer(const std::vector<fs::path>& places) {
  std::error_code failure;
  const auto found = std::ranges::find_if(places, [&](const fs::path& place) { return fs::exists(place, failure); });
  return found == places.end() ? std::nullopt : std::optional<fs::path>(*found);
}

Finding look_at_module(const Environment& environment, const TrainerFacts& trainer) {
  const std::vector<fs::path> places = trainer_module_places(environment);
  return judge_trainer(built_in_trainer(places).value_or("").string(), places.front().string(), trainer);
}

// What the kernel knows of NVIDIA's devices, and whether the built-in trainer can use them.
Finding look_at_device(const TrainerFacts& trainer) {
  std::ifstream version("/proc/driver/nvidia/version");
  std::string line;
  if (!version || !std::getline(version, line)) {
    return {"device", Health::good, "there is no CUDA device, so the built-in trainer uses the processor"};
  }
  const std::vector<std::string> gpus = gpus_of();
  const std::size_t devices = gpus.size();
  const std::string idle = idle_gpus_text(trainer, gpus);
  const std::string driver = line.substr(line.find(':') == std::string::npos ? 0 : line.find(':') + 1);
  const bool usable = ::access("/dev/nvidiactl", R_OK | W_OK) == 0;
  return {"device", usable && devices > 0 && idle.empty() ? Health::good : Health::doubtful,
          std::to_string(devices) + " CUDA device" + (devices == 1 ? "" : "s") + ", driver" + driver +
              (usable ? "" : "; this user may not open /dev/nvidiactl") + (idle.empty() ? "" : "; " + idle)};
}

// What agents that were killed left behind goes.
Finding look_at_shared_memory(const std::optional<RunSpec>& run) {
  if (::access(kSharedMemory, W_OK) != 0) {
    return {"memory", Health::doubtful,
            std::string("nothing can be made in ") + kSharedMemory + " (" + std::strerror(errno) +
                "), so models being trained lie on the disk of the state directory: mount -t tmpfs tmpfs " + kSharedMemory};
  }
  const std::size_t removed = island_link::remove_abandoned_arenas(kSharedMemory, kArenaPrefix).size();
  const std::uintmax_t free = free_bytes(kSharedMemory);
  const std::string cleared = removed == 0 ? "" : "; " + std::to_string(removed) + " left behind by killed agents were removed";
  const std::string place = human_bytes(free) + " are free in " + kSharedMemory;
  const double arena = run ? model_parameter_bytes(*run) : 0;
  if (arena > static_cast<double>(free)) {
    return {"memory", Health::bad,
            place + ", and the run's model takes " + human_bytes(static_cast<std::uint64_t>(arena)) + " there: mount -o remount,size=… " +
                kSharedMemory + ", or of a container --shm-size" + cleared};
  }
  const std::string more = std::string(": for a larger model mount -o remount,size=… ") + kSharedMemory + ", or of a container --shm-size";
  return {"memory", free < kLittleSpace ? Health::doubtful : Health::good,
          place +
              (arena > 0 ? ", of which the run's model takes " + human_bytes(static_cast<std::uint64_t>(arena))
                         : ", where models being trained lie, 4 bytes a parameter") +
              (free < kLittleSpace ? more : "") + cleared};
}

Finding look_at_descriptors() {
  const std::size_t limit = raise_descriptor_limit();
  const std::string text = "agents and coordinators may have " + std::to_string(limit) + " files and connections open";
  return limit < kFewDescriptors ? Finding{"descriptors", Health::doubtful,
                                           text + ", some eight for each island; raise it (ulimit -Hn, LimitNOFILE of systemd)"}
                                 : Finding{"descriptors", Health::good, text};
}

void look_at_data(const AgentSettings& settings, std::vector<Finding>& findings) {
  for (const std::string& mapping : settings.data) {
    DataPermissions permissions;
    const std::string name = mapping.substr(0, mapping.find('='));
    DataSpec wanted;
    wanted.set = name;
    const Status mapped = add_data_mapping(permissions, mapping);
    const auto files = mapped ? resolve_data(wanted, permissions, {}) : Result<std::vector<fs::path>>(mapped.error());
    if (!files) {
      findings.push_back({"data", Health::bad, "data set " + name + ": " + files.error().why});
      continue;
    }
    const auto closed = std::ranges::find_if(*files, [](const fs::path& file) { return ::access(file.c_str(), R_OK) != 0; });
    findings.push_back(closed != files->end()
                           ? Finding{"data", Health::bad, "data set " + name + ": this user may not read " + closed->string()}
                           : Finding{"data", Health::good, "data set " + name + " can be read: " + listing_of(*files)});
  }
  for (const std::string& folder : settings.allow_data) {
    if (::access(folder.c_str(), R_OK | X_OK) != 0) {
      findings.push_back({"data", Health::bad, "the folder " + folder + " that runs may read is not there, or this user may not read it"});
    }
  }
}

}  // namespace

// Far islands exchange as fast as the kernel lets one connection carry what the path holds.
Finding judge_connections(const TcpFacts& facts) {
  const std::string usual = "the kernel controls congestion with " + facts.usual;
  const std::string control = facts.usual.starts_with("bbr") ? usual
                              : facts.far != facts.usual
                                  ? usual + ", and with " + facts.far + " where islands are far apart"
                                  : usual +
                                        ", which slows down with each lost packet; BBR does not: modprobe tcp_bbr, and "
                                        "\"bbr\" in net.ipv4.tcp_allowed_congestion_control";
  if (facts.send_bytes == 0 || facts.receive_bytes == 0) {
    return {"connections", Health::good, control};
  }
  const std::uint64_t held = std::min(facts.send_bytes, facts.receive_bytes / 2);  // of a receiver's buffer half is the window
  const std::string buffers = "; the buffers of one let it have " + human_bytes(held) + " on the way, so over 100 ms up to " +
                              human_bytes(held * 10) + "/s, and an island uses up to " + std::to_string(kMostStreams);
  return held < kSmallBuffer
             ? Finding{"connections", Health::doubtful, control + buffers + "; raise net.ipv4.tcp_wmem and tcp_rmem for a long fat line"}
             : Finding{"connections", Health::good, control + buffers};
}

Result<AgentSettings> read_agent_settings(const fs::path& state, const std::string& config) {
  AgentSettings settings;
  const fs::path path = config.empty() ? state / "agent.toml" : fs::path(config);
  std::error_code failure;
  if (config.empty() && !fs::exists(path, failure)) {
    return settings;
  }
  const std::vector<CommandOption> ours = {{"--data", "", &settings.data},
                                           {"--allow-data", "", &settings.allow_data},
                                           {"--bind", "", &settings.bind},
                                           {"--proxy", "", &settings.proxy}};
  std::vector<std::string> others;  // the agent's other keys, which say nothing here
  const Command agent = agent_command();
  for (const CommandOption& option : agent.options) {
    std::string key = names_of(option).back();
    key.erase(0, key.find_first_not_of('-'));
    std::ranges::replace(key, '-', '_');
    others.push_back(key);
  }
  const std::vector<std::string_view> ignored(others.begin(), others.end());
  ATOLL_TRY(take_settings(path, ours, {}, {}, ignored));
  return settings;
}

Finding judge_trainer(const std::string& module, const std::string& looked_for, const TrainerFacts& trainer) {
  if (module.empty()) {
    return {"trainer", Health::doubtful,
            "there is no built-in trainer (" + looked_for +
                "); only runs without a [trainer] need it: `python -m atoll.build_trainer` makes it for an environment's PyTorch"};
  }
  const std::string is = "the built-in trainer is " + module;
  if (trainer.text.empty()) {
    return {"trainer", Health::bad, is + ", and it says nothing: `atoll trainer --facts` tells why"};
  }
  if (has_slow_blas(trainer)) {
    return {"trainer", Health::bad,
            is + ": " + trainer.text + ", the reference BLAS, which multiplies matrices many times slower than OpenBLAS (apt-get install " +
                "libopenblas0-pthread)"};
  }
  return {"trainer", Health::good, is + ": " + trainer.text};
}

std::vector<Finding> look_at_machine(const Invocation& invocation, const fs::path& state, const std::string& config,
                                     const std::optional<RunSpec>& run) {
  const TrainerFacts trainer = ask_trainer("/proc/self/exe");
  std::vector<Finding> findings = {look_at_module(invocation.environment, trainer), look_at_device(trainer), look_at_shared_memory(run),
                                   look_at_descriptors(), judge_connections(tcp_facts())};
  std::ranges::move(look_at_state_directory(state), std::back_inserter(findings));
  if (const Result<AgentSettings> settings = read_agent_settings(state, config)) {
    look_at_data(*settings, findings);
  } else {
    findings.push_back({"settings", Health::bad, settings.error().why});
  }
  return findings;
}

}  // namespace atl
