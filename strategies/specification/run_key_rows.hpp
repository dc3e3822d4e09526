// What the rows of the table of keys are made of: how a key's field is found, and which texts it takes.
// Only run_keys.cpp and the two files of rows include this.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "strategies/specification/run_keys.hpp"
#include "strategies/specification/run_rules.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/store_address.hpp"

namespace atl::rows {

template <auto Member>
RunKeyField of_run(RunSpec& spec) {
  return &(spec.*Member);
}
template <auto Section, auto Member>
RunKeyField of(RunSpec& spec) {
  auto& field = spec.*Section.*Member;
  if constexpr (Choice<std::remove_reference_t<decltype(field)>>) {
    return reinterpret_cast<std::uint8_t*>(&field);  // the enum's underlying type, which may alias anything
  } else {
    return &field;
  }
}

using Choices = std::span<const std::string_view>;
inline constexpr std::array<std::string_view, 3> kPrecisions = {"auto", "float32", "bf16"};
inline constexpr std::array<std::string_view, 3> kClusterings = {"features", "labels", "random"};
inline constexpr std::array<std::string_view, 2> kTimes = {"uniform", "logit-normal"};

inline bool is_alphanumeric(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

inline bool is_name(std::string_view text) {
  return !text.empty() && is_alphanumeric(text.front()) &&
         std::ranges::all_of(text, [](char c) { return is_alphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}
inline bool is_own_overlap_entry(std::string_view text) {
  const std::optional<OwnOverlap> own = parse_own_overlap(text);
  return own && is_name(own->island);
}
inline bool is_uplink(std::string_view text) {
  const Result<double> rate = parse_bits_per_second(text);
  return rate && *rate >= kLeastUplink;
}
inline bool is_grace(std::string_view text) {
  StrategySpec spec;
  spec.grace = std::string(text);
  return grace_of(spec).has_value();
}
inline bool is_count(std::string_view text) { return parse_count(text).has_value(); }
inline bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
inline bool is_https(std::string_view text) {
  return text.starts_with("https://") && text.size() > 8 && std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7f; });
}
inline bool is_path(std::string_view text) {
  return !text.empty() && text.size() <= 4096 && std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}
inline bool is_origin(std::string_view text) {
  if (text.starts_with("run:")) {
    return text.size() <= 68 && is_name(run_to_begin_from(text));
  }
  if (text.starts_with("hf:")) {
    return hub_model_to_begin_from(text).has_value();
  }
  return text.find("://") == std::string_view::npos ? is_path(text) : is_https(text);
}
inline bool is_store(std::string_view text) { return static_cast<bool>(check_store_address(text)); }
inline bool is_features(std::string_view text) { return text == "pixels-pca" || is_path(features_file(text)); }
inline bool is_device(std::string_view text) {
  if (text == "auto" || text == "cpu") {
    return true;
  }
  if (!text.starts_with("cuda:")) {
    return false;
  }
  const std::string_view index = text.substr(5);
  return !index.empty() && index.size() <= 3 && std::ranges::all_of(index, [](char c) { return c >= '0' && c <= '9'; });
}

inline constexpr double kKibi = 1024.0;
inline constexpr double kMebi = kKibi * kKibi;
inline constexpr double kTebi = kMebi * kMebi;
inline constexpr double kExact = 9007199254740991.0;  // 2^53 − 1
inline constexpr std::string_view kNameForm = "letters, digits, '-', '_' and '.', beginning with a letter or digit";

// In the order of docs/run-file.md, which is printed from them.
std::span<const RunKey> of_work();      // run, model, trainer, data, training
std::span<const RunKey> of_strategy();  // strategy, diffusion, islands, checkpoint, guards

}  // namespace atl::rows
