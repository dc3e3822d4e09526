// RunKey: the one table of a run file's keys. TOML reading, the JSON form of a RunSpec and the table in docs/run-file.md all come from it.
//
// A row names a key, where its value lives in a RunSpec, its type, what is allowed and one line for people. Defaults are
// not repeated here: they are those of a fresh RunSpec. Numbers stay below 2^53, so that every JSON reader has them exactly.
// Threads: the table is constant; the functions are pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strategies/specification/run_spec.hpp"
#include "transport/base/result.hpp"

namespace atl {

enum class RunKeyType {
  text,
  texts,  // a list of texts
  integer,
  number,  // floating point; an integer is accepted
  boolean,
  size,      // TOML "64MiB"; JSON bytes
  duration,  // TOML "30s"; JSON milliseconds
};

// A value on its way into a spec: text · texts · integer, size in bytes, duration in milliseconds · number · boolean.
using RunKeyValue = std::variant<std::string, std::vector<std::string>, std::uint64_t, double, bool>;
// Where a key's value lives. A choice (strategies/choices.hpp) lives in its enum's number.
using RunKeyField =
    std::variant<std::string*, std::vector<std::string>*, std::uint8_t*, std::uint32_t*, std::uint64_t*, double*, bool*, Duration*>;

struct RunKey {
  std::string_view section;
  std::string_view name;
  RunKeyType type = RunKeyType::text;
  RunKeyField (*field)(RunSpec&) = nullptr;
  double least = 0;  // numbers, sizes in bytes, durations in milliseconds; texts: characters; lists: entries
  double most = 0;
  bool above_least = false;                        // least itself is not allowed
  bool below_most = false;                         // most itself is not allowed
  std::span<const std::string_view> choices = {};  // of a text, in the order of the enum's values; empty: any that `rule` accepts
  std::string_view form = {};                      // what a text must look like, for people
  bool (*rule)(std::string_view) = nullptr;        // of a text, or of each entry of a list
  bool required = false;
  std::string_view doc = {};
};

// Sections in the order of the file, and all keys in that order.
std::span<const std::string_view> run_sections();
std::span<const RunKey> run_keys();
// The row of a key, or null.
const RunKey* find_run_key(std::string_view section, std::string_view name);

// What a key accepts, for people: "an integer from 1 to 1000", "one of f32, bf16", "a time like \"30s\", from 1s to 7d".
std::string allowed(const RunKey& key);
// The value in a spec as TOML writes it: `"bytes"`, `0.05`, `"10m"`, `[]`.
std::string toml_value(const RunKey& key, const RunSpec& spec);
// The key's name in JSON: a size or duration carries its unit ("deadline_ms").
std::string json_name(const RunKey& key);

// Puts a value into a spec. Errors: invalid_argument if its type is another or it is not allowed; says what is. The spec is
// unchanged on error.
Status assign(const RunKey& key, RunKeyValue value, RunSpec& spec);
// The value in a spec.
RunKeyValue value_of(const RunKey& key, const RunSpec& spec);

}  // namespace atl
