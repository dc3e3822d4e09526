#include "agent/host/trainer_programs.hpp"

#include <unistd.h>

#include <sstream>
#include <system_error>
#include <utility>

#include "agent/host/command_words.hpp"
#include "transport/base/name.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";
constexpr std::string_view kAttach = "attach";

Error refuse(const char* option, const std::string& why) { return {Code::invalid_argument, std::string(option) + " " + why}; }

// "NAME=REST", where NAME is a name and REST is not empty.
Result<std::pair<std::string, std::string>> named(const char* option, const std::string& text, const char* form) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size() || !is_name(std::string_view(text).substr(0, equals))) {
    return refuse(option, "'" + text + "' is not " + form + "; a name has " + std::string(kNameRule));
  }
  return std::pair(text.substr(0, equals), text.substr(equals + 1));
}

// The program of a trainer, named before with --trainer.
Result<TrainerProgram*> program_of(TrainerPrograms& programs, const char* option, const std::string& name) {
  const auto found = programs.find(name);
  if (found == programs.end() || found->second.attaches()) {
    return refuse(option, name + "=…: no --trainer " + name + "=COMMAND is given");
  }
  return &found->second;
}

bool can_run(const fs::path& path) {
  std::error_code failure;
  return fs::is_regular_file(path, failure) && ::access(path.c_str(), X_OK) == 0;
}

Result<std::string> find_program(const std::string& name, const std::string& word, const fs::path& folder, const std::string& search_path) {
  if (word.find('/') != std::string::npos) {
    const fs::path path = fs::absolute(folder / word).lexically_normal();
    return can_run(path) ? Result<std::string>(path.string())
                         : Result<std::string>(Error{Code::not_found, "--trainer " + name + ": there is no program " + path.string()});
  }
  std::istringstream places(search_path.empty() ? kUsualPath : search_path);
  for (std::string place; std::getline(places, place, ':');) {
    if (const fs::path path = fs::path(place) / word; !place.empty() && can_run(path)) {
      return fs::absolute(path).string();
    }
  }
  return Error{Code::not_found, "--trainer " + name + ": there is no program '" + word + "' in $PATH"};
}

}  // namespace

Result<TrainerPrograms> trainer_programs(const TrainerOptions& options, const std::string& search_path) {
  TrainerPrograms programs;
  for (const std::string& text : options.commands) {
    ATOLL_ASSIGN(const auto given, named("--trainer", text, "NAME=COMMAND, for example gpt='python3 /srv/gpt/train.py'"));
    TrainerProgram program;
    if (given.second != kAttach) {
      Result<std::vector<std::string>> words = split_command(given.second);
      if (!words) {
        return with_context(words.error(), "--trainer " + given.first);
      }
      program.command = *std::move(words);
    }
    if (!programs.emplace(given.first, std::move(program)).second) {
      return refuse("--trainer", given.first + " is given twice");
    }
  }
  for (const std::string& text : options.environment) {
    ATOLL_ASSIGN(const auto given, named("--trainer-env", text, "NAME=KEY=VALUE"));
    const std::size_t equals = given.second.find('=');
    if (equals == std::string::npos || equals == 0) {
      return refuse("--trainer-env", "'" + text + "' is not NAME=KEY=VALUE");
    }
    ATOLL_ASSIGN(TrainerProgram * program, program_of(programs, "--trainer-env", given.first));
    program->environment[given.second.substr(0, equals)] = given.second.substr(equals + 1);
  }
  for (const std::string& text : options.folders) {
    ATOLL_ASSIGN(const auto given, named("--trainer-folder", text, "NAME=DIR"));
    ATOLL_ASSIGN(TrainerProgram * program, program_of(programs, "--trainer-folder", given.first));
    std::error_code failure;
    program->folder = fs::absolute(given.second, failure);
    if (!fs::is_directory(program->folder, failure)) {
      return Error{Code::not_found, "--trainer-folder " + given.first + ": there is no folder " + program->folder.string()};
    }
  }
  for (auto& [name, program] : programs) {
    if (!program.attaches()) {
      const std::string word = program.command.front();
      ATOLL_ASSIGN(program.command.front(), find_program(name, word, program.folder, search_path));
    }
  }
  return programs;
}

}  // namespace atl::agent
