// The run file: TOML in, a complete RunSpec or every mistake at once out.
//
// Keys, types, bounds and words come from strategies/specification/run_keys.hpp, rules between keys from
// strategies/specification/run_rules.hpp, and what a strategy's name means from cli/run_file/strategy_names.hpp. Nothing is dropped
// silently: an unknown key is a mistake, and so is one that another setting makes ineffective. Threads: pure; `read_run_file` reads the
// file system.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run_file/toml_file.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct RunFile {
  std::string source;                 // the path as it was given
  RunSpec spec;                       // complete if there is no problem; otherwise what could be read
  std::string trainer_command;        // [trainer].command, for `atoll local` alone: no agent starts what a run file names
  std::vector<TomlProblem> problems;  // by line and column
  [[nodiscard]] bool valid() const { return problems.empty(); }
};

// Reads TOML text. Never throws, whatever the bytes; a file of more than 1 MiB is one problem.
RunFile parse_run_file(std::string_view text, std::string source);

// Reads a file. Errors (of the reading itself, not of its content): not_found, io, invalid_argument for a folder or device.
Result<RunFile> read_run_file(const std::filesystem::path& path);

// "run.toml:12:3: unknown key …", one line for each problem.
std::string problems_text(const RunFile& file);

// Puts the run file's folder in front of relative `files`: for `local`, where the islands see the file system of the caller.
void resolve_files(RunSpec& spec, const std::filesystem::path& run_file);

// The table of all keys in docs/run-file.md, in Markdown.
std::string run_keys_markdown();

}  // namespace atl
