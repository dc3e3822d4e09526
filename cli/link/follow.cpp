#include "cli/link/follow.hpp"

#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

constexpr int kPageEvents = 500;
constexpr Duration kBetween = std::chrono::milliseconds(250);

void print_page(const Invocation& invocation, const nlohmann::json& document) {
  if (!invocation.json) {
    invocation.streams.out << render_events(document, invocation.terminal) << std::flush;
    return;
  }
  for (const nlohmann::json& event : list_at(document, "events")) {
    invocation.streams.out << json_line(event) << "\n";
  }
  invocation.streams.out << std::flush;
}

}  // namespace

Result<std::string> follow_events(const Invocation& invocation, CoordinatorClient& client, const FollowOptions& options) {
  nlohmann::json arguments = {{"run", options.run}, {"after", 0}, {"limit", kPageEvents}};
  if (!options.island.empty()) {
    arguments["island"] = options.island;
  }
  if (options.since_unix_ms) {
    arguments["since_unix_ms"] = *options.since_unix_ms;
  }
  if (options.tape) {
    arguments["level"] = "debug";
  }
  while (true) {
    ATOLL_ASSIGN(const nlohmann::json document,
                 options.until_end ? client.ask_patiently(invocation, "events", arguments, TimePoint::max(), options.interrupt)
                                   : client.ask("events", arguments));
    print_page(invocation, document);
    const bool more = list_at(document, "events").size() == kPageEvents;
    const bool ended = flag_at(document, "ended") && list_at(document, "events").empty();
    if (!invocation.streams.out || ended || (!options.until_end && !more)) {
      return text_at(document, "state");
    }
    if (options.interrupt != nullptr && options.interrupt->came()) {
      return Error{Code::cancelled, "interrupted"};
    }
    if (const auto next = number_at(document, "next")) {
      arguments["after"] = static_cast<std::uint64_t>(*next);
    }
    if (const std::string run = text_at(document, "run"); !run.empty()) {
      arguments["run"] = run;
    }
    if (!more && list_at(document, "events").empty()) {
      pause_between_questions(kBetween);
    }
  }
}

Exit exit_for_state(const std::string& state) {
  return state == "completed" ? Exit::ok : state == "cancelled" ? Exit::cancelled : Exit::run_failed;
}

}  // namespace atl
