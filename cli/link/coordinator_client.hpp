// CoordinatorClient: one operator's connection to the coordinator, for commands: ask, and get the document.
//
// A command never hangs: what does not answer within its patience is `unavailable`, saying which address was tried and what
// to check.
// Threads: one.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/line/command.hpp"
#include "cli/settings/state_directory.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/control/message.hpp"

namespace atl {

class Interrupt;
class Interrupt;
class ZmqControlClient;

inline constexpr Duration kPatience = std::chrono::seconds(4);

class CoordinatorClient {
 public:
  // Finds the coordinator (cli/settings/state_directory.hpp) and starts dialling it. Errors: those of find_coordinator.
  static Result<CoordinatorClient> open(const Invocation& invocation);
  static Result<CoordinatorClient> open(CoordinatorAccess access);
  CoordinatorClient(CoordinatorClient&&) noexcept;
  CoordinatorClient& operator=(CoordinatorClient&&) noexcept;
  ~CoordinatorClient();

  // The verb's document. Errors: the coordinator's own; unauthorized if it does not admit our key; unavailable without an
  // answer in time; internal for an answer that is no document.
  Result<nlohmann::json> ask(std::string_view verb, const nlohmann::json& arguments, Duration patience = kPatience);
  // As `ask`, but bears a coordinator that is away: says so on stderr once, and asks again until it answers or until `deadline`, or until
  // the interrupt comes (cancelled).
  Result<nlohmann::json> ask_patiently(const Invocation& invocation, std::string_view verb, const nlohmann::json& arguments,
                                       TimePoint deadline, const Interrupt* interrupt = nullptr);
  // Enrols our key with a token's secret. Errors: the coordinator's refusal; unavailable.
  Result<Enrolled> enrol(const std::string& token_secret, const std::string& name);
  [[nodiscard]] const CoordinatorAccess& access() const { return access_; }

 private:
  CoordinatorClient(CoordinatorAccess access, std::unique_ptr<ZmqControlClient> link);

  CoordinatorAccess access_;
  std::unique_ptr<ZmqControlClient> link_;
  std::uint64_t next_id_;  // begins at random, so that a change asked again is not taken for another process's
};

// Prints a document: as it came with --json, else rendered.
Exit show(const Invocation& invocation, const Result<nlohmann::json>& document,
          std::string (*render)(const nlohmann::json& document, const Terminal& terminal));

// One JSON text on a line, whatever bytes are in it.
std::string json_line(const nlohmann::json& document);

// Lets time pass between two questions.
void pause_between_questions(Duration duration);

}  // namespace atl
