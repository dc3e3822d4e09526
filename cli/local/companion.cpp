#include "cli/local/companion.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "agent/host/trainer_host.hpp"
#include "cli/line/exit_code.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"

namespace atl {
namespace {

constexpr Duration kPumpEvery = std::chrono::milliseconds(20);
constexpr Duration kLongestLeave = std::chrono::minutes(15);  // of an agent whose trainer finishes what stands behind its loop

// Why a command ended, where this line says it, as text or as JSON; "" elsewhere.
std::string error_in(const std::string& line) {
  constexpr std::string_view kOwnWords = "atoll: ";
  if (line.starts_with(kOwnWords)) {
    return line.substr(kOwnWords.size());
  }
  const nlohmann::json said = nlohmann::json::parse(line, nullptr, false);
  return said.is_object() ? text_at(object_at(said, "error"), "why") : "";
}

// The code that an exit status stands for.
Code code_of(int status) {
  for (const Code code : {Code::invalid_argument, Code::not_found, Code::conflict, Code::unavailable, Code::timeout, Code::unauthorized,
                          Code::corrupt, Code::io, Code::cancelled}) {
    if (static_cast<int>(exit_for(code)) == status) {
      return code;
    }
  }
  return Code::internal;
}

}  // namespace

struct Companion::Said {
  std::string last_words;
};

Result<Companion> Companion::start(const std::string& program, const std::vector<std::string>& arguments, const Variables& variables,
                                   std::function<void(const std::string& line)> on_line) {
  auto said = std::make_shared<Said>();
  TrainerCommand command;
  std::error_code failure;
  command.program = program;
  command.arguments = arguments;
  command.environment = variables;
  command.folder = std::filesystem::current_path(failure);
  command.stop_grace = kLongestLeave;
  command.on_line = [said, on_line = std::move(on_line)](const std::string& line) {
    const std::string words = error_in(line);
    if (words.empty()) {
      on_line(line);
    } else {
      said->last_words = words;
    }
  };
  ATOLL_ASSIGN(TrainerHost host, TrainerHost::start(std::move(command), now()));
  return Companion(arguments.front(), std::make_unique<TrainerHost>(std::move(host)), std::move(said));
}

Companion::Companion(std::string name, std::unique_ptr<TrainerHost> host, std::shared_ptr<Said> said)
    : name_(std::move(name)), host_(std::move(host)), said_(std::move(said)) {}
Companion::Companion(Companion&&) noexcept = default;
Companion::~Companion() = default;

Status Companion::pump() {
  const std::optional<TrainerExit> exit = ended_ ? std::nullopt : host_->pump(now());
  if (!exit) {
    return {};
  }
  ended_ = true;
  if (exit->signal == 0 && exit->status == 0) {
    return {};
  }
  const bool has_words = exit->signal == 0 && !said_->last_words.empty();
  return Error{exit->signal == 0 ? code_of(exit->status) : Code::internal,
               has_words ? "the " + name_ + " ended: " + said_->last_words : "the process of the " + name_ + " " + exit->why};
}

void Companion::stop(Duration patience, const std::function<bool()>& goes_on) {
  if (!ended_) {
    host_->stop(now());
  }
  for (const TimePoint deadline = now() + patience; !ended_;) {
    static_cast<void>(pump());  // it was asked to end, so how it does is no news
    if (!ended_ && (now() >= deadline || !goes_on())) {
      host_->kill("did not end in time");
    }
    if (!ended_) {
      pause_between_questions(kPumpEvery);
    }
  }
}

}  // namespace atl
