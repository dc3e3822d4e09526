#include "cli/views/parts/document.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "transport/base/bytes.hpp"
#include "transport/base/time.hpp"

namespace atl {
namespace {

constexpr const char* kNone = "-";
constexpr double kMostSeconds = 1e9;

const nlohmann::json* find(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

std::string format(const char* pattern, double value) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string scaled(double value, std::string_view unit) {
  static constexpr std::array<const char*, 6> kPrefixes = {"", "k", "M", "G", "T", "P"};
  std::size_t prefix = 0;
  while (std::abs(value) >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  const char* pattern = prefix == 0 && value == std::floor(value) ? "%.0f" : value < 9.995 ? "%.2f" : value < 99.95 ? "%.1f" : "%.0f";
  const std::string suffix = kPrefixes[prefix] + std::string(unit);
  return format(pattern, value) + (suffix.empty() ? "" : " ") + suffix;
}

}  // namespace

std::string text_at(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* value = find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<double> number_at(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr || !value->is_number()) {
    return std::nullopt;
  }
  const auto number = value->get<double>();
  return std::isfinite(number) ? std::optional<double>(number) : std::nullopt;
}

bool flag_at(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* value = find(object, key);
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

const nlohmann::json& list_at(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json kEmpty = nlohmann::json::array();
  const nlohmann::json* value = find(object, key);
  return value != nullptr && value->is_array() ? *value : kEmpty;
}

const nlohmann::json& object_at(const nlohmann::json& object, std::string_view key) {
  static const nlohmann::json kEmpty = nlohmann::json::object();
  const nlohmann::json* value = find(object, key);
  return value != nullptr && value->is_object() ? *value : kEmpty;
}

std::string count_text(std::optional<double> value) { return value ? scaled(*value, "") : kNone; }
std::string loss_text(std::optional<double> value) { return value ? format("%.3f", *value) : kNone; }
std::string bytes_text(std::optional<double> value) {
  return value && *value >= 0 ? human_bytes(static_cast<std::uint64_t>(std::min(*value, 9e18))) : kNone;
}
std::string bits_text(std::optional<double> value) { return value ? scaled(*value, "bit/s") : kNone; }
std::string seconds_text(std::optional<double> value) {
  return value ? human_duration(from_seconds(std::clamp(*value, 0.0, kMostSeconds))) : kNone;
}

std::string share_text(std::optional<double> part, std::optional<double> rest) {
  if (!part || !rest || *part < 0 || *rest < 0 || *part + *rest <= 0) {
    return kNone;
  }
  return format("%.0f %%", 100.0 * *part / (*part + *rest));
}

std::string age_text(std::optional<double> now_ms, std::optional<double> then_ms) {
  return now_ms && then_ms ? seconds_text((*now_ms - *then_ms) / 1000.0) : kNone;
}

std::string time_text(std::optional<double> ms) {
  if (!ms) {
    return kNone;
  }
  std::string text = iso_time(from_unix_ms(static_cast<std::int64_t>(std::clamp(*ms, 0.0, 9e12)))).substr(0, 19);
  if (text.size() > 10) {
    text[10] = ' ';
  }
  return text;
}

}  // namespace atl
