// The text of a TOML file that a person wrote: read whole, bounded, and checked for what would bring the parser down.
// Threads: pure; `read_toml_file` reads the file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.hpp"

namespace atl {

inline constexpr std::size_t kLargestTomlFile = std::size_t{1} << 20;

// One mistake, where it is (both from 1).
struct TomlProblem {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
  std::string section;  // empty: none
  std::string key;      // empty: the section or file as a whole
  std::string why;
  friend auto operator<=>(const TomlProblem&, const TomlProblem&) = default;
};

// "run.toml:12:3: unknown key …", one line for each problem.
std::string problems_text(const std::string& source, const std::vector<TomlProblem>& problems);

// "a, b, c".
std::string listed(std::span<const std::string_view> names);

// At most one byte more than kLargestTomlFile, so that the reader of the text sees that it is too large.
// Errors: not_found, io, invalid_argument for a folder or device.
Result<std::string> read_toml_file(const std::filesystem::path& path);

}  // namespace atl
