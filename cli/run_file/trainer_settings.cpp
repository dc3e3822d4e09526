#include "cli/run_file/trainer_settings.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "strategies/specification/run_spec.hpp"

namespace atl {
namespace {

using nlohmann::json;

class Conversion {
 public:
  json of(const toml::node& node, std::size_t level) {
    if (level > kDeepestTrainerSettings) {
      return fail(node, "settings are nested deeper than " + std::to_string(kDeepestTrainerSettings) + " levels");
    }
    if (const auto* table = node.as_table()) {
      json object = json::object();
      for (const auto& [name, value] : *table) {
        object[std::string(name.str())] = of(value, level + 1);
      }
      return object;
    }
    if (const auto* array = node.as_array()) {
      json list = json::array();
      for (const toml::node& value : *array) {
        list.push_back(of(value, level + 1));
      }
      return list;
    }
    return leaf(node);
  }
  std::optional<SettingsFault> fault;

 private:
  json leaf(const toml::node& node) {
    if (const auto* text = node.as_string()) {
      return text->get();
    }
    if (const auto* integer = node.as_integer()) {
      return integer->get();
    }
    if (const auto* boolean = node.as_boolean()) {
      return boolean->get();
    }
    const auto* number = node.as_floating_point();
    if (number == nullptr) {
      return fail(node, "settings hold a date or time, which JSON has no form for; write it as a text");
    }
    return std::isfinite(number->get()) ? json(number->get()) : fail(node, "settings hold a number that is not finite; write it as a text");
  }

  json fail(const toml::node& node, std::string why) {
    if (!fault) {
      const toml::source_position begin = node.source().begin;
      fault = SettingsFault{begin.line == 0 ? 1U : begin.line, begin.line == 0 ? 1U : begin.column, std::move(why)};
    }
    return nullptr;
  }
};

}  // namespace

std::optional<SettingsFault> settings_as_json(const toml::table& settings, std::string& text) {
  Conversion conversion;
  const json object = conversion.of(settings, 1);
  text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  if (!conversion.fault && text.size() > kLargestTrainerSettings) {
    const toml::source_position begin = settings.source().begin;
    conversion.fault = SettingsFault{begin.line, begin.column,
                                     "settings have " + std::to_string(text.size()) + " bytes as JSON; at most " +
                                         std::to_string(kLargestTrainerSettings) + " are handed over"};
  }
  return conversion.fault;
}

}  // namespace atl
