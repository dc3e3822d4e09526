// `atoll data`: which samples a run has committed, part by part, and the proof that each was committed once.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

Exit data(const Invocation& invocation, const std::string& run) {
  Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
  if (!client) {
    return report(invocation, client.error());
  }
  const Result<nlohmann::json> document = client->ask("data", {{"run", run}});
  const Exit exit = show(invocation, document, render_data);
  const bool broken = document && document->contains("proof") && object_at(*document, "proof").contains("holds") &&
                      !flag_at(object_at(*document, "proof"), "holds");
  return broken ? Exit::internal : exit;
}

}  // namespace

Command data_command() {
  auto run = std::make_shared<std::string>();
  Command command;
  command.name = "data";
  command.summary = "shows the parts of a run's data: owners, passes, what is committed; and proves the sum";
  command.details =
      "Each contribution names the sequences that it was trained on. Added up over all committed rounds they must be every sequence\n"
      "up to each part's position, once. Exit code 70 if they are not.";
  command.options = {{"RUN", "the run", run.get(), true, {}, Completes::runs}};
  command.asks_coordinator = true;
  command.run = [run](Invocation& invocation) { return data(invocation, *run); };
  return command;
}

}  // namespace atl
