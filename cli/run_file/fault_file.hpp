// The fault file of `atoll local --faults`: what goes wrong, at which island, in which round and phase. TOML, one [[fault]] for each:
//
//   [[fault]]
//   island = "island-2"
//   round = 3               # this round, or the first later one in which the island reaches the phase
//   phase = "reducing"      # before-send, sending, receiving, reducing, before-commit, checkpointing
//   do = "kill"             # kill, pause, slow, cut-off, corrupt
//   for = "2s"              # how long it is away, stopped, slow or cut off
//   rate = "1mbit"          # slow: what the island may send
//   link = "both"           # cut-off: both, bulk (to other islands), control (to the coordinator)
//
// What each does: agent/faults/rehearsal.hpp. Nothing is dropped silently, and every mistake is told at once.
// Threads: pure; `read_fault_file` reads the file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "agent/faults/rehearsal.hpp"
#include "cli/run_file/toml_file.hpp"
#include "transport/base/result.hpp"

namespace atl {

struct ScriptedFault {
  std::string island;
  agent::Fault fault;  // numbered from 1 in the order of the file; `length` of a kill or pause is until it is started again or goes on
};

// The run that the faults are for.
struct FaultedRun {
  std::vector<std::string> islands;  // their names
  std::uint64_t rounds = 0;          // 0: a run without rounds, which has no phases to strike in
};

struct FaultFile {
  std::string source;  // the path as it was given
  std::vector<ScriptedFault> faults;
  std::vector<TomlProblem> problems;  // by line and column
  [[nodiscard]] bool valid() const { return problems.empty(); }
};

// Never throws, whatever the bytes.
FaultFile parse_fault_file(std::string_view text, std::string source, const FaultedRun& run);
// Errors (of the reading itself): those of read_toml_file.
Result<FaultFile> read_fault_file(const std::filesystem::path& path, const FaultedRun& run);

// The table of the keys of a [[fault]] in docs/faults.md, in Markdown.
std::string fault_keys_markdown();

}  // namespace atl
