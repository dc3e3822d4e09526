// How values stand in a document: null for what is not known.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "transport/base/time.hpp"

namespace atl::coordinator {

inline nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); }
inline nlohmann::json time(const std::optional<TimePoint>& value) { return value ? nlohmann::json(unix_ms(*value)) : nlohmann::json(); }
inline nlohmann::json text_or_null(const std::string& text) { return text.empty() ? nlohmann::json() : nlohmann::json(text); }

}  // namespace atl::coordinator
