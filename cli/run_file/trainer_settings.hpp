// [trainer.settings] of a run file: any TOML, handed to the trainer as JSON with the types that it has there.
//
// Tables become objects, and texts, integers, finite numbers, booleans and lists what they are called. JSON has no dates and times and no
// number that is not finite: those are mistakes.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/run_file/toml.hpp"

namespace atl {

// What JSON has no form for, and where it is (from 1).
struct SettingsFault {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
  std::string why;
};

// Puts the JSON of a table into `json`, or says what is wrong with it.
std::optional<SettingsFault> settings_as_json(const toml::table& settings, std::string& json);

}  // namespace atl
