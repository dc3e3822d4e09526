#include "cli/settings/settings_file.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/line/command_places.hpp"
#include "cli/run_file/toml.hpp"
#include "cli/run_file/toml_file.hpp"
#include "cli/run_file/toml_guard.hpp"
#include "cli/views/parts/printable.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/spelling.hpp"

namespace atl {
namespace {

// "allow-data", of "--allow-data"; "" of an option that has no long name.
std::string long_name(const CommandOption& option) {
  for (const std::string& name : names_of(option)) {
    if (name.starts_with("--")) {
      return name.substr(2);
    }
  }
  return "";
}

template <typename Value>
Status put(const toml::node& node, Value* to, const char* expected) {
  const std::optional<Value> value = node.value_exact<Value>();
  if (!value) {
    return Error{Code::invalid_argument, expected};
  }
  *to = *value;
  return {};
}

// Where one option's value goes.
struct Put {
  const toml::node& node;

  Status operator()(bool* to) const { return put(node, to, "is true or false"); }
  Status operator()(std::string* to) const { return put(node, to, "is a text, in quotation marks"); }
  Status operator()(double* to) const {
    const std::optional<double> value = node.value<double>();
    return value ? (*to = *value, Status()) : Error{Code::invalid_argument, "is a number"};
  }
  Status operator()(std::uint64_t* to) const {
    const std::optional<std::int64_t> value = node.value_exact<std::int64_t>();
    return value && *value >= 0 ? (*to = static_cast<std::uint64_t>(*value), Status())
                                : Error{Code::invalid_argument, "is an integer from 0 on"};
  }
  Status operator()(Duration* to) const {
    std::string text;
    ATOLL_TRY(put(node, &text, "is a time, as \"30s\""));
    ATOLL_ASSIGN(*to, parse_duration(text));
    return {};
  }
  Status operator()(std::optional<Duration>* to) const {
    Duration time{};
    ATOLL_TRY((*this)(&time));
    *to = time;
    return {};
  }
  Status operator()(std::vector<std::string>* to) const {
    std::vector<std::string> entries;
    bool texts = node.is_array() || node.is_table();
    const auto take = [&](const std::string& name, const toml::node& entry) {
      const std::optional<std::string> text = entry.value_exact<std::string>();
      texts = texts && text;
      entries.push_back(name + text.value_or(""));
    };
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& entry : *list) {
        take("", entry);
      }
    } else if (const toml::table* table = node.as_table()) {
      for (const auto& [name, entry] : *table) {
        take(std::string(name.str()) + "=", entry);
      }
    }
    return texts ? (*to = std::move(entries), Status())
                 : Error{Code::invalid_argument, "is a list of texts, or a table of NAME = \"VALUE\""};
  }
};

Status take_one(const toml::node& node, const CommandOption& option) {
  ATOLL_TRY(std::visit(Put{node}, option.target));
  if (const auto* text = std::get_if<std::string*>(&option.target); text != nullptr && !option.choices.empty()) {
    if (std::ranges::find(option.choices, **text) == option.choices.end()) {
      std::string choices;
      for (const std::string& choice : option.choices) {
        choices += (choices.empty() ? "" : ", ") + choice;
      }
      return Error{Code::invalid_argument, "is one of " + choices};
    }
  }
  return {};
}

// The keys of a table, where each says which option it is.
Status take_table(const toml::table& table, const std::filesystem::path& path, std::span<const CommandOption> options,
                  const std::set<std::string>& given, std::span<const std::string_view> not_in_file,
                  std::span<const std::string_view> tables) {
  std::vector<std::pair<std::string, const CommandOption*>> keys;
  for (const CommandOption& option : options) {
    std::string name = long_name(option);
    if (!name.empty() && std::ranges::find(not_in_file, name) == not_in_file.end()) {
      std::ranges::replace(name, '-', '_');
      keys.emplace_back(std::move(name), &option);
    }
  }
  for (const auto& [key, value] : table) {
    const auto found = std::ranges::find(keys, key.str(), &std::pair<std::string, const CommandOption*>::first);
    std::string wrong;
    if (found != keys.end() && !given.contains(long_name(*found->second))) {
      const Status taken = take_one(value, *found->second);
      wrong = taken ? "" : found->first + " " + taken.error().why;
    } else if (found == keys.end() && std::ranges::find(tables, key.str()) == tables.end()) {
      std::vector<std::string_view> known(tables.begin(), tables.end());
      std::ranges::transform(keys, std::back_inserter(known), [](const auto& entry) { return std::string_view(entry.first); });
      const std::string_view near = nearest(key.str(), known);
      wrong = "unknown key " + in_quotes(key.str()) + (near.empty() ? "" : "; nearest is " + std::string(near));
    }
    if (!wrong.empty()) {
      return Error{Code::invalid_argument, path.string() + ":" + std::to_string(key.source().begin.line) + ": " + wrong};
    }
  }
  return {};
}

Result<toml::table> read_table(const std::filesystem::path& path) {
  ATOLL_ASSIGN(const std::string text, read_toml_file(path));
  const auto at_line = [&](std::uint32_t line, const std::string& why) {
    return Error{Code::invalid_argument, path.string() + ":" + std::to_string(line) + ": " + why};
  };
  if (const std::optional<TomlFault> fault = find_toml_fault(text)) {
    return at_line(fault->line, fault->why);
  }
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return at_line(error.source().begin.line, "not TOML: " + printable(error.description(), 300));
  }
}

}  // namespace

Status take_settings(const std::filesystem::path& path, std::span<const CommandOption> options, const std::set<std::string>& given,
                     std::span<const std::string_view> not_in_file, std::span<const std::string_view> tables) {
  ATOLL_ASSIGN(const toml::table table, read_table(path));
  return take_table(table, path, options, given, not_in_file, tables);
}

Status take_settings_table(const std::filesystem::path& path, std::string_view name, std::span<const CommandOption> options) {
  ATOLL_ASSIGN(const toml::table table, read_table(path));
  const toml::node* node = table.get(name);
  if (node == nullptr) {
    return {};
  }
  if (!node->is_table()) {
    return Error{Code::invalid_argument,
                 path.string() + ":" + std::to_string(node->source().begin.line) + ": [" + std::string(name) + "] is a table"};
  }
  return take_table(*node->as_table(), path, options, {}, {}, {});
}

}  // namespace atl
