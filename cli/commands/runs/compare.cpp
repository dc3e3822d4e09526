// `atoll compare`: two runs beside each other: losses at equal steps, tokens and times, what they cost, and which settings differ.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/recorded/run_metrics.hpp"
#include "cli/recorded/run_tape.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

struct Compared {
  json facts;
  RunMetrics metrics;
  RunTape tape;  // its spec
};

Result<Compared> read(CoordinatorClient& client, const std::string& run) {
  Compared read;
  ATOLL_ASSIGN(const json status, client.ask("status", {{"run", run}}));
  const json& about = object_at(status, "run");
  for (const char* key : {"id", "name", "state", "round", "rounds", "tokens_committed", "token_limit", "images", "outer_loss", "tokens",
                          "bytes_sent", "compute_seconds", "wait_seconds", "started_unix_ms", "ended_unix_ms"}) {
    read.facts[key] = about.contains(key) ? about.at(key) : json();
  }
  read.facts["seconds"] = json();
  if (const auto started = number_at(about, "started_unix_ms")) {
    read.facts["seconds"] =
        (number_at(about, "ended_unix_ms").value_or(number_at(status, "now_unix_ms").value_or(*started)) - *started) / 1000;
  }
  const std::string id = text_at(about, "id");
  ATOLL_ASSIGN(read.metrics, read_run_metrics(client, id));
  ATOLL_ASSIGN(const json page, client.ask("events", {{"run", id}, {"after", 0}, {"limit", 20}, {"level", "debug"}}));
  for (const json& event : list_at(page, "events")) {
    take_event(read.tape, event);  // the first tells the run's settings
  }
  return read;
}

// The losses where both runs have come to, as far as both have.
json losses_at(const Compared& first, const Compared& second, Against against) {
  const auto a = points_of(first.metrics, against, "outer_loss");
  const auto b = points_of(second.metrics, against, "outer_loss");
  if (a.empty() || b.empty()) {
    return {};
  }
  const double where = std::min(a.back().first, b.back().first);
  const auto one = at_place(a, where);
  const auto other = at_place(b, where);
  return one && other ? json{{"at", where}, {"first", *one}, {"second", *other}} : json();
}

Result<json> comparison(CoordinatorClient& client, const std::string& run, const std::string& other) {
  ATOLL_ASSIGN(const Compared first, read(client, run));
  ATOLL_ASSIGN(const Compared second, read(client, other));
  return json{{"schema", 1},
              {"first", first.facts},
              {"second", second.facts},
              {"equal_steps", losses_at(first, second, Against::steps)},
              {"equal_tokens", losses_at(first, second, Against::tokens)},
              {"equal_seconds", losses_at(first, second, Against::time)},
              {"settings", diff_document(first.tape, second.tape)["settings"]}};
}

}  // namespace

Command compare_command() {
  struct Runs {
    std::string first;
    std::string second;
  };
  auto runs = std::make_shared<Runs>();
  Command command;
  command.name = "compare";
  command.summary = "shows two runs side by side: losses at equal steps, tokens and times, bytes, and settings that differ";
  command.options = {{"RUN1", "a run", &runs->first, true, {}, Completes::runs},
                     {"RUN2", "another", &runs->second, true, {}, Completes::runs}};
  command.asks_coordinator = true;
  command.run = [runs](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    return client ? show(invocation, comparison(*client, runs->first, runs->second), render_comparison)
                  : report(invocation, client.error());
  };
  return command;
}

}  // namespace atl
