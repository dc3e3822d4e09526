#include "coordinator/web/owner_view.hpp"

#include <array>
#include <span>

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

}  // namespace

std::optional<json> islands_for_owner(const json& islands, const std::string& island) {
  json document = islands;
  json rows = json::array();
  for (json row : objects_of(islands, "islands")) {
    if (is(row, "name", island)) {
      row.erase("paths");
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
  json islands = json::array();
  for (const json& one : objects_of(status, "islands")) {
    if (is(one, "name", island)) {
      there = true;
      islands.push_back(one);
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
