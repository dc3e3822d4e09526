#include "cli/run_file/run_file.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>

#include "agent/engine/built_in_model.hpp"
#include "cli/run_file/strategy_names.hpp"
#include "cli/run_file/toml.hpp"
#include "cli/run_file/toml_guard.hpp"
#include "cli/run_file/trainer_settings.hpp"
#include "cli/views/parts/printable.hpp"
#include "strategies/composition.hpp"
#include "strategies/specification/run_keys.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/spelling.hpp"

namespace atl {
namespace {

struct Place {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};
Place place_of(const toml::source_region& region) {
  return region.begin.line == 0 ? Place{} : Place{region.begin.line, region.begin.column};
}

std::string dotted(std::string_view section, std::string_view key) { return std::string(section) + "." + std::string(key); }

// Collects mistakes and what is known of each key while a file is read.
class Reading {
 public:
  explicit Reading(RunFile& file) : file_(file) {}

  void read(const toml::table& root);

 private:
  void read_section(std::string_view section, const toml::table& table);
  void read_key(const RunKey& key, const toml::key& name, const toml::node& node);
  bool read_trainer_key(const toml::key& name, const toml::node& node);
  void settle_trainer();
  void unknown_section(const toml::key& name, const toml::node& node);
  void unknown_key(std::string_view section, const toml::key& name);
  void report_missing();
  void settle_strategy();
  void settle_diffusion();
  void settle_groups();
  void settle_images(const std::function<void(std::string_view section, std::string_view key)>& refuse);
  void settle_warmup();
  void settle_rounds();
  void report(RunProblem problem);

  void add(Place place, std::string_view section, std::string_view key, std::string why) {
    file_.problems.push_back({place.line, place.column, std::string(section), std::string(key), std::move(why)});
  }
  // Neither missing keys nor contradictions are reported for a key that is wrong already.
  void spoil(std::string_view section, std::string_view key) { spoilt_.insert(dotted(section, key)); }
  [[nodiscard]] bool is_spoilt(std::string_view section, std::string_view key) const { return spoilt_.contains(dotted(section, key)); }
  [[nodiscard]] bool is_set(std::string_view section, std::string_view key) const { return keys_.contains(dotted(section, key)); }
  [[nodiscard]] Place nearest_place(std::string_view section, std::string_view key) const;

  RunFile& file_;
  std::map<std::string, Place, std::less<>> sections_;
  std::map<std::string, Place, std::less<>> keys_;  // "section.key"
  std::set<std::string, std::less<>> spoilt_;
};

Place Reading::nearest_place(std::string_view section, std::string_view key) const {
  if (const auto found = keys_.find(dotted(section, key)); found != keys_.end()) {
    return found->second;
  }
  const auto found = sections_.find(section);
  return found == sections_.end() ? Place{} : found->second;
}

// Keys of language models and of rounds, which a run of experts has none of.
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kWithoutEffectOnImages = {{{"run", "arena_limit"},
                                                                                                   {"model", "from"},
                                                                                                   {"model", "sha256"},
                                                                                                   {"model", "vocabulary"},
                                                                                                   {"model", "tied_embeddings"},
                                                                                                   {"training", "sequence_length"},
                                                                                                   {"training", "accumulation"},
                                                                                                   {"training", "precision"},
                                                                                                   {"training", "evaluate_every"},
                                                                                                   {"checkpoint", "every_rounds"},
                                                                                                   {"checkpoint", "keep"},
                                                                                                   {"islands", "straggler_factor"},
                                                                                                   {"islands", "overlap_steps"},
                                                                                                   {"islands", "uplink"},
                                                                                                   {"guards", "norm_factor"},
                                                                                                   {"guards", "quarantine_after"}}};

std::vector<std::string_view> names_of(std::string_view section) {
  std::vector<std::string_view> names;
  for (const RunKey& key : run_keys()) {
    if (key.section == section) {
      names.push_back(key.name);
    }
  }
  return names;
}

void Reading::unknown_section(const toml::key& name, const toml::node& node) {
  const std::string text = in_quotes(name.str());
  const std::string_view near = nearest(name.str(), run_sections());
  std::string why = std::string("unknown ") + (node.is_table() ? "section " : "key ") + text + " at the top level";
  if (!near.empty()) {
    why += "; nearest is [" + std::string(near) + "]";
    for (const std::string_view key : names_of(near)) {
      spoil(near, key);  // its keys are not missing, their section is misspelt
    }
  } else if (const auto home = std::ranges::find(run_keys(), name.str(), &RunKey::name); !node.is_table() && home != run_keys().end()) {
    why += "; it belongs in [" + std::string(home->section) + "]";
    spoil(home->section, home->name);
  }
  add(place_of(name.source()), "", name.str(), why + "; allowed are the sections " + listed(run_sections()));
}

void Reading::unknown_key(std::string_view section, const toml::key& name) {
  std::string why = "unknown key " + in_quotes(name.str()) + " in [" + std::string(section) + "]";
  const std::vector<std::string_view> names = names_of(section);
  const std::string_view near = nearest(name.str(), names);
  const auto home = std::ranges::find(run_keys(), name.str(), &RunKey::name);
  if (home != run_keys().end()) {
    why += "; it belongs in [" + std::string(home->section) + "]";
    spoil(home->section, home->name);
  } else if (!near.empty()) {
    why += "; nearest is \"" + std::string(near) + "\", " + allowed(*find_run_key(section, near));
    spoil(section, near);
  } else {
    why += "; allowed are " + listed(names);
  }
  add(place_of(name.source()), section, name.str(), std::move(why));
}

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

Error wrong_type(const RunKey& key, const toml::node& node) {
  return Error{Code::invalid_argument,
               std::string(key.name) + " is " + std::string(type_name(node)) + " here, but must be " + allowed(key)};
}

Result<RunKeyValue> list_value(const RunKey& key, const toml::array& array) {
  std::vector<std::string> texts;
  for (const toml::node& entry : array) {
    const auto* text = entry.as_string();
    if (text == nullptr) {
      return Error{Code::invalid_argument,
                   std::string(key.name) + " holds " + std::string(type_name(entry)) + ", but must be " + allowed(key)};
    }
    texts.push_back(text->get());
  }
  return RunKeyValue(std::move(texts));
}

// A TOML value in the form that `assign` takes; the error says what is allowed.
Result<RunKeyValue> value_from(const RunKey& key, const toml::node& node) {
  const auto* text = node.as_string();
  const auto with_allowed = [&](const Error& error) {
    return Error{error.code, error.why + ": " + std::string(key.name) + " is " + allowed(key)};
  };
  if (text != nullptr && key.type == RunKeyType::size) {
    auto bytes = parse_bytes(text->get());
    return bytes ? Result<RunKeyValue>(RunKeyValue(*bytes)) : Result<RunKeyValue>(with_allowed(bytes.error()));
  }
  if (text != nullptr && key.type == RunKeyType::duration) {
    auto time = parse_duration(text->get());
    if (!time) {
      return with_allowed(time.error());
    }
    return RunKeyValue(static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*time).count()));
  }
  if (text != nullptr && key.type == RunKeyType::text) {
    if (text->get().empty()) {
      return Error{Code::invalid_argument, std::string(key.name) + " is empty: it is " + allowed(key)};
    }
    return RunKeyValue(text->get());
  }
  if (const auto* integer = node.as_integer(); integer != nullptr) {
    if (key.type == RunKeyType::integer || key.type == RunKeyType::number || key.type == RunKeyType::size) {
      if (integer->get() < 0) {
        return Error{Code::invalid_argument,
                     std::to_string(integer->get()) + " is out of range: " + std::string(key.name) + " is " + allowed(key)};
      }
      return RunKeyValue(static_cast<std::uint64_t>(integer->get()));
    }
  }
  if (const auto* number = node.as_floating_point(); number != nullptr && key.type == RunKeyType::number) {
    return RunKeyValue(number->get());
  }
  if (const auto* boolean = node.as_boolean(); boolean != nullptr && key.type == RunKeyType::boolean) {
    return RunKeyValue(boolean->get());
  }
  if (const auto* array = node.as_array(); array != nullptr && key.type == RunKeyType::texts) {
    return list_value(key, *array);
  }
  return wrong_type(key, node);
}

// Where a wrong value is: in a list, at the first entry that is not a text.
Place place_of_value(const RunKey& key, const toml::node& node) {
  if (const toml::array* array = node.as_array(); array != nullptr && key.type == RunKeyType::texts) {
    for (const toml::node& entry : *array) {
      if (!entry.is_string()) {
        return place_of(entry.source());
      }
    }
  }
  return place_of(node.source());
}

void Reading::read_key(const RunKey& key, const toml::key& name, const toml::node& node) {
  keys_[dotted(key.section, key.name)] = place_of(name.source());
  auto value = value_from(key, node);
  const Status put = value ? assign(key, std::move(value).value(), file_.spec) : Status(value.error());
  if (!put) {
    spoil(key.section, key.name);
    add(place_of_value(key, node), key.section, key.name, put.error().why);
  }
}

void Reading::read_section(std::string_view section, const toml::table& table) {
  for (const auto& [name, node] : table) {
    if (const RunKey* key = find_run_key(section, name.str())) {
      read_key(*key, name, node);
    } else if (section != "trainer" || !read_trainer_key(name, node)) {
      unknown_key(section, name);
    }
  }
}

// What [trainer] has besides the keys of the table: false for another name.
bool Reading::read_trainer_key(const toml::key& name, const toml::node& node) {
  if (name.str() != "settings" && name.str() != "command") {
    return false;
  }
  keys_[dotted("trainer", name.str())] = place_of(name.source());
  if (name.str() == "command") {
    const auto* text = node.as_string();
    if (text == nullptr || text->get().empty()) {
      add(place_of(node.source()), "trainer", "command", "command is a text, such as \"python3 train.py\", which is split without a shell");
    } else {
      file_.trainer_command = text->get();
    }
    return true;
  }
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    add(place_of(node.source()), "trainer", "settings", "settings is " + std::string(type_name(node)) + " here, but must be a table");
  } else if (const auto fault = settings_as_json(*table, file_.spec.trainer.settings)) {
    add({fault->line, fault->column}, "trainer", "settings", fault->why);
  }
  return true;
}

// Of a trainer of one's own the model is its affair; without its name nothing of [trainer] means anything.
void Reading::settle_trainer() {
  if (!has_own_trainer(file_.spec)) {
    if (sections_.contains("trainer") && !is_spoilt("trainer", "name")) {
      report({"trainer", "name",
              "missing key \"name\" in [trainer]: the name that islands' owners gave the program (agent --trainer NAME=COMMAND)"});
    }
    return;
  }
  for (const std::string_view key : names_of("model")) {
    if (is_set("model", key) && key != "from" && key != "sha256") {
      report({"model",
              key,
              "the model is the trainer's own (trainer.name = \"" + file_.spec.trainer.name + "\"); remove [model]",
              {"trainer.name"}});
    }
  }
}

void Reading::report_missing() {
  for (const RunKey& key : run_keys()) {
    if (key.required && !is_set(key.section, key.name) && !is_spoilt(key.section, key.name)) {
      spoil(key.section, key.name);
      add(nearest_place(key.section, ""), key.section, key.name,
          "missing key \"" + std::string(key.name) + "\" in [" + std::string(key.section) + "]: " + std::string(key.doc) + "; " +
              allowed(key));
    }
  }
}

void Reading::report(RunProblem problem) {
  const auto spoilt = [&](std::string_view name) { return spoilt_.contains(name); };
  if (is_spoilt(problem.section, problem.key) || std::ranges::any_of(problem.with, spoilt)) {
    return;
  }
  spoil(problem.section, problem.key);  // one mistake a key
  add(nearest_place(problem.section, problem.key), problem.section, problem.key, std::move(problem.why));
}

void Reading::settle_strategy() {
  if (is_spoilt("strategy", "name")) {
    return;
  }
  const auto set = [&](std::string_view key) { return is_set("strategy", key) && !is_spoilt("strategy", key); };
  for (RunProblem& problem : apply_strategy_name(file_.spec.strategy, set)) {
    report(std::move(problem));
  }
  settle_diffusion();
}

// Keys that do nothing for a run of this kind.
void Reading::settle_diffusion() {
  const auto refuse = [&](std::string_view section, std::string_view key) {
    if (is_set(section, key)) {
      report({section,
              key,
              std::string(key) + " has no effect with strategy.name = \"" + file_.spec.strategy.name + "\"; remove it",
              {"strategy.name"}});
    }
  };
  if (file_.spec.strategy.group != Group::expert) {
    settle_images(refuse);
    return;
  }
  for (const auto& [section, key] : kWithoutEffectOnImages) {
    refuse(section, key);
  }
  settle_groups();
  const DiffusionSettings& diffusion = file_.spec.diffusion;
  const auto refuse_with = [&](std::string_view key, const std::string& with, std::string_view other) {
    if (is_set("diffusion", key)) {
      report({"diffusion", key, std::string(key) + " has no effect with " + with + "; remove it", {other}});
    }
  };
  if (diffusion.clusters_by != "features") {
    for (const std::string_view key : {"features", "feature_width", "fine_clusters", "balance"}) {
      refuse_with(key, "clusters_by = \"" + diffusion.clusters_by + "\"", "diffusion.clusters_by");
    }
  } else if (diffusion.features != "pixels-pca") {
    refuse_with("feature_width", "features of a file", "diffusion.features");
  }
}

// The parts of the strategy are those of islands that train one expert together: with no more islands than experts there are none.
void Reading::settle_groups() {
  RunSpec& spec = file_.spec;
  if (!is_set("strategy", "inner_steps")) {
    spec.strategy.inner_steps = std::min(spec.strategy.inner_steps, spec.training.steps);
  }
  const std::uint32_t alone = islands_without_groups(spec);
  if (spec.islands.max > alone) {
    return;
  }
  for (const std::string_view key : names_of("strategy")) {
    if (is_set("strategy", key) && key != "name" && key != "group") {
      report({"strategy",
              key,
              std::string(key) + " has no effect where every expert is trained by one island: islands.max is " +
                  std::to_string(spec.islands.max) + ", and for several islands an expert there have to be more than " +
                  std::to_string(alone) + "; remove it, or raise islands.max",
              {"islands.max", "diffusion.experts"}});
    }
  }
}

// Of a run of rounds: a language model has no [diffusion]; one model of all images has some of it, and nothing of tokens.
void Reading::settle_images(const std::function<void(std::string_view section, std::string_view key)>& refuse) {
  constexpr std::array<std::string_view, 4> kOfOneModel = {"patch", "conditional", "class_dropout", "times"};
  const bool images = model_kind(file_.spec) == ModelKind::diffusion;
  for (const std::string_view key : names_of("diffusion")) {
    if (!images || std::ranges::find(kOfOneModel, key) == kOfOneModel.end()) {
      refuse("diffusion", key);
    }
  }
  if (!images) {
    return;
  }
  file_.spec.diffusion.ema = 0;  // what is exported are the parameters that the islands agree on
  for (const auto& [section, key] : {std::pair<std::string_view, std::string_view>{"model", "vocabulary"},
                                     {"model", "tied_embeddings"},
                                     {"training", "sequence_length"}}) {
    if (is_set(section, key)) {
      report({section, key, std::string(key) + " has no effect on images; remove it", {"data.format"}});
    }
  }
}

// A run shorter than the default warm-up would never reach its learning rate.
void Reading::settle_warmup() {
  TrainingSpec& training = file_.spec.training;
  if (!is_set("training", "warmup_steps")) {
    training.warmup_steps = std::min(training.warmup_steps, training.steps / 10);
  }
}

void Reading::settle_rounds() {
  if (!file_.problems.empty()) {
    return;
  }
  if (file_.spec.strategy.group == Group::expert) {
    file_.spec.rounds = islands_without_groups(file_.spec);  // tasks that train
    if (file_.spec.islands.max <= islands_without_groups(file_.spec)) {
      return;
    }
  }
  const std::string_view cut = is_set("strategy", "fragments") ? "fragments" : "inner_steps";  // what a person would change
  const Result<Composition> composition = compose(file_.spec.strategy);
  if (!composition) {
    report({"strategy", "", composition.error().why});
    return;
  }
  const Result<std::vector<std::uint64_t>> fragments = fragment_values(file_.spec, composition->fragments);
  if (!fragments) {
    report({"strategy", is_set("strategy", "fragments") ? "fragments" : "grouping", fragments.error().why});
    return;
  }
  const Result<Schedule> schedule = schedule_of(*composition, file_.spec.training.steps, static_cast<std::uint32_t>(fragments->size()));
  if (!schedule) {
    report({"strategy", cut, schedule.error().why});
    return;
  }
  file_.spec.model_rounds = schedule->fragments();
  if (file_.spec.strategy.group == Group::expert) {
    file_.spec.group_rounds = schedule->rounds();
    return;
  }
  file_.spec.merge_rounds = composition->merge_rounds(schedule->fragments());
  file_.spec.rounds = schedule->rounds() + file_.spec.merge_rounds;
}

void Reading::read(const toml::table& root) {
  for (const auto& [name, node] : root) {
    const bool known = std::ranges::find(run_sections(), name.str()) != run_sections().end();
    if (!known) {
      unknown_section(name, node);
      continue;
    }
    sections_[std::string(name.str())] = place_of(name.source());
    if (const toml::table* table = node.as_table()) {
      read_section(name.str(), *table);
      continue;
    }
    add(place_of(name.source()), name.str(), "",
        "[" + std::string(name.str()) + "] must be one section, and is " + std::string(type_name(node)) + " here");
    for (const std::string_view key : names_of(name.str())) {
      spoil(name.str(), key);
    }
  }
  report_missing();
  settle_trainer();
  settle_strategy();
  settle_warmup();
  for (RunProblem& problem : find_contradictions(file_.spec)) {
    report(std::move(problem));
  }
  settle_rounds();
}

std::string markdown_cell(std::string_view text) {
  std::string cell;
  for (const char c : text) {
    cell += c == '|' ? std::string("\\|") : std::string(1, c);
  }
  return cell;
}

}  // namespace

RunFile parse_run_file(std::string_view text, std::string source) {
  RunFile file;
  file.source = std::move(source);
  const auto refuse = [&](Place place, std::string why) { file.problems.push_back({place.line, place.column, "", "", std::move(why)}); };
  if (text.size() > kLargestTomlFile) {
    refuse({}, "the file has more than 1,048,576 bytes; a run file has at most 1 MiB");
    return file;
  }
  if (const std::optional<TomlFault> fault = find_toml_fault(text)) {
    refuse({fault->line, fault->column}, fault->why);
    return file;
  }
  try {
    const toml::table root = toml::parse(text);
    Reading(file).read(root);
  } catch (const toml::parse_error& error) {
    refuse(place_of(error.source()), "not TOML: " + printable(error.description(), 300));
  } catch (const std::exception& error) {
    refuse({}, "not TOML: " + printable(error.what(), 300));
  }
  std::ranges::sort(file.problems);
  return file;
}

Result<RunFile> read_run_file(const std::filesystem::path& path) {
  ATOLL_ASSIGN(const std::string text, read_toml_file(path));
  return parse_run_file(text, printable(path.string(), 300));
}

std::string problems_text(const RunFile& file) { return problems_text(file.source, file.problems); }

void resolve_files(RunSpec& spec, const std::filesystem::path& run_file) {
  const std::filesystem::path folder = std::filesystem::absolute(run_file).parent_path();
  const auto resolve = [&](std::string& file) {
    if (std::filesystem::path(file).is_relative()) {
      file = (folder / file).lexically_normal().string();
    }
  };
  std::ranges::for_each(spec.data.files, resolve);
  if (begins_from_file(spec)) {
    resolve(spec.model.from);
  }
  std::string& features = spec.diffusion.features;
  if (const std::string file(features_file(features)); !file.empty() && std::filesystem::path(file).is_relative()) {
    features.replace(features.size() - file.size(), file.size(), (folder / file).lexically_normal().string());
  }
}

std::string run_keys_markdown() {
  std::string text = "| key | default | allowed | what |\n|---|---|---|---|\n";
  const RunSpec defaults;
  for (const std::string_view section : run_sections()) {
    text += "| **[" + std::string(section) + "]** | | | |\n";
    for (const RunKey& key : run_keys()) {
      if (key.section != section) {
        continue;
      }
      const bool optional_text = key.type == RunKeyType::text && toml_value(key, defaults) == "\"\"";
      const std::string fallback = key.required ? "required" : optional_text ? "none" : "`" + toml_value(key, defaults) + "`";
      text +=
          "| `" + std::string(key.name) + "` | " + fallback + " | " + markdown_cell(allowed(key)) + " | " + markdown_cell(key.doc) + " |\n";
    }
    if (section == "trainer") {
      text +=
          "| `command` | none | a text, split without a shell | For `local` alone: the program that is started. No agent takes a "
          "program from a run file. |\n"
          "| `settings` | none | a table, at most 64 KiB | Handed to the trainer as it is. |\n";
    }
  }
  return text;
}

}  // namespace atl
