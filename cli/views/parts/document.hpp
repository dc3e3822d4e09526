// Reading a coordinator's document without trusting it: a key that is missing, null or of another type is simply absent.
// Threads: pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace atl {

// The text under a key; "" if there is none.
std::string text_at(const nlohmann::json& object, std::string_view key);
// The finite number under a key.
std::optional<double> number_at(const nlohmann::json& object, std::string_view key);
bool flag_at(const nlohmann::json& object, std::string_view key);
// The list or object under a key; an empty one if there is none.
const nlohmann::json& list_at(const nlohmann::json& object, std::string_view key);
const nlohmann::json& object_at(const nlohmann::json& object, std::string_view key);

// Numbers as people read them; "-" for an absent one.
std::string count_text(std::optional<double> value);                             // "7", "4.30 M"
std::string loss_text(std::optional<double> value);                              // "1.830"
std::string bytes_text(std::optional<double> value);                             // "29.4 MB"
std::string bits_text(std::optional<double> value);                              // "48.0 Mbit/s"
std::string seconds_text(std::optional<double> value);                           // "9m50s"
std::string share_text(std::optional<double> part, std::optional<double> rest);  // "98 %"
// From `then` to `now`, both in milliseconds of Unix time.
std::string age_text(std::optional<double> now_ms, std::optional<double> then_ms);
std::string time_text(std::optional<double> unix_ms);  // "2026-01-31 12:30:05"

}  // namespace atl
