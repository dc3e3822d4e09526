// `atoll version`
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "transport/control/message.hpp"

namespace atl {

Command version_command() {
  Command command;
  command.name = "version";
  command.summary = "prints the version of atoll and of its protocol";
  command.run = [](Invocation& invocation) {
    if (invocation.json) {
      invocation.streams.out << nlohmann::json{{"schema", 1}, {"version", ATOLL_VERSION}, {"protocol", kProtocolVersion}}.dump() << "\n";
    } else {
      invocation.streams.out << "atoll " << ATOLL_VERSION << " (protocol " << kProtocolVersion << ")\n";
    }
    return Exit::ok;
  };
  return command;
}

}  // namespace atl
