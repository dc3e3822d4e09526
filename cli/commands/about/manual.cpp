// `atoll manual`: manual pages for `man`, made from the tree of commands itself.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/line/command_places.hpp"

namespace atl {
namespace {

// Text as roff takes it: nothing in it is a request.
std::string roff(std::string_view text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) {
      result += "\\&";
    }
    result += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
    line_begins = c == '\n';
  }
  return result;
}

std::string bold(std::string_view text) { return "\\fB" + roff(text) + "\\fR"; }

// "atoll-token-create", as `man` calls it.
std::string page_name(const std::string& path) {
  std::string name = path;
  std::ranges::replace(name, ' ', '-');
  return name;
}

// "--every TIME", "FILE", "-q, --quiet".
std::string option_head(const CommandOption& option) {
  struct Value {
    std::string operator()(const bool*) const { return ""; }
    std::string operator()(const Duration*) const { return "TIME"; }
    std::string operator()(const std::optional<Duration>*) const { return "TIME"; }
    std::string operator()(const std::uint64_t*) const { return "COUNT"; }
    std::string operator()(const double*) const { return "NUMBER"; }
    std::string operator()(const void*) const { return "TEXT"; }
  };
  std::string head;
  for (const std::string& name : names_of(option)) {
    head += (head.empty() ? "" : ", ") + bold(name);
  }
  std::string value = is_positional(option) ? "" : std::visit(Value{}, option.target);
  for (std::size_t i = 0; i < option.choices.size(); ++i) {
    value = i == 0 ? option.choices[0] : value + "|" + option.choices[i];
  }
  return head + (value.empty() ? "" : " \\fI" + roff(value) + "\\fR");
}

std::string synopsis(const CommandPlace& place) {
  std::string text = bold(place.path);
  if (!place.command->subcommands.empty()) {
    text += place.command->run ? " [\\fICOMMAND\\fR]" : " \\fICOMMAND\\fR";
  }
  if (place.command->passes_arguments) {
    return text + " \\fIARGUMENTS\\fR...";
  }
  text += " [\\fIOPTIONS\\fR]";
  for (const CommandOption& option : place.options) {
    if (is_positional(option)) {
      const std::string many = std::holds_alternative<std::vector<std::string>*>(option.target) ? "..." : "";
      const std::string word = "\\fI" + roff(option.names) + "\\fR" + many;
      text += option.required ? " " + word : " [" + word + "]";
    }
  }
  return text;
}

std::string page(const CommandPlace& place, const std::vector<CommandPlace>& places) {
  std::string text = ".TH " + page_name(place.path) + " 1 \"\" \"atoll " ATOLL_VERSION "\" \"Atoll\"\n.SH NAME\n" +
                     roff(page_name(place.path)) + " \\- " + roff(place.command->summary) + "\n.SH SYNOPSIS\n" + synopsis(place) + "\n";
  if (!place.command->details.empty()) {
    text += ".SH DESCRIPTION\n" + roff(place.command->details) + "\n";
  }
  if (!place.command->subcommands.empty()) {
    text += ".SH COMMANDS\n";
    for (const Command& subcommand : place.command->subcommands) {
      text += ".TP\n" + bold(subcommand.name) + "\n" + roff(subcommand.summary) + "; see " +
              bold(page_name(place.path + " " + subcommand.name)) + "(1)\n";
    }
  }
  if (!place.options.empty()) {
    text += ".SH OPTIONS\n";
    for (const CommandOption& option : place.options) {
      text += ".TP\n" + option_head(option) + "\n" + roff(option.doc) + "\n";
    }
  }
  text += ".SH EXIT STATUS\n";
  for (const ExitMeaning& meaning : kExitMeanings) {
    text += ".TP\n" + std::to_string(static_cast<int>(meaning.code)) + "\n" + roff(meaning.meaning) + "\n";
  }
  const bool root = &place == &places.front();
  const std::string parent = place.path.substr(0, place.path.rfind(' '));
  return text + ".SH SEE ALSO\n" + (root ? "the pages in /usr/share/doc/atoll" : bold(page_name(parent)) + "(1)") + "\n";
}

Status write_pages(const std::string& folder) {
  const Command tree = atoll_command();
  CommonOptions common;
  const std::vector<CommandPlace> places = command_places(tree, common);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  for (const CommandPlace& place : places) {
    const std::filesystem::path path = std::filesystem::path(folder) / (page_name(place.path) + ".1");
    std::ofstream file(path, std::ios::trunc);
    file << page(place, places);
    file.close();
    if (!file) {
      return Error{Code::io, path.string() + " cannot be written"};
    }
  }
  return {};
}

}  // namespace

Command manual_command() {
  auto folder = std::make_shared<std::string>();
  Command command;
  command.name = "manual";
  command.summary = "writes the manual pages of all commands, for `man`";
  command.options = {{"FOLDER", "where atoll.1, atoll-submit.1 and so on are written", folder.get(), true, {}, Completes::folders}};
  command.run = [folder](Invocation& invocation) {
    const Status written = write_pages(*folder);
    return written ? Exit::ok : report(invocation, written.error());
  };
  return command;
}

}  // namespace atl
