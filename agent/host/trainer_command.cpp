#include "agent/host/trainer_command.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>

#include "agent/host/attach_point.hpp"
#include "agent/host/inherited_environment.hpp"
#include "agent/host/trainer_session.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLibraryVariable = "ATOLL_TRAINER_LIBRARY";

// Lines of a trainer that are logged: one that prints without end must not fill the disk.
class LineLimit {
 public:
  // How many were left out, once, when a new period begins.
  std::uint64_t left_out(TimePoint at) {
    if (at < until_) {
      return 0;
    }
    until_ = at + std::chrono::seconds(10);
    const std::uint64_t over = lines_ > kLines ? lines_ - kLines : 0;
    lines_ = 0;
    return over;
  }
  bool admits() { return ++lines_ <= kLines; }

 private:
  static constexpr std::uint64_t kLines = 2000;  // in ten seconds
  TimePoint until_{};
  std::uint64_t lines_ = 0;
};

std::function<void(const std::string&)> logged(const std::string& prefix) {
  return [prefix, limit = std::make_shared<LineLimit>()](const std::string& line) {
    if (const std::uint64_t left_out = limit->left_out(now())) {
      log_warning(prefix + std::to_string(left_out) + " lines are left out here: it printed too many");
    }
    if (limit->admits()) {
      log_info(prefix + line);
    }
  };
}

// The owner's program below a keeper, which ends all of its processes with the first.
void run_program(const TrainerProgram& program, const SessionSettings& settings, TrainerCommand& command) {
  command.kept = true;
  command.arguments = {"trainer", "--"};
  command.arguments.insert(command.arguments.end(), program.command.begin(), program.command.end());
  std::error_code failure;
  command.folder = program.folder.empty() ? fs::current_path(failure) : program.folder;
  // Where it is beside the program, or below the same prefix, Python would not find it.
  const fs::path folder = fs::path(settings.program).parent_path();
  for (const fs::path& library : {folder / "libatoll_trainer.so", folder.parent_path() / "lib" / "libatoll_trainer.so.1"}) {
    if (std::getenv(kLibraryVariable) == nullptr && !command.environment.contains(kLibraryVariable) && fs::exists(library, failure)) {
      command.environment[kLibraryVariable] = library.string();
    }
  }
  for (const auto& [key, value] : program.environment) {
    command.environment[is_of_the_linker(key) ? std::string(kForCommandOnly) + key : key] = value;
  }
}

// A trainer that the agent starts alone does not wait for others because the agent is one of several processes.
void withhold(TrainerCommand& command, const TrainerProgram* program, const std::string& who) {
  const bool launcher = program != nullptr && !program->command.empty() && is_launcher(program->command.front());
  command.withheld = [launcher](std::string_view name, std::string_view value) {
    return is_secret_variable(name, value) || (!launcher && is_group_variable(name));
  };
  std::string names;
  for (const std::string& name : launcher ? std::vector<std::string>() : group_variables_here()) {
    names += command.environment.contains(name) ? "" : (names.empty() ? "" : ", ") + name;
  }
  if (!names.empty()) {
    log_info(who + "the trainer is started as one process, without " + names + " of the agent's environment" +
             (program == nullptr ? "" : "; give what it needs by --trainer-env NAME=KEY=VALUE"));
  }
}

}  // namespace

Result<TrainerCommand> trainer_command(const SessionSettings& settings, const RunId& run, const RunSpec& spec, const std::string& link) {
  TrainerCommand command;
  command.program = settings.program;
  command.arguments = {"trainer"};
  command.folder = settings.link_folder;
  const std::string count = std::to_string(std::max(1U, spec.training.threads));
  // Trainers that share cores starve each other when their threads spin while they wait.
  command.environment = {
      {"OMP_NUM_THREADS", count}, {"OPENBLAS_NUM_THREADS", count}, {"MKL_NUM_THREADS", count}, {"OMP_WAIT_POLICY", "passive"}};
  const TrainerProgram* program = nullptr;
  if (has_own_trainer(spec)) {
    const std::string& name = spec.trainer.name;
    const auto found = settings.trainers.find(name);
    if (found == settings.trainers.end()) {
      return Error{Code::unauthorized, "the run asks for the trainer '" + name +
                                           "', which this island's owner has not named; start its agent with --trainer " + name +
                                           "='COMMAND'"};
    }
    program = &found->second;
    if (program->attaches()) {
      const std::string socket = attach_socket(std::filesystem::path(settings.runs.text()).parent_path(), name).string();
      ATOLL_TRY(check_attach_socket(socket));
      command.arguments = {"trainer", "--attach", socket};
    } else {
      run_program(*program, settings, command);
    }
  }
  const std::string who = "run " + run.text + ", island " + settings.island + ": ";
  withhold(command, program, who);
  command.environment[island_link::kLinkVariable] = link;
  command.memory_limit_bytes = settings.memory_limit_bytes;
  command.hang_after = settings.hang_after;
  command.on_line = logged(who + "trainer: ");
  return command;
}

}  // namespace atl::agent
