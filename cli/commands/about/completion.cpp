// `atoll completion SHELL`: scripts made from the tree of commands itself, so they can never be out of date.
#include <memory>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/line/command_places.hpp"

namespace atl {
namespace {

// The words that are offered for a value: all that it may be, or some of them; empty where there is no such list.
std::string words_of(const CommandOption& option) {
  std::string words;
  for (const std::string& word : option.choices.empty() ? option.suggested : option.choices) {
    words += (words.empty() ? "" : " ") + word;
  }
  return words;
}
// The shell code that prints what is offered, one a line; empty where the shell completes by itself.
std::string query_of(const CommandOption& option) {
  switch (option.completes) {
    case Completes::runs:
      return "atoll runs -q 2>/dev/null";
    case Completes::islands:
      return "atoll islands -q 2>/dev/null";
    default:
      return {};
  }
}

std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result + "'";
}

// Walks over the words before the cursor and leaves the command's path in `at`: the same in bash and zsh.
std::string path_walk(const std::vector<CommandPlace>& places, const std::string& loop, const std::string& word) {
  std::string paths;
  for (const CommandPlace& place : places) {
    if (place.path != "atoll") {
      paths += (paths.empty() ? "" : "|") + ("\"" + place.path + "\"");
    }
  }
  return "  local at=\"atoll\" i\n  for (( " + loop + " )); do\n    case \"$at " + word + "\" in\n      " + paths + ") at=\"$at " + word +
         "\" ;;\n    esac\n  done\n";
}

std::string option_patterns(const CommandPlace& place, const CommandOption& option) {
  std::string patterns;
  for (const std::string& name : names_of(option)) {
    patterns += (patterns.empty() ? "" : "|") + ("\"" + place.path + " " + name + "\"");
  }
  return patterns;
}

std::string bash_values(const CommandOption& option) {
  if (const std::string words = words_of(option); !words.empty()) {
    return "COMPREPLY=($(compgen -W " + shell_quoted(words) + " -- \"$cur\"))";
  }
  if (const std::string query = query_of(option); !query.empty()) {
    return "COMPREPLY=($(compgen -W \"$(" + query + ")\" -- \"$cur\"))";
  }
  return option.completes == Completes::files     ? "COMPREPLY=($(compgen -f -- \"$cur\"))"
         : option.completes == Completes::folders ? "COMPREPLY=($(compgen -d -- \"$cur\"))"
                                                  : "COMPREPLY=()";
}

std::string bash_script(const std::vector<CommandPlace>& places) {
  std::string text = "# bash completion of atoll: source it, or save it in ~/.local/share/bash-completion/completions/atoll\n_atoll() {\n";
  text += "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" prev=\"${COMP_WORDS[COMP_CWORD-1]}\"\n";
  text += path_walk(places, "i = 1; i < COMP_CWORD; i++", "${COMP_WORDS[i]}");
  text += "  case \"$at $prev\" in\n";
  for (const CommandPlace& place : places) {
    for (const CommandOption& option : place.options) {
      if (!is_positional(option) && !is_flag(option)) {
        text += "    " + option_patterns(place, option) + ") " + bash_values(option) + "; return ;;\n";
      }
    }
  }
  text += "  esac\n  case \"$at\" in\n";
  for (const CommandPlace& place : places) {
    std::string words;
    std::string more;
    for (const Command& subcommand : place.command->subcommands) {
      words += subcommand.name + " ";
    }
    for (const CommandOption& option : place.options) {
      if (is_positional(option)) {
        more = bash_values(option) + "; [[ $cur != -* ]] && return; ";
        continue;
      }
      for (const std::string& name : names_of(option)) {
        words += name + " ";
      }
    }
    text += "    \"" + place.path + "\") " + more + "COMPREPLY=($(compgen -W " + shell_quoted(words + "--help") + " -- \"$cur\")) ;;\n";
  }
  return text + "  esac\n}\ncomplete -o bashdefault -F _atoll atoll\n";
}

std::string zsh_values(const CommandOption& option) {
  if (const std::string words = words_of(option); !words.empty()) {
    return "compadd -- " + words;
  }
  if (const std::string query = query_of(option); !query.empty()) {
    return "compadd -- ${(f)\"$(" + query + ")\"}";
  }
  return option.completes == Completes::files ? "_files" : option.completes == Completes::folders ? "_files -/" : "true";
}

std::string zsh_item(const std::string& name, const std::string& doc) {
  std::string escaped;
  for (const char c : name + "\x01" + doc) {
    escaped += c == ':' ? std::string("\\:") : c == '\x01' ? std::string(":") : std::string(1, c);
  }
  return shell_quoted(escaped);
}

std::string zsh_script(const std::vector<CommandPlace>& places) {
  std::string text = "#compdef atoll\n# zsh completion of atoll: save it as _atoll in a folder of $fpath\n_atoll() {\n";
  text += path_walk(places, "i = 2; i < CURRENT; i++", "${words[i]}");
  text += "  local -a items\n  case \"$at ${words[CURRENT-1]}\" in\n";
  for (const CommandPlace& place : places) {
    for (const CommandOption& option : place.options) {
      if (!is_positional(option) && !is_flag(option)) {
        text += "    " + option_patterns(place, option) + ") " + zsh_values(option) + "; return ;;\n";
      }
    }
  }
  text += "  esac\n  case \"$at\" in\n";
  for (const CommandPlace& place : places) {
    std::string items;
    std::string more;
    for (const Command& subcommand : place.command->subcommands) {
      items += " " + zsh_item(subcommand.name, subcommand.summary);
    }
    for (const CommandOption& option : place.options) {
      if (is_positional(option)) {
        more = " ; " + zsh_values(option);
        continue;
      }
      for (const std::string& name : names_of(option)) {
        items += " " + zsh_item(name, option.doc);
      }
    }
    items += " " + zsh_item("--help", "print help");
    text += "    \"" + place.path + "\") items=(" + items + " ); _describe 'atoll' items" + more + " ;;\n";
  }
  return text + "  esac\n}\n_atoll \"$@\"\n";
}

std::string fish_values(const CommandOption& option) {
  if (const std::string words = words_of(option); !words.empty()) {
    return " -x -a " + shell_quoted(words);
  }
  if (const std::string query = query_of(option); !query.empty()) {
    return " -x -a " + shell_quoted("(" + query + ")");
  }
  return option.completes == Completes::files     ? " -r -F"
         : option.completes == Completes::folders ? " -x -a '(__fish_complete_directories)'"
                                                  : " -x";
}

std::string fish_script(const std::vector<CommandPlace>& places) {
  std::string text =
      "# fish completion of atoll: save it as ~/.config/fish/completions/atoll.fish\nfunction __atoll_at\n  set -l at atoll\n";
  text += "  for word in (commandline -opc)[2..-1]\n    switch \"$at $word\"\n      case";
  for (const CommandPlace& place : places) {
    text += place.path == "atoll" ? "" : " '" + place.path + "'";
  }
  text += "\n        set at \"$at $word\"\n    end\n  end\n  echo $at\nend\ncomplete -c atoll -f\n";
  for (const CommandPlace& place : places) {
    const std::string line = "complete -c atoll -n 'test (__atoll_at) = \"" + place.path + "\"'";
    for (const Command& subcommand : place.command->subcommands) {
      text += line + " -a " + subcommand.name + " -d " + shell_quoted(subcommand.summary) + "\n";
    }
    for (const CommandOption& option : place.options) {
      std::string names;
      for (const std::string& name : names_of(option)) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : name.starts_with("-") ? " -s " + name.substr(1) : "";
      }
      text += line + names + (is_flag(option) ? "" : fish_values(option)) + " -d " + shell_quoted(option.doc) + "\n";
    }
    text += line + " -s h -l help -d 'print help'\n";
  }
  return text;
}

}  // namespace

Command completion_command() {
  auto shell = std::make_shared<std::string>();
  Command command;
  command.name = "completion";
  command.summary = "prints a shell's completion script";
  command.options = {{"SHELL", "bash, zsh or fish", shell.get(), true, {"bash", "zsh", "fish"}}};
  command.run = [shell](Invocation& invocation) {
    const Command tree = atoll_command();
    CommonOptions common;
    const std::vector<CommandPlace> places = command_places(tree, common);
    invocation.streams.out << (*shell == "bash" ? bash_script(places) : *shell == "zsh" ? zsh_script(places) : fish_script(places));
    return Exit::ok;
  };
  return command;
}

}  // namespace atl
