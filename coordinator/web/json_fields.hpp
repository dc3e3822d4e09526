// Fields of documents, whatever they hold: what is not there, or of another type, is empty.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace atl::coordinator {

inline std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

inline std::int64_t integer_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<std::int64_t>() : 0;
}

inline const nlohmann::json& list_of(const nlohmann::json& object, const char* key) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : kNone;
}

}  // namespace atl::coordinator
