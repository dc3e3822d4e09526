// Choices: enums whose values a person writes as texts, and the one table of those texts.
//
// An enum becomes a choice by a function beside it, found by its argument's type, that gives the texts in the order of the values:
//
//   enum class Weighting : std::uint8_t { tokens, uniform };
//   constexpr std::array<std::string_view, 2> kWeightings = {"tokens", "uniform"};
//   constexpr std::span<const std::string_view> names_of(Weighting) { return kWeightings; }
//
// Run file keys, JSON, the ledger, documents and messages all use these texts; code uses the enum.
// Threads: constants and pure functions.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace atl {

template <typename Enum>
concept Choice = std::is_enum_v<Enum> && std::is_same_v<std::underlying_type_t<Enum>, std::uint8_t> && requires(Enum value) {
  { names_of(value) } -> std::same_as<std::span<const std::string_view>>;
};

// The text of a value.
template <Choice Enum>
constexpr std::string_view name_of(Enum value) {
  return names_of(value)[static_cast<std::uint8_t>(value)];
}

}  // namespace atl
