#include "cli/run_file/fault_file.hpp"

#include <algorithm>
#include <map>

#include "cli/run_file/toml.hpp"
#include "cli/run_file/toml_guard.hpp"
#include "cli/views/parts/printable.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/spelling.hpp"

namespace atl {
namespace {

using agent::FaultAction;

constexpr auto kDefaultLength = std::chrono::seconds(2);
constexpr auto kLongest = std::chrono::hours(24);

struct FaultKey {
  std::string_view name;
  std::string_view fallback;  // as docs/faults.md prints it; empty: required
  std::string_view allowed;
  std::string_view doc;
};
constexpr std::array<FaultKey, 7> kKeys = {{
    {"island", "", "an island's name", "Island that the fault strikes."},
    {"round", "", "from 1 to the run's rounds",
     "Round in which the fault strikes, or else the first later one in which the island reaches the phase."},
    {"phase", "", "before-send, sending, receiving, reducing, before-commit, checkpointing",
     "Phase of the round at which the fault strikes."},
    {"do", "", "kill, pause, slow, cut-off, corrupt", "What happens to the island."},
    {"for", "\"2s\"", "a time of at most 24h, like \"2s\"",
     "Time after which a killed island is started again, a paused island goes on, or a link is whole or fast again."},
    {"rate", "required for slow", "a rate of at least 500kbit, like \"1mbit\"",
     "Most that a slow island may send to the others, in bits per second."},
    {"link", "\"both\"", "both, bulk, control",
     "Links that are cut off: to the other islands (bulk), to the coordinator (control), or both."},
}};

std::vector<std::string_view> key_names() {
  std::vector<std::string_view> names;
  names.reserve(std::size(kKeys));
  for (const FaultKey& key : kKeys) {
    names.push_back(key.name);
  }
  return names;
}

// Reads one [[fault]] after the other, and keeps what is wrong.
class FaultReading {
 public:
  FaultReading(FaultFile& file, const FaultedRun& run) : file_(file), run_(run) {}

  void read(const toml::table& root) {
    if (run_.rounds == 0) {
      add(root.source(), "", "this run has no rounds, so there is no phase in which a fault could strike");
      return;
    }
    for (const auto& [name, node] : root) {
      if (name.str() != "fault") {
        add(name.source(), name.str(), "unknown key " + in_quotes(name.str()) + " at the top level; a fault file is a list of [[fault]]");
        continue;
      }
      const toml::array* list = node.as_array();
      if (list == nullptr) {
        add(name.source(), "fault", "each fault begins with [[fault]], in two pairs of brackets");
        continue;
      }
      for (const toml::node& entry : *list) {
        if (const toml::table* table = entry.as_table()) {
          read_fault(*table);
        } else {
          add(entry.source(), "fault", "each fault begins with [[fault]], in two pairs of brackets");
        }
      }
    }
    if (file_.faults.empty() && file_.problems.empty()) {
      add(root.source(), "", "there is no [[fault]] in this file");
    }
  }

 private:
  void add(const toml::source_region& region, std::string_view key, std::string why) {
    const std::uint32_t line = std::max<std::uint32_t>(region.begin.line, 1);
    file_.problems.push_back({line, std::max<std::uint32_t>(region.begin.column, 1), "fault", std::string(key), std::move(why)});
  }

  // The text under a key; empty, with a problem told, if it is none.
  std::string text_of(const toml::table& table, std::string_view key) {
    const toml::node* node = table.get(key);
    const auto* text = node != nullptr ? node->as_string() : nullptr;
    if (node != nullptr && (text == nullptr || text->get().empty())) {
      add(node->source(), key, std::string(key) + " must be a text that is not empty");
    }
    return text != nullptr ? text->get() : std::string();
  }
  // The place of the word under a key among those allowed; `otherwise` if there is no such key or no such word.
  template <typename Word>
  Word word_of(const toml::table& table, std::string_view key, std::span<const std::string_view> words, Word otherwise) {
    const std::string text = text_of(table, key);
    const auto found = std::find(words.begin(), words.end(), text);
    if (found != words.end()) {
      return static_cast<Word>(found - words.begin());
    }
    if (!text.empty()) {
      const std::string_view near = nearest(text, words);
      add(table.get(key)->source(), key,
          std::string(key) + " " + in_quotes(text) + " is not known" +
              (near.empty() ? std::string() : "; nearest is \"" + std::string(near) + "\"") + "; allowed are " + listed(words));
    }
    return otherwise;
  }

  void read_keys(const toml::table& table) {
    const std::vector<std::string_view> names = key_names();
    for (const auto& [name, node] : table) {
      if (std::find(names.begin(), names.end(), name.str()) == names.end()) {
        const std::string_view near = nearest(name.str(), names);
        add(name.source(), name.str(),
            "unknown key " + in_quotes(name.str()) + " in [[fault]]; " +
                (near.empty() ? "allowed are " + listed(names) : "nearest is \"" + std::string(near) + "\""));
      }
    }
    for (const FaultKey& key : kKeys) {
      if (key.fallback.empty() && !table.contains(key.name)) {
        add(table.source(), key.name,
            "missing key \"" + std::string(key.name) + "\" in [[fault]]: " + std::string(key.doc) + "; " + std::string(key.allowed));
      }
    }
  }

  void read_island(const toml::table& table, ScriptedFault& scripted) {
    scripted.island = text_of(table, "island");
    if (!scripted.island.empty() && std::find(run_.islands.begin(), run_.islands.end(), scripted.island) == run_.islands.end()) {
      const std::vector<std::string_view> names(run_.islands.begin(), run_.islands.end());
      add(table.get("island")->source(), "island", "there is no island " + in_quotes(scripted.island) + "; there are " + listed(names));
    }
  }

  void read_round(const toml::table& table, agent::Fault& fault) {
    const toml::node* node = table.get("round");
    if (node == nullptr) {
      return;
    }
    const auto* round = node->as_integer();
    if (round == nullptr || round->get() < 1 || static_cast<std::uint64_t>(round->get()) > run_.rounds) {
      add(node->source(), "round", "round is an integer from 1 to " + std::to_string(run_.rounds) + ", the rounds of this run");
      return;
    }
    fault.round = Round(static_cast<std::uint64_t>(round->get()));
  }

  void read_length(const toml::table& table, agent::Fault& fault) {
    fault.length = kDefaultLength;
    if (const std::string text = text_of(table, "for"); !text.empty()) {
      const Result<Duration> length = parse_duration(text);
      if (!length || *length > kLongest || *length < std::chrono::milliseconds(1)) {
        add(table.get("for")->source(), "for",
            (length ? in_quotes(text) : length.error().why) + ": for is a time of at most 24h, like \"2s\"");
      } else {
        fault.length = *length;
      }
    }
  }

  void read_rate(const toml::table& table, agent::Fault& fault) {
    const std::string text = text_of(table, "rate");
    if (text.empty()) {
      return;
    }
    const Result<double> rate = parse_bits_per_second(text);
    if (!rate || *rate < kLeastUplink) {
      add(table.get("rate")->source(), "rate",
          (rate ? in_quotes(text) : rate.error().why) +
              ": rate is at least 500kbit, like \"1mbit\": with less a piece takes so long that others give up");
    } else {
      fault.bits_per_second = *rate;
    }
  }

  // Keys that this action does not look at.
  void report_ineffective(const toml::table& table, FaultAction action) {
    const std::string name(agent::kFaultActions[static_cast<std::size_t>(action)]);
    const auto only_for = [&](std::string_view key, bool holds, std::string_view of) {
      if (!holds && table.contains(key)) {
        add(table.get(key)->source(), key, std::string(key) + " has no effect on do = \"" + name + "\": it is for " + std::string(of));
      }
    };
    only_for("rate", action == FaultAction::slow, "slow");
    only_for("link", action == FaultAction::cut_off, "cut-off");
    only_for("for", action != FaultAction::corrupt, "kill, pause, slow and cut-off");
    if (action == FaultAction::slow && !table.contains("rate")) {
      add(table.source(), "rate", "missing key \"rate\" in a [[fault]] with do = \"slow\": what the island may send, like \"1mbit\"");
    }
  }

  void read_fault(const toml::table& table) {
    const std::size_t before = file_.problems.size();
    ScriptedFault scripted;
    agent::Fault& fault = scripted.fault;
    fault.number = ++number_;
    read_keys(table);
    read_island(table, scripted);
    read_round(table, fault);
    fault.phase = word_of(table, "phase", agent::kRoundPhases, agent::RoundPhase::before_send);
    read_length(table, fault);
    read_rate(table, fault);
    fault.link = word_of(table, "link", agent::kFaultLinks, agent::FaultLink::both);
    const std::size_t words = file_.problems.size();
    fault.action = word_of(table, "do", agent::kFaultActions, FaultAction::kill);
    if (table.contains("do") && file_.problems.size() == words) {
      report_ineffective(table, fault.action);
    }
    if (file_.problems.size() == before) {
      file_.faults.push_back(std::move(scripted));
    }
  }

  FaultFile& file_;
  const FaultedRun& run_;
  std::uint32_t number_ = 0;
};

}  // namespace

FaultFile parse_fault_file(std::string_view text, std::string source, const FaultedRun& run) {
  FaultFile file;
  file.source = std::move(source);
  const auto refuse = [&](std::uint32_t line, std::uint32_t column, std::string why) {
    file.problems.push_back({line, column, "", "", std::move(why)});
  };
  if (text.size() > kLargestTomlFile) {
    refuse(1, 1, "the file has more than 1,048,576 bytes; a fault file has at most 1 MiB");
    return file;
  }
  if (const std::optional<TomlFault> fault = find_toml_fault(text)) {
    refuse(fault->line, fault->column, fault->why);
    return file;
  }
  try {
    const toml::table root = toml::parse(text);
    FaultReading(file, run).read(root);
  } catch (const toml::parse_error& error) {
    refuse(std::max<std::uint32_t>(error.source().begin.line, 1), std::max<std::uint32_t>(error.source().begin.column, 1),
           "not TOML: " + printable(error.description(), 300));
  } catch (const std::exception& error) {
    refuse(1, 1, "not TOML: " + printable(error.what(), 300));
  }
  std::ranges::sort(file.problems);
  return file;
}

Result<FaultFile> read_fault_file(const std::filesystem::path& path, const FaultedRun& run) {
  ATOLL_ASSIGN(const std::string text, read_toml_file(path));
  return parse_fault_file(text, printable(path.string(), 300), run);
}

std::string fault_keys_markdown() {
  std::string text = "| key | default | allowed | what |\n|---|---|---|---|\n";
  for (const FaultKey& key : kKeys) {
    const std::string fallback(key.fallback);
    text += "| `" + std::string(key.name) + "` | " +
            (fallback.empty()          ? "required"
             : fallback.front() == '"' ? "`" + fallback + "`"
                                       : fallback) +
            " | " + std::string(key.allowed) + " | " + std::string(key.doc) + " |\n";
  }
  return text;
}

}  // namespace atl
