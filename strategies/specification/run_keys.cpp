#include "strategies/specification/run_keys.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>

#include "strategies/specification/model_kind.hpp"
#include "strategies/specification/run_key_rows.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace {

using enum RunKeyType;
using rows::is_name;
using rows::kExact;

constexpr std::array<std::string_view, 10> kSections = {"run",      "model",     "trainer", "data",       "training",
                                                        "strategy", "diffusion", "islands", "checkpoint", "guards"};

// ---- what people read --------------------------------------------------------------------------------------------

std::string plain_number(double value) {
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc{} ? std::string(buffer.data(), end) : "?";
}

// A number of `unit`s that parse_* reads back to exactly the same: the largest unit that divides it.
struct TextUnit {
  std::uint64_t factor;
  std::string_view name;
};
std::string in_largest_unit(std::uint64_t value, std::span<const TextUnit> units) {
  for (const TextUnit& unit : units) {
    if (value >= unit.factor && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return std::to_string(value) + std::string(units.back().name);
}
std::string size_text(std::uint64_t bytes) {
  static constexpr std::array<TextUnit, 5> kUnits = {
      {{1ULL << 40, "TiB"}, {1ULL << 30, "GiB"}, {1ULL << 20, "MiB"}, {1ULL << 10, "KiB"}, {1, "B"}}};
  return in_largest_unit(bytes, kUnits);
}
std::string duration_text(std::uint64_t milliseconds) {
  static constexpr std::array<TextUnit, 5> kUnits = {{{86'400'000, "d"}, {3'600'000, "h"}, {60'000, "m"}, {1000, "s"}, {1, "ms"}}};
  return in_largest_unit(milliseconds, kUnits);
}

std::string bound_text(const RunKey& key, double bound) {
  switch (key.type) {
    case size:
      return size_text(static_cast<std::uint64_t>(bound));
    case duration:
      return duration_text(static_cast<std::uint64_t>(bound));
    case integer:
      return std::to_string(static_cast<std::uint64_t>(bound));
    default:
      return plain_number(bound);
  }
}

std::string range_text(const RunKey& key) {
  return std::string(key.above_least ? "above " : "from ") + bound_text(key, key.least) + (key.below_most ? " to below " : " to ") +
         bound_text(key, key.most);
}

Error not_allowed(const RunKey& key, const std::string& what) {
  return Error{Code::invalid_argument, what + ": " + std::string(key.name) + " is " + allowed(key)};
}

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text.substr(0, 60)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\x%02x", static_cast<unsigned>(byte));
      result += escape.data();
    } else {
      if (c == '"' || c == '\\') {
        result += '\\';
      }
      result += c;
    }
  }
  return result + (text.size() > 60 ? "…\"" : "\"");
}

// ---- checks --------------------------------------------------------------------------------------------------------

bool in_range(const RunKey& key, double value) {
  return std::isfinite(value) && (key.above_least ? value > key.least : value >= key.least) &&
         (key.below_most ? value < key.most : value <= key.most);
}

Status check_text(const RunKey& key, const std::string& value) {
  if (!key.choices.empty()) {
    if (std::ranges::find(key.choices, std::string_view(value)) == key.choices.end()) {
      return not_allowed(key, in_quotes(value) + " is not known");
    }
    return {};
  }
  if (value.empty() && key.least == 0) {
    return {};  // an optional text that is not given
  }
  if (value.size() > static_cast<std::size_t>(key.most) || !key.rule(value)) {
    return not_allowed(key, in_quotes(value) + " does not fit");
  }
  return {};
}

Status check_texts(const RunKey& key, const std::vector<std::string>& values) {
  if (values.size() > static_cast<std::size_t>(key.most)) {
    return not_allowed(key, std::to_string(values.size()) + " entries are too many");
  }
  for (const std::string& value : values) {
    if (!key.rule(value)) {
      return not_allowed(key, in_quotes(value) + " does not fit");
    }
  }
  return {};
}

void put_text(const RunKey& key, std::string value, RunSpec& spec) {
  const RunKeyField field = key.field(spec);
  if (auto* const* choice = std::get_if<std::uint8_t*>(&field)) {
    **choice = static_cast<std::uint8_t>(std::ranges::find(key.choices, std::string_view(value)) - key.choices.begin());
  } else {
    *std::get<std::string*>(field) = std::move(value);
  }
}

Status put_integer(const RunKey& key, std::uint64_t value, RunSpec& spec) {
  if (value > static_cast<std::uint64_t>(kExact) || !in_range(key, static_cast<double>(value))) {
    return not_allowed(key, bound_text(key, static_cast<double>(value)) + " is out of range");
  }
  const RunKeyField field = key.field(spec);
  if (auto* const* narrow = std::get_if<std::uint32_t*>(&field)) {
    **narrow = static_cast<std::uint32_t>(value);
  } else if (auto* const* wide = std::get_if<std::uint64_t*>(&field)) {
    **wide = value;
  } else {
    *std::get<Duration*>(field) = std::chrono::milliseconds(value);
  }
  return {};
}

Status put_number(const RunKey& key, double value, RunSpec& spec) {
  if (!in_range(key, value)) {
    return not_allowed(key, plain_number(value) + " is out of range");
  }
  *std::get<double*>(key.field(spec)) = value;
  return {};
}

}  // namespace

std::span<const std::string_view> run_sections() { return kSections; }
std::span<const RunKey> run_keys() {
  static const std::vector<RunKey> kKeys = [] {
    std::vector<RunKey> all(rows::of_work().begin(), rows::of_work().end());
    all.insert(all.end(), rows::of_strategy().begin(), rows::of_strategy().end());
    return all;
  }();
  return kKeys;
}

const RunKey* find_run_key(std::string_view section, std::string_view name) {
  const std::span<const RunKey> keys = run_keys();
  const auto found = std::ranges::find_if(keys, [&](const RunKey& key) { return key.section == section && key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

std::string allowed(const RunKey& key) {
  switch (key.type) {
    case text:
      if (!key.choices.empty()) {
        std::string all;
        for (const std::string_view choice : key.choices) {
          all += (all.empty() ? "one of " : ", ") + std::string(choice);
        }
        return all;
      }
      if (key.rule == is_name) {
        return "a text of at most " + std::to_string(static_cast<int>(key.most)) + " " + std::string(key.form);
      }
      return std::string(key.form);
    case texts:
      return "a list of at most " + std::to_string(static_cast<int>(key.most)) + " texts: " + std::string(key.form);
    case integer:
      return "an integer " + range_text(key);
    case number:
      return "a number " + range_text(key);
    case boolean:
      return "true or false";
    case size:
      return "a size like \"64MiB\", " + range_text(key);
    case duration:
      return "a time like \"30s\", " + range_text(key);
  }
  return {};
}

std::string toml_value(const RunKey& key, const RunSpec& spec) {
  const RunKeyValue value = value_of(key, spec);
  switch (key.type) {
    case text:
      return in_quotes(std::get<std::string>(value));
    case texts: {
      std::string list;
      for (const std::string& entry : std::get<std::vector<std::string>>(value)) {
        list += (list.empty() ? "" : ", ") + in_quotes(entry);
      }
      return "[" + list + "]";
    }
    case integer:
      return std::to_string(std::get<std::uint64_t>(value));
    case number:
      return plain_number(std::get<double>(value));
    case boolean:
      return std::get<bool>(value) ? "true" : "false";
    case size:
      return in_quotes(size_text(std::get<std::uint64_t>(value)));
    case duration:
      return in_quotes(duration_text(std::get<std::uint64_t>(value)));
  }
  return {};
}

std::string json_name(const RunKey& key) {
  return std::string(key.name) + (key.type == size ? "_bytes" : key.type == duration ? "_ms" : "");
}

Status assign(const RunKey& key, RunKeyValue value, RunSpec& spec) {
  switch (key.type) {
    case text:
      if (auto* given = std::get_if<std::string>(&value)) {
        ATOLL_TRY(check_text(key, *given));
        put_text(key, std::move(*given), spec);
        return {};
      }
      break;
    case texts:
      if (auto* given = std::get_if<std::vector<std::string>>(&value)) {
        ATOLL_TRY(check_texts(key, *given));
        *std::get<std::vector<std::string>*>(key.field(spec)) = std::move(*given);
        return {};
      }
      break;
    case boolean:
      if (const auto* given = std::get_if<bool>(&value)) {
        *std::get<bool*>(key.field(spec)) = *given;
        return {};
      }
      break;
    case number:
      if (const auto* given = std::get_if<double>(&value)) {
        return put_number(key, *given, spec);
      }
      if (const auto* given = std::get_if<std::uint64_t>(&value)) {
        return put_number(key, static_cast<double>(*given), spec);
      }
      break;
    case integer:
    case size:
    case duration:
      if (const auto* given = std::get_if<std::uint64_t>(&value)) {
        return put_integer(key, *given, spec);
      }
      break;
  }
  return not_allowed(key, "the value has another type");
}

RunKeyValue value_of(const RunKey& key, const RunSpec& spec) {
  RunSpec copy = spec;
  return std::visit(
      [&](auto* field) -> RunKeyValue {
        using Value = std::remove_pointer_t<decltype(field)>;
        if constexpr (std::is_same_v<Value, std::uint8_t>) {
          return std::string(key.choices[*field]);
        } else if constexpr (std::is_same_v<Value, std::uint32_t>) {
          return std::uint64_t{*field};
        } else if constexpr (std::is_same_v<Value, Duration>) {
          return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(*field).count());
        } else {
          return *field;
        }
      },
      key.field(copy));
}

}  // namespace atl
