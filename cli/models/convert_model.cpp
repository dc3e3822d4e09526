#include "cli/models/convert_model.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

#include "agent/host/trainer_programs.hpp"

namespace atl {

Status convert_model(const std::string& command, const std::string& search_path, const std::filesystem::path& from,
                     const std::filesystem::path& to) {
  const Result<agent::TrainerPrograms> programs =
      agent::trainer_programs({{"through=" + command}, {}, {"through=" + std::filesystem::current_path().string()}}, search_path);
  if (!programs || programs->at("through").attaches()) {
    return programs ? Error{Code::invalid_argument, "--through: 'attach' is no command"} : with_context(programs.error(), "--through");
  }
  std::vector<std::string> words = programs->at("through").command;
  words.push_back(from.string());
  words.push_back(std::filesystem::absolute(to).string());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (const int failure = ::posix_spawn(&child, arguments.front(), nullptr, nullptr, arguments.data(), environ); failure != 0) {
    return Error{Code::io, "--through " + words.front() + ": " + std::system_category().message(failure)};
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::error_code missing;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Error{Code::io,
                 "--through " + words.front() + " ended with " +
                     (WIFEXITED(status) ? "status " + std::to_string(WEXITSTATUS(status)) : "signal " + std::to_string(WTERMSIG(status)))};
  }
  if (!std::filesystem::exists(to, missing)) {
    return Error{Code::io, "--through " + words.front() + " ended well and wrote nothing to " + to.string()};
  }
  return {};
}

}  // namespace atl
