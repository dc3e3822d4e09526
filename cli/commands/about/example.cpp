// `atoll example`: small programs to begin with, which travel in this one.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <system_error>
#include <vector>

#include "cli/commands/about/example_files.hpp"
#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/table.hpp"
#include "transport/base/spelling.hpp"

namespace atl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct ExampleOptions {
  std::string name;
  std::string folder;
};

struct Example {
  std::string_view name;
  std::string_view what;
  std::vector<EmbeddedFile> files;  // without the example's name
};

// In the order of their names.
std::vector<Example> examples() {
  std::vector<Example> found;
  for (const EmbeddedFile& file : example_files()) {
    const std::size_t slash = file.name.find('/');
    const std::string_view name = file.name.substr(0, slash);
    if (found.empty() || found.back().name != name) {
      found.push_back({name, "", {}});
    }
    found.back().files.push_back({file.name.substr(slash + 1), file.bytes});
    if (found.back().files.back().name == "README.md") {
      found.back().what = file.bytes.substr(2, file.bytes.find('\n') - 2);
    }
  }
  return found;
}

Exit list(const Invocation& invocation) {
  if (invocation.json) {
    json listed = json::array();
    for (const Example& example : examples()) {
      listed.push_back({{"name", example.name}, {"what", example.what}});
    }
    invocation.streams.out << json_line({{"schema", 1}, {"examples", std::move(listed)}}) << "\n";
    return Exit::ok;
  }
  Table table({{"EXAMPLE"}, {"WHAT IT IS"}});
  for (const Example& example : examples()) {
    table.add({{std::string(example.name)}, {std::string(example.what)}});
  }
  invocation.streams.out << table.text(invocation.terminal) << std::flush;
  invocation.streams.err << "\nnext: atoll example gpt my-run\n";
  return Exit::ok;
}

// Makes it, unless it is there and empty. Errors: conflict if something is in it; io.
Status make_folder(const fs::path& folder) {
  std::error_code failure;
  const fs::file_status there = fs::status(folder, failure);
  if (fs::exists(there) && (!fs::is_directory(there) || !fs::is_empty(folder, failure))) {
    return Error{Code::conflict, folder.string() + (fs::is_directory(there) ? " is not empty" : " is a file") + "; name a new folder"};
  }
  failure.clear();
  fs::create_directories(folder, failure);
  return failure ? Status(Error{Code::io, folder.string() + " cannot be made: " + failure.message()}) : Status();
}

Status write(const fs::path& path, std::string_view bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  std::error_code failure;
  if (stream && path.extension() == ".sh") {
    fs::permissions(path, fs::perms::owner_exec, fs::perm_options::add, failure);
  }
  return stream ? Status() : Status(Error{Code::io, path.string() + " cannot be written; see who owns the folder, and the disk's space"});
}

Result<Example> find(const std::string& name) {
  const std::vector<Example> all = examples();
  const auto found = std::ranges::find(all, name, &Example::name);
  if (found != all.end()) {
    return *found;
  }
  std::vector<std::string_view> names;
  for (const Example& example : all) {
    names.push_back(example.name);
  }
  const std::string_view near = nearest(name, names);
  return Error{Code::not_found, "there is no example " + printable(name, 100) + (near.empty() ? "" : "; nearest is " + std::string(near)) +
                                    "; `atoll example` lists them"};
}

// In words that a shell takes for one.
std::string shell_word(const std::string& word) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
    return word;
  }
  std::string out = "'";
  for (const char c : word) {
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return out + "'";
}

Status make(const Invocation& invocation, const ExampleOptions& options) {
  ATOLL_ASSIGN(const Example example, find(options.name));
  if (options.folder.empty()) {
    return Error{Code::invalid_argument, "name the folder to write, as in: atoll example " + options.name + " my-run"};
  }
  const fs::path folder(options.folder);
  ATOLL_TRY(make_folder(folder));
  json names = json::array();
  std::string said;
  for (const EmbeddedFile& file : example.files) {
    ATOLL_TRY(write(folder / file.name, file.bytes));
    names.push_back(file.name);
    said += (said.empty() ? "" : ", ") + std::string(file.name);
  }
  if (invocation.json) {
    invocation.streams.out << json_line({{"schema", 1}, {"example", options.name}, {"folder", options.folder}, {"files", names}}) << "\n";
    return {};
  }
  invocation.streams.err << "wrote " << said << "\nnext: cd " << printable(shell_word(options.folder), 2000)
                         << " && atoll local run.toml\n";
  return {};
}

}  // namespace

Command example_command() {
  auto options = std::make_shared<ExampleOptions>();
  Command command;
  command.name = "example";
  command.summary = "writes a small program that trains on two islands here, with its run file; without a name, lists them";
  command.details = "NAME is gpt, lora, classifier, c or diffusion. FOLDER must be new or empty. Then: cd FOLDER && atoll local run.toml";
  command.options = {{"NAME", "which one", &options->name},
                     {"FOLDER", "where it is written", &options->folder, false, {}, Completes::folders}};
  for (const Example& example : examples()) {
    command.options.front().suggested.emplace_back(example.name);
  }
  command.run = [options](Invocation& invocation) {
    if (options->name.empty()) {
      return list(invocation);
    }
    const Status made = make(invocation, *options);
    return made ? Exit::ok : report(invocation, made.error());
  };
  return command;
}

}  // namespace atl
