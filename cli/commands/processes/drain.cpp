// `atoll drain`: lets an island finish the round in hand and go.
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"

namespace atl {
namespace {

std::string render_drained(const nlohmann::json& document, const Terminal&) {
  return "island " + printable(text_at(document, "name")) + " finishes the round in hand and leaves (" +
         printable(text_at(document, "island")) + "); `atoll islands` shows when it is gone\n";
}

}  // namespace

Command drain_command() {
  auto island = std::make_shared<std::string>();
  Command command;
  command.name = "drain";
  command.summary = "asks an island to leave: it contributes the steps done so far to the round in hand, and its agent ends";
  command.options = {{"ISLAND", "the island", island.get(), true, {}, Completes::islands}};
  command.asks_coordinator = true;
  command.run = [island](Invocation& invocation) {
    Result<CoordinatorClient> client = CoordinatorClient::open(invocation);
    return client ? show(invocation, client->ask("drain", {{"island", *island}}), render_drained) : report(invocation, client.error());
  };
  return command;
}

}  // namespace atl
