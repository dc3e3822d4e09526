// A settings file: TOML that gives a command's options their values, for daemons whose command line nobody types.
//
// A key is an option's long name with underscores for its dashes (`allow_data` for --allow-data). A flag is a boolean, a time a text
// ("30s"), a list an array of texts or, where its entries are NAME=VALUE, a table. What is on the command line counts, not what is in the
// file. Threads: reads the file system.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "cli/line/command.hpp"
#include "transport/base/result.hpp"

namespace atl {

// Puts the file's values where the options' values go. `given` are the long names on the command line; `not_in_file` are long names that
// the file may not have; `tables` are read by somebody else. Errors: invalid_argument with file, line and the nearest key for what is no
// key or no value; not_found, io.
Status take_settings(const std::filesystem::path& path, std::span<const CommandOption> options, const std::set<std::string>& given,
                     std::span<const std::string_view> not_in_file, std::span<const std::string_view> tables = {});

// As above, of the keys of one table; without the table nothing changes.
Status take_settings_table(const std::filesystem::path& path, std::string_view name, std::span<const CommandOption> options);

}  // namespace atl
