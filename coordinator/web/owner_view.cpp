#include "coordinator/web/owner_view.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string_view>
#include <vector>

namespace atl::coordinator {
namespace {

using nlohmann::json;

// The objects of a list.
json objects_of(const json& object, const char* key) {
  json objects = json::array();
  const auto found = object.find(key);
  for (const json& item : found != object.end() && found->is_array() ? *found : json::array()) {
    if (item.is_object()) {
      objects.push_back(item);
    }
  }
  return objects;
}

json only(const json& object, std::span<const char* const> keys) {
  json kept = json::object();
  for (const char* key : keys) {
    kept[key] = object.value(key, json());
  }
  return kept;
}

bool is(const json& object, const char* key, const std::string& text) { return object.value(key, json()) == json(text); }

// The waits of another island that were for this one.
json waits_for(const json& other, const std::string& island) {
  json waits = json::array();
  for (const json& wait : objects_of(other, "waits")) {
    if ((is(wait, "what", "ready") && is(wait, "island", island)) || (is(wait, "what", "link") && is(wait, "from", island))) {
      waits.push_back(
          {{"what", wait["what"]}, {"island", island}, {"from", island}, {"text", ""}, {"seconds", wait.value("seconds", 0.0)}});
    }
  }
  return waits;
}

bool is_part_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; }

// The name where it stands as a word.
void replace_name(std::string& text, const std::string& name, const std::string& by) {
  for (std::size_t at = name.empty() ? std::string::npos : text.find(name); at != std::string::npos; at = text.find(name, at)) {
    const std::size_t end = at + name.size();
    const bool begins = at == 0 || !is_part_of_name(text[at - 1]);
    const bool ends = end == text.size() || !is_part_of_name(text[end]) ||
                      (text[end] == '.' && (end + 1 == text.size() || !is_part_of_name(text[end + 1])));
    if (begins && ends) {
      text.replace(at, name.size(), by);
    }
    at += begins && ends ? by.size() : name.size();
  }
}

// Its own stands where the words say whose it is: "open tcp://10.0.0.2:7000 of mine".
void replace_addresses(std::string& text, const std::string& island) {
  static constexpr std::string_view kBy = "an address";
  for (std::size_t at = text.find("tcp://"); at != std::string::npos; at = text.find("tcp://", at)) {
    const std::size_t end = std::min(text.find_first_of(" ,;)\n", at), text.size());
    if (text.compare(end, island.size() + 5, " of " + island + " ") == 0) {
      at = end;
      continue;
    }
    text.replace(at, end - at, kBy);
  }
}

// All words for people below it, but what it waited for.
void hide_others(json& value, const std::string& island, const std::vector<std::string>& others) {
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    replace_addresses(text, island);
    for (std::size_t i = 0; i < others.size(); ++i) {
      replace_name(text, others[i], "another, no. " + std::to_string(i + 1));
    }
    value = std::move(text);
    return;
  }
  if (!value.is_structured()) {
    return;  // items() of a number would be the number
  }
  for (auto& item : value.items()) {
    if (value.is_array() || (item.key() != "waits" && item.key() != "name" && item.key() != "id" && item.key() != "address")) {
      hide_others(item.value(), island, others);
    }
  }
}

// Of the others, in their order.
std::vector<std::string> other_names(const json& document, const std::string& island) {
  std::vector<std::string> names;
  for (const json& one : objects_of(document, "islands")) {
    if (!is(one, "name", island)) {
      const json name = one.value("name", json());
      names.push_back(name.is_string() ? name.get<std::string>() : "");
    }
  }
  return names;
}

}  // namespace

std::optional<json> islands_for_owner(const json& islands, const std::string& island) {
  json document = islands;
  const std::vector<std::string> others = other_names(islands, island);
  json rows = json::array();
  for (json row : objects_of(islands, "islands")) {
    if (is(row, "name", island)) {
      row.erase("paths");
      hide_others(row, island, others);
      rows.push_back(std::move(row));
    }
  }
  if (rows.empty()) {
    return std::nullopt;
  }
  document["islands"] = std::move(rows);
  return document;
}

std::optional<json> status_for_owner(const json& status, const std::string& island) {
  static constexpr std::array kOfRun = {"id",           "name",   "strategy",         "images",      "state",
                                        "round",        "rounds", "tokens_committed", "token_limit", "created_unix_ms",
                                        "ended_unix_ms"};
  static constexpr std::array kOfOthers = {"active", "tokens_per_second"};
  json document = {{"schema", 1}, {"now_unix_ms", status.value("now_unix_ms", json())}};
  const json run = status.value("run", json());
  document["run"] = only(run.is_object() ? run : json::object(), kOfRun);
  bool there = false;
  std::size_t others = 0;
  const std::vector<std::string> names = other_names(status, island);
  json islands = json::array();
  for (const json& one : objects_of(status, "islands")) {
    if (is(one, "name", island)) {
      there = true;
      islands.push_back(one);
      hide_others(islands.back(), island, names);
      continue;
    }
    json other = only(one, kOfOthers);
    other["name"] = "another, no. " + std::to_string(++others);
    other["waits"] = waits_for(one, island);
    islands.push_back(std::move(other));
  }
  document["islands"] = std::move(islands);
  return there ? std::optional(std::move(document)) : std::nullopt;
}

}  // namespace atl::coordinator
