#include "strategies/specification/run_spec.hpp"

#include <nlohmann/json.hpp>

#include "strategies/specification/run_keys.hpp"
#include "transport/base/name.hpp"
#include "transport/base/nesting.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::size_t kLimitBytes = std::size_t{1} << 20;
constexpr std::uint64_t kMaxRounds = 1'000'000'000'000;

json to_json_value(const RunKeyValue& value) {
  return std::visit([](const auto& held) -> json { return held; }, value);
}

Error refuse(const std::string& why) { return Error{Code::invalid_argument, "run specification: " + why}; }

// A JSON value as a key's value; monostate-free: a type that no key has becomes `false`, which only a boolean accepts.
Result<RunKeyValue> from_json_value(const json& value, const std::string& name) {
  if (value.is_string()) {
    return RunKeyValue(value.get<std::string>());
  }
  if (value.is_boolean()) {
    return RunKeyValue(value.get<bool>());
  }
  if (value.is_number_unsigned()) {
    return RunKeyValue(value.get<std::uint64_t>());
  }
  if (value.is_number()) {
    return RunKeyValue(value.get<double>());
  }
  if (value.is_array()) {
    std::vector<std::string> texts;
    for (const json& entry : value) {
      if (!entry.is_string()) {
        return refuse(name + " holds an entry that is not a text");
      }
      texts.push_back(entry.get<std::string>());
    }
    return RunKeyValue(std::move(texts));
  }
  return refuse(name + " has a type that no key has");
}

Status read_section(const json& document, std::string_view section, RunSpec& spec) {
  const auto found = document.find(section);
  if (found == document.end() || !found->is_object()) {
    return refuse("section " + std::string(section) + " is missing");
  }
  std::size_t known = 0;
  for (const RunKey& key : run_keys()) {
    if (key.section != section) {
      continue;
    }
    ++known;
    const std::string name = std::string(section) + "." + json_name(key);
    const auto value = found->find(json_name(key));
    if (value == found->end()) {
      return refuse(name + " is missing");
    }
    ATOLL_ASSIGN(RunKeyValue given, from_json_value(*value, name));
    if (const Status put = assign(key, std::move(given), spec); !put) {
      return refuse(name + ": " + put.error().why);
    }
  }
  return found->size() == known ? Status() : refuse("section " + std::string(section) + " has a key that is not known");
}

Result<GroupWork> read_work(const json& object) {
  GroupWork work;
  for (const auto& [key, field] : {std::pair{"run", &work.run}, std::pair{"task", &work.task}, std::pair{"sha256", &work.sha256}}) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || found == object.end() || !found->is_string() || found->get<std::string>().empty() ||
        found->get<std::string>().size() > 64) {
      return refuse("work." + std::string(key) + " is not a name");
    }
    *field = found->get<std::string>();
    if (field != &work.sha256 && !is_task_name(*field)) {  // they become parts of paths
      return refuse("work." + std::string(key) + " is not a name");
    }
  }
  const auto images = object.find("images");
  if (images == object.end() || !images->is_array() || images->size() > kMaxSpread) {
    return refuse("work.images is no list of digests");
  }
  for (const json& digest : *images) {
    if (!digest.is_string() || digest.get<std::string>().size() > 64) {
      return refuse("work.images is no list of digests");
    }
    work.images.push_back(digest.get<std::string>());
  }
  if (object.size() != 4) {
    return refuse("work has a key that is not known");
  }
  return work;
}

// [trainer.settings]: an object, whose values are nobody's affair here.
Result<std::string> read_settings(const json& settings) {
  if (!settings.is_object()) {
    return refuse("trainer_settings is no object");
  }
  std::string text = settings.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kLargestTrainerSettings || json_nests_deeper(text, kDeepestTrainerSettings)) {
    return refuse("trainer_settings is too large or nested too deep");
  }
  return text;
}

constexpr std::uint64_t kMostModelRounds = 100'000;  // fragments that a strategy may ask for, and one of embeddings

}  // namespace

std::string to_json(const RunSpec& spec) {
  json document = json::object();
  for (const RunKey& key : run_keys()) {
    document[std::string(key.section)][json_name(key)] = to_json_value(value_of(key, spec));
  }
  document["rounds"] = spec.rounds;
  document["merge_rounds"] = spec.merge_rounds;
  if (spec.model_rounds > 1) {
    document["model_rounds"] = spec.model_rounds;
  }
  if (spec.group_rounds > 0) {
    document["group_rounds"] = spec.group_rounds;
  }
  if (const json settings = json::parse(spec.trainer.settings, nullptr, false); settings.is_object()) {
    document["trainer_settings"] = settings;
  }
  if (!spec.work.run.empty()) {
    document["work"] = {{"run", spec.work.run}, {"task", spec.work.task}, {"sha256", spec.work.sha256}, {"images", spec.work.images}};
  }
  // Texts were checked on the way in; a byte that is not UTF-8 must still not throw here.
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<RunSpec> run_spec_from_json(std::string_view text) {
  if (text.size() > kLimitBytes) {
    return refuse("it is larger than 1 MiB");
  }
  const json document = json::parse(text, nullptr, false);
  if (document.is_discarded() || !document.is_object()) {
    return refuse("it is not a JSON object");
  }
  RunSpec spec;
  for (const std::string_view section : run_sections()) {
    ATOLL_TRY(read_section(document, section, spec));
  }
  const auto rounds = document.find("rounds");
  if (rounds == document.end() || !rounds->is_number_unsigned() || rounds->get<std::uint64_t>() > kMaxRounds) {
    return refuse("rounds is missing or not a count");
  }
  spec.rounds = rounds->get<std::uint64_t>();
  const auto merges = document.find("merge_rounds");
  if (merges == document.end() || !merges->is_number_unsigned() || merges->get<std::uint64_t>() > spec.rounds) {
    return refuse("merge_rounds is missing or not a count of rounds");
  }
  spec.merge_rounds = merges->get<std::uint64_t>();
  std::size_t more = 0;
  if (const auto group = document.find("group_rounds"); group != document.end()) {
    if (!group->is_number_unsigned() || group->get<std::uint64_t>() == 0 || group->get<std::uint64_t>() > kMaxRounds) {
      return refuse("group_rounds is not a count of rounds");
    }
    spec.group_rounds = group->get<std::uint64_t>();
    ++more;
  }
  if (const auto model = document.find("model_rounds"); model != document.end()) {
    if (!model->is_number_unsigned() || model->get<std::uint64_t>() < 2 || model->get<std::uint64_t>() > kMostModelRounds) {
      return refuse("model_rounds is not a count of rounds");
    }
    spec.model_rounds = model->get<std::uint64_t>();
    ++more;
  }
  if (const auto settings = document.find("trainer_settings"); settings != document.end()) {
    ATOLL_ASSIGN(spec.trainer.settings, read_settings(*settings));
    ++more;
  }
  if (const auto work = document.find("work"); work != document.end()) {
    ATOLL_ASSIGN(spec.work, read_work(*work));
    ++more;
  }
  if (document.size() != run_sections().size() + 2 + more) {
    return refuse("it has a section that is not known");
  }
  return spec;
}

}  // namespace atl
