// `atoll diff`: where two runs parted.
#include <memory>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/recorded/run_tape.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

constexpr std::size_t kEventsAtOnce = 1000;

struct TapeOfRun {
  std::string id;
  std::string state;
  RunTape tape;
};

Result<TapeOfRun> read_tape(CoordinatorClient& client, const std::string& run) {
  TapeOfRun read;
  nlohmann::json arguments = {{"run", run}, {"after", 0}, {"limit", kEventsAtOnce}, {"level", "debug"}};
  while (true) {
    ATOLL_ASSIGN(const nlohmann::json page, client.ask("events", arguments));
    read.id = text_at(page, "run");
    read.state = text_at(page, "state");
    for (const nlohmann::json& event : list_at(page, "events")) {
      take_event(read.tape, event);
    }
    if (list_at(page, "events").size() < kEventsAtOnce) {
      return read;
    }
    arguments["run"] = read.id;
    arguments["after"] = static_cast<std::uint64_t>(number_at(page, "next").value_or(0));
  }
}

Result<nlohmann::json> difference(CoordinatorClient& client, const std::string& first, const std::string& second) {
  ATOLL_ASSIGN(const TapeOfRun a, read_tape(client, first));
  ATOLL_ASSIGN(const TapeOfRun b, read_tape(client, second));
  nlohmann::json document = diff_document(a.tape, b.tape);
  document["first"]["id"] = a.id;
  document["first"]["state"] = a.state;
  document["second"]["id"] = b.id;
  document["second"]["state"] = b.state;
  return document;
}

}  // namespace

Command diff_command() {
  struct Runs {
    std::string first;
    std::string second;
  };
  auto runs = std::make_shared<Runs>();
  Command command;
  command.name = "diff";
  command.summary = "says where two runs parted: the first round whose digests differ, and why";
  command.details = "Exit code 1 if they differ, as that of diff(1).";
  command.options = {{"RUN1", "a run", &runs->first, true, {}, Completes::runs},
                     {"RUN2", "another", &runs->second, true, {}, Completes::runs}};
  command.asks_coordinator = true;
  command.run = [runs](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    if (!client) {
      return report(invocation, client.error());
    }
    const Result<nlohmann::json> document = difference(*client, runs->first, runs->second);
    const Exit shown = show(invocation, document, render_diff);
    return shown == Exit::ok && flag_at(*document, "parted") ? Exit::run_failed : shown;
  };
  return command;
}

}  // namespace atl
