#include "cli/line/command_places.hpp"

#include <algorithm>
#include <utility>

namespace atl {
namespace {

void collect(const Command& command, const std::string& parent, CommonOptions& common, std::vector<CommandPlace>& places) {
  const std::string path = parent.empty() ? command.name : parent + " " + command.name;
  std::vector<CommandOption> options = command.options;
  if (command.run && !command.passes_arguments) {
    for (CommandOption& option : common_options(command, common)) {
      options.push_back(std::move(option));
    }
  }
  places.push_back({path, &command, std::move(options)});
  for (const Command& subcommand : command.subcommands) {
    collect(subcommand, path, common, places);
  }
}

}  // namespace

std::vector<CommandPlace> command_places(const Command& tree, CommonOptions& common) {
  std::vector<CommandPlace> places;
  collect(tree, "", common, places);
  return places;
}

std::vector<std::string> names_of(const CommandOption& option) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < option.names.size();) {
    const std::size_t end = std::min(option.names.find(',', at), option.names.size());
    parts.push_back(option.names.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool is_positional(const CommandOption& option) { return option.names.front() != '-'; }
bool is_flag(const CommandOption& option) { return std::holds_alternative<bool*>(option.target); }

}  // namespace atl
