// What the pages and the examples show is what the program takes: every command line, every option named in the tables of commands, every
// run file, every exit code.
#include <algorithm>
#include <functional>
#include <set>
#include <sstream>

#include "cli/line/command.hpp"
#include "cli/run_file/fault_file.hpp"
#include "cli/run_file/run_file.hpp"
#include "tests/catch.hpp"
#include "tests/cli/pages.hpp"
#include "tests/places.hpp"

namespace of_readme_test {

using namespace atl;
using namespace atl::pages;

namespace {

// The commands, each of which does nothing but note its name.
Command noting(Command command, const std::string& path, std::vector<std::string>& ran) {
  if (command.run) {
    command.run = [path, &ran, options = command.run](Invocation&) {  // which owns what the options are read into
      ran.push_back(path);
      return Exit::ok;
    };
  }
  for (Command& subcommand : command.subcommands) {
    subcommand = noting(subcommand, path.empty() ? subcommand.name : path + " " + subcommand.name, ran);
  }
  return command;
}

// The words of a command line as a shell sees them, up to where a comment, a bracket or the next sentence begins.
std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::string word;
  bool begun = false;
  char quote = 0;
  const auto end_word = [&] {
    if (begun) {
      words.push_back(word);
    }
    word.clear();
    begun = false;
  };
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        word.push_back(c);
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      begun = true;
    } else if (c == ' ') {
      end_word();
      if (!words.empty() && words.back().ends_with(",")) {
        break;
      }
    } else if (c == ')' || c == ';' || c == '`' || ((c == '#' || c == '>' || c == '&') && !begun)) {
      break;
    } else {
      word.push_back(c);
      begun = true;
    }
  }
  end_word();
  if (!words.empty() && words.back().ends_with(",")) {
    words.back().pop_back();
  }
  return words;
}

// "a [b] c" with and without its brackets' content, "x|y" as either.
std::vector<std::vector<std::string>> variants_of(const std::string& text) {
  std::string with;
  std::string without;
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != '[' && c != ']') {
      with.push_back(c);
      if (depth == 0) {
        without.push_back(c);
      }
    }
  }
  std::vector<std::vector<std::string>> variants = {words_of(with)};
  if (with != without) {
    variants.push_back(words_of(without));
  }
  for (std::size_t v = 0; v < variants.size(); ++v) {
    for (std::size_t i = 0; i < variants[v].size(); ++i) {
      for (std::size_t bar = variants[v][i].find('|'); bar != std::string::npos; bar = variants[v][i].find('|')) {
        std::vector<std::string> other = variants[v];
        other[i] = variants[v][i].substr(bar + 1);
        variants[v][i].resize(bar);
        variants.push_back(std::move(other));
      }
    }
  }
  return variants;
}

class Commands {
 public:
  Commands() : tree_(noting(atoll_command(), "", ran_)) {}

  // Takes the words after "atoll".
  void check(std::vector<std::string> words) {
    std::replace(words.begin(), words.end(), std::string("N"), std::string("3"));
    std::istringstream in;
    std::ostringstream out;
    std::ostringstream err;
    const std::size_t before = ran_.size();
    const int exit = run_command_line(tree_, words, Streams{in, out, err}, [](const std::string&) { return std::nullopt; });
    INFO(err.str());
    CHECK(exit == 0);
    CHECK(ran_.size() == before + 1);
  }
  [[nodiscard]] bool knows(const std::string& command) const {
    return std::ranges::any_of(tree_.subcommands, [&](const Command& each) { return each.name == command; });
  }
  [[nodiscard]] std::set<std::string> ran() const { return {ran_.begin(), ran_.end()}; }
  [[nodiscard]] const Command& tree() const { return tree_; }

 private:
  std::vector<std::string> ran_;
  Command tree_;
};

// Checks every "atoll COMMAND …" of a text; how many there were.
std::size_t check_lines(Commands& commands, const std::string& text) {
  std::size_t found = 0;
  for (const std::string& line : lines_of(text)) {
    for (std::size_t at = line.find("atoll "); at != std::string::npos; at = line.find("atoll ", at + 1)) {
      const bool a_word = at == 0 || line[at - 1] == '`' || line[at - 1] == ' ' || line[at - 1] == '/';
      const std::string rest = line.substr(at + 6);
      if (!a_word || !commands.knows(rest.substr(0, rest.find_first_of(" `,;)")))) {
        continue;
      }
      for (const std::vector<std::string>& words : variants_of(rest)) {
        INFO(line);
        commands.check(words);
        ++found;
      }
    }
  }
  return found;
}

// Every name of every option of a command and its subcommands.
void take_options(const Command& command, std::set<std::string>& names) {
  CommonOptions common;
  std::vector<CommandOption> all = common_options(command, common);
  all.insert(all.end(), command.options.begin(), command.options.end());
  for (const CommandOption& option : all) {
    std::istringstream parts(option.names);
    for (std::string name; std::getline(parts, name, ',');) {
      names.insert(name);
    }
  }
  for (const Command& subcommand : command.subcommands) {
    take_options(subcommand, names);
  }
}

// A page without the blocks in no language, which are pictures.
std::string without_pictures(const std::string& page) {
  std::string shown;
  bool picture = false;
  bool block = false;
  for (const std::string& line : lines_of(page)) {
    if (line.starts_with("```")) {
      block = !block;
      picture = block && line == "```";
    }
    shown += picture ? "" : line + "\n";
  }
  return shown;
}

const fs::path kCommands = kSource / "docs/commands.md";

}  // namespace

TEST_CASE("every command line that the README, the other pages and the examples show is one") {
  Commands commands;
  CHECK(check_lines(commands, without_pictures(file_text(kSource / "README.md"))) > 10);
  std::size_t on_pages = 0;
  for (const std::string& page : all_pages()) {
    if (page != "README.md" && page != "CHANGELOG.md") {  // which says what was, in passing
      INFO(page);
      on_pages += check_lines(commands, without_pictures(file_text(kSource / page)));
    }
  }
  CHECK(on_pages > 15);
  std::size_t in_examples = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(kSource / "examples")) {
    INFO(entry.path());
    in_examples += check_lines(commands, file_text(entry.path()));
  }
  CHECK(in_examples > 5);
}

TEST_CASE("every command that the README names in its table is one, and it leaves none out") {
  Commands commands;
  std::set<std::string> listed;
  for (const std::string& row : table_rows(file_text(kSource / "README.md"), "| what you want | commands |")) {
    for (const std::string& command : in_backticks(row)) {
      INFO(command);
      CHECK(commands.knows(command.substr(0, command.find(' '))));
      listed.insert(command.substr(0, command.find(' ')));
    }
  }
  for (const Command& command : commands.tree().subcommands) {
    INFO(command.name);
    CHECK((listed.contains(command.name) || command.name == "trainer" || command.name == "version" || command.name == "completion" ||
           command.name == "manual"));
  }
}

TEST_CASE("the tables of commands are what the commands take, and leave none out") {
  Commands commands;
  const std::vector<std::string> rows = table_rows(file_text(kCommands), "| command | what |");
  REQUIRE(!rows.empty());
  std::set<std::string> listed;
  for (const std::string& row : rows) {
    INFO(row);
    const std::size_t second = row.find(" | ", 2);
    REQUIRE(row.starts_with("| `"));
    REQUIRE(second != std::string::npos);
    std::set<std::string> options;
    for (const std::string& command : in_backticks(row.substr(0, second))) {
      const std::string name = command.substr(0, command.find(' '));
      REQUIRE(commands.knows(name));
      listed.insert(name);
      take_options(*std::ranges::find(commands.tree().subcommands, name, &Command::name), options);
      for (const std::vector<std::string>& words : variants_of(command)) {
        commands.check(words);
      }
    }
    for (const std::string& text : in_backticks(row.substr(second))) {
      if (text.starts_with("-")) {
        INFO(text);
        CHECK(options.contains(text.substr(0, text.find(' '))));
      }
    }
  }
  for (const Command& command : commands.tree().subcommands) {
    INFO(command.name);
    CHECK((listed.contains(command.name) || command.name == "trainer" || command.name == "version" || command.name == "completion" ||
           command.name == "manual"));
  }
}

TEST_CASE("every run file that a page shows is valid, and so is every example") {
  std::size_t shown = 0;
  for (auto entry = fs::recursive_directory_iterator(atl_test::source_folder()); entry != fs::recursive_directory_iterator(); ++entry) {
    const std::string path = entry->path().lexically_relative(atl_test::source_folder()).string();
    if (path == "build" || path == ".git") {
      entry.disable_recursion_pending();
    }
    if (!path.ends_with(".md") && !(path.starts_with("examples/") && !path.starts_with("examples/faults/") &&
                                    !path.starts_with("examples/packaging/") && path.ends_with(".toml"))) {
      continue;
    }
    const std::string text = file_text(entry->path());
    for (const std::string& toml : path.ends_with(".md") ? blocks(text, "```toml", "```") : std::vector<std::string>{text}) {
      const RunFile file = parse_run_file(toml, path);
      INFO(problems_text(file));
      CHECK(file.valid());
      ++shown;
    }
  }
  CHECK(shown > 4);
}

TEST_CASE("every example of faults is valid for the islands and the run that it names") {
  Commands commands;
  std::size_t shown = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(atl_test::source_folder() + "/examples/faults")) {
    const std::string text = file_text(entry.path());
    CHECK(check_lines(commands, text) == 1);
    const FaultFile file = parse_fault_file(text, entry.path().string(), {{"island-1", "island-2", "island-3"}, 20});
    INFO(problems_text(file.source, file.problems));
    CHECK(file.valid());
    ++shown;
  }
  CHECK(shown > 0);
}

TEST_CASE("the page on faults has the program's table of the keys of a fault") {
  CHECK(file_text(kSource / "docs/faults.md").find(fault_keys_markdown()) != std::string::npos);
}

TEST_CASE("the page of commands has the program's exit codes") {
  std::string table;
  for (const ExitMeaning& meaning : kExitMeanings) {
    table += "| " + std::to_string(static_cast<int>(meaning.code)) + " | " + std::string(meaning.meaning) + " |\n";
  }
  CHECK(file_text(kCommands).find("| exit code | meaning |\n|---|---|\n" + table + "\n") != std::string::npos);
}

}  // namespace of_readme_test
