// CommandPlace: one command of the tree with its full path and every option that it takes. Completion scripts and manual pages are made of
// these, so they know what --help knows.
// Threads: plain values.
#pragma once

#include <string>
#include <vector>

#include "cli/line/command.hpp"

namespace atl {

struct CommandPlace {
  std::string path;                    // "atoll token create"
  const Command* command = nullptr;    // in the tree
  std::vector<CommandOption> options;  // its own and those that every command has
};

// The tree's commands, each before its subcommands. The options' targets are in `tree` and `common`, which have to outlive the result.
std::vector<CommandPlace> command_places(const Command& tree, CommonOptions& common);

// "-f,--follow" is "-f" and "--follow".
std::vector<std::string> names_of(const CommandOption& option);
bool is_positional(const CommandOption& option);
bool is_flag(const CommandOption& option);

}  // namespace atl
