#include "cli/line/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/line/log_sink.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/spelling.hpp"

namespace atl {
namespace {

using CommandOf = std::map<const CLI::App*, const Command*>;

CLI::Option* add_time(CLI::App& app, const CommandOption& option, const std::function<void(Duration)>& put) {
  return app
      .add_option_function<std::string>(
          option.names,
          [put, name = option.names](const std::string& text) {
            const Result<Duration> time = parse_duration(text);
            if (!time) {
              throw CLI::ValidationError(name, time.error().why);
            }
            put(*time);
          },
          option.doc)
      ->type_name("TIME");
}

// "24h", "50ms": a time as people write it in an option.
std::string written(Duration time) {
  const std::array<std::pair<Duration, const char*>, 3> units = {
      {{std::chrono::hours(1), "h"}, {std::chrono::minutes(1), "m"}, {std::chrono::seconds(1), "s"}}};
  for (const auto& [unit, name] : units) {
    if (time % unit == Duration::zero()) {
      return std::to_string(time / unit) + name;
    }
  }
  return std::to_string(time / std::chrono::milliseconds(1)) + "ms";
}

// The option's text with its default, where it has one that says something.
std::string doc_of(const CommandOption& option) {
  struct Default {
    std::string operator()(const std::string* text) const { return *text; }
    std::string operator()(const std::uint64_t* number) const { return *number == 0 ? "" : std::to_string(*number); }
    std::string operator()(const Duration* time) const { return *time == Duration::zero() ? "" : written(*time); }
    std::string operator()(const double* number) const {
      std::array<char, 32> digits{};
      const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), *number).ptr;
      return *number == 0 ? "" : std::string(digits.data(), end);
    }
    std::string operator()(const void*) const { return ""; }
  };
  const std::string value = option.required ? "" : std::visit(Default{}, option.target);
  return value.empty() || value != printable(value) ? option.doc : option.doc + " (else " + value + ")";
}

void add_option(CLI::App& app, const CommandOption& documented) {
  CommandOption option = documented;
  option.doc = doc_of(documented);
  struct Adder {
    CLI::App& app;
    const CommandOption& option;
    CLI::Option* operator()(bool* flag) const { return app.add_flag(option.names, *flag, option.doc); }
    CLI::Option* operator()(std::string* text) const { return app.add_option(option.names, *text, option.doc)->type_name("TEXT"); }
    CLI::Option* operator()(std::vector<std::string>* texts) const {
      CLI::Option* added = app.add_option(option.names, *texts, option.doc)->type_name("TEXT");
      // A named list takes one value each time, so that it does not swallow what follows.
      return option.names.front() == '-' ? added->allow_extra_args(false) : added;
    }
    CLI::Option* operator()(std::uint64_t* number) const { return app.add_option(option.names, *number, option.doc)->type_name("COUNT"); }
    CLI::Option* operator()(double* number) const { return app.add_option(option.names, *number, option.doc)->type_name("NUMBER"); }
    CLI::Option* operator()(Duration* time) const {
      return add_time(app, option, [time](Duration value) { *time = value; });
    }
    CLI::Option* operator()(std::optional<Duration>* time) const {
      return add_time(app, option, [time](Duration value) { *time = value; });
    }
  };
  CLI::Option* added = std::visit(Adder{app, option}, option.target);
  added->required(option.required);
  if (!option.choices.empty()) {
    added->check(CLI::IsMember(option.choices));
  }
}

std::string exit_codes_text() {
  std::string text = "Exit codes:";
  for (const ExitMeaning& meaning : kExitMeanings) {
    text += (meaning.code == Exit::ok ? " " : " · ") + std::to_string(static_cast<int>(meaning.code)) + " " + std::string(meaning.meaning);
  }
  return text;
}

void describe(CLI::App& app, const Command& command, CommonOptions& common, CommandOf& commands) {
  commands[&app] = &command;
  app.set_help_flag("-h,--help", "print this help and exit");
  app.footer((command.details.empty() ? "" : command.details + "\n\n") + exit_codes_text());
  for (const CommandOption& option : command.options) {
    add_option(app, option);
  }
  if (command.run) {
    for (const CommandOption& option : common_options(command, common)) {
      add_option(app, option);
    }
  }
  for (const Command& subcommand : command.subcommands) {
    describe(*app.add_subcommand(subcommand.name, subcommand.summary), subcommand, common, commands);
  }
}

const CLI::App* deepest(const CLI::App& root) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
  }
  return app;
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

// "unknown command "rns" (did you mean runs?)", for a word that CLI11 could not place.
std::string unknown_word(const std::string& word, const Command& command, const std::vector<CommandOption>& common) {
  std::vector<std::string> known;
  for (const Command& subcommand : command.subcommands) {
    known.push_back(subcommand.name);
  }
  const auto take_names = [&](const std::vector<CommandOption>& options) {
    for (const CommandOption& option : options) {
      for (std::size_t at = 0; option.names.front() == '-' && at < option.names.size();) {
        const std::size_t end = std::min(option.names.find(',', at), option.names.size());
        known.push_back(option.names.substr(at, end - at));
        at = end + 1;
      }
    }
  };
  const bool dashed = word.starts_with("-");
  if (dashed) {
    known.clear();
    take_names(command.options);
    take_names(common);
  }
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string_view near = nearest(word, views);
  const std::string_view kind = dashed ? "option" : command.subcommands.empty() ? "argument" : "command";
  return "unknown " + std::string(kind) + " " + in_quotes(word) + (near.empty() ? "" : "; nearest is " + std::string(near));
}

std::string usage_error(const CLI::App& root, const CLI::ParseError& error, const CommandOf& commands, CommonOptions& common) {
  const CLI::App* app = deepest(root);
  const Command& command = *commands.at(app);
  std::string why = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (const CLI::App* at = app; at != nullptr; at = at->get_parent()) {
      if (!at->remaining().empty()) {
        why = unknown_word(at->remaining().front(), command, common_options(command, common));
        break;
      }
    }
  }
  return printable(why, 300) + "; try: " + path_of(*app) + " --help";
}

Terminal terminal_of(const Streams& streams, const Environment& environment) {
  Terminal terminal;
  terminal.columns = streams.columns;
  // Whoever reads a pipe or a file wants whole lines; there the variable is left over from the terminal around, or of a library's making.
  if (const auto columns = streams.out_is_terminal ? environment("COLUMNS") : std::nullopt) {
    std::size_t wanted = 0;
    const auto [end, error] = std::from_chars(columns->data(), columns->data() + columns->size(), wanted);
    if (error == std::errc{} && wanted >= 20 && wanted <= 1000) {
      terminal.columns = wanted;
    }
  }
  const auto no_colour = environment("NO_COLOR");
  const auto kind = environment("TERM");
  terminal.colour = streams.out_is_terminal && (!no_colour || no_colour->empty()) && (!kind || *kind != "dumb");
  return terminal;
}

LogLevel level_named(const std::string& name) {
  return name == "debug" ? LogLevel::debug : name == "warning" ? LogLevel::warning : name == "error" ? LogLevel::error : LogLevel::info;
}

Exit run_parsed(const Command& command, Invocation& invocation) {
  try {
    return command.run(invocation);
  } catch (const std::exception& error) {
    return report(invocation, Error{Code::internal, std::string("a defect of atoll: ") + error.what()});
  }
}

bool asks_for_json(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool output = i > 0 && (arguments[i - 1] == "-o" || arguments[i - 1] == "--output" || arguments[i - 1] == "--format");
    if (arguments[i] == "--json" || arguments[i] == "-ojson" || arguments[i] == "--output=json" || (output && arguments[i] == "json")) {
      return true;
    }
  }
  return false;
}

Exit parse_and_run(const Command& tree, std::span<const std::string> arguments, Invocation& invocation) {
  CommonOptions common;
  CommandOf commands;
  CLI::App root(tree.summary, tree.name);
  describe(root, tree, common, commands);
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    root.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    invocation.streams.out << root.help();
    return Exit::ok;
  } catch (const CLI::ParseError& error) {
    invocation.json = asks_for_json(arguments);
    return report(invocation, Error{Code::invalid_argument, usage_error(root, error, commands, common)});
  }
  const CLI::App* app = deepest(root);
  const Command& command = *commands.at(app);
  if (!command.run) {
    invocation.streams.err << root.help();
    return Exit::usage;
  }
  invocation.json = common.json || common.format == "json";
  invocation.coordinator = common.coordinator;
  for (const CLI::Option* option : app->get_options()) {
    if (option->count() > 0) {
      invocation.given.insert(option->get_lnames().begin(), option->get_lnames().end());
    }
  }
  install_log_sink(invocation.streams.err, level_named(common.log_level), common.log_json,
                   command.serves ? LogWrites::beside : LogWrites::at_once);
  const Status proxied = command.asks_coordinator ? use_proxy(invocation, common.coordinator.proxy) : Status();
  const Exit exit = proxied ? run_parsed(command, invocation) : report(invocation, proxied.error());
  set_log_sink({});
  return exit;
}

Exit run_words(const Command& tree, std::span<const std::string> arguments, Invocation& invocation) {
  if (!arguments.empty()) {
    const auto found = std::ranges::find(tree.subcommands, arguments.front(), &Command::name);
    if (found != tree.subcommands.end() && found->passes_arguments) {
      invocation.rest.assign(arguments.begin() + 1, arguments.end());
      return run_parsed(*found, invocation);
    }
    if (arguments.front() == "help") {
      std::vector<std::string> asked(arguments.begin() + 1, arguments.end());
      asked.emplace_back("--help");
      return run_words(tree, asked, invocation);
    }
    if (arguments.front() == "--version") {
      return run_parsed(version_command(), invocation);
    }
  }
  return parse_and_run(tree, arguments, invocation);
}

// A command whose answer did not arrive has failed, whatever it did: a full disk under `atoll … >file`. A reader that has seen enough
// (`| head`) is no failure.
Exit all_was_written(const Invocation& invocation, Exit exit) {
  std::ostream& out = invocation.streams.out;
  if (out) {
    errno = 0;
    out.flush();
  }
  if (out || errno == EPIPE) {
    return exit;
  }
  out.clear();
  errno = 0;
  out.flush();  // what failed before fails again, and says why
  if (errno == EPIPE) {
    return exit;
  }
  const std::string why = errno == 0 ? " (is its disk full?)" : std::string(": ") + std::strerror(errno);
  const Exit failed = report(invocation, Error{Code::io, "standard output cannot be written" + why + "; what it was to hold is cut off"});
  return exit == Exit::ok ? failed : exit;
}

}  // namespace

int run_command_line(std::span<const std::string> arguments, const Streams& streams, const Environment& environment) {
  return run_command_line(atoll_command(), arguments, streams, environment);
}

int run_command_line(const Command& tree, std::span<const std::string> arguments, const Streams& streams, const Environment& environment) {
  Invocation invocation{streams, environment, terminal_of(streams, environment), false, {}, {}, {}};
  return static_cast<int>(all_was_written(invocation, run_words(tree, arguments, invocation)));
}

}  // namespace atl
