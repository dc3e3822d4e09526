// The view of `atoll data`.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/parts/table.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

std::string passes_text(const std::optional<double>& passes) {
  if (!passes) {
    return "-";
  }
  const auto hundredths = static_cast<std::uint64_t>(*passes * 100);
  const std::string rest = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + "." + std::string(2 - rest.size(), '0') + rest;
}

std::string islands_text(const json& islands) {
  std::string text;
  for (const auto& [name, sequences] : islands.items()) {
    text += (text.empty() ? "" : ", ") + name + " " + (sequences.is_number() ? sequences.dump() : "-");
  }
  return text;
}

std::string number_text(const json& object, std::string_view key) {
  const std::optional<double> value = number_at(object, key);
  return value ? std::to_string(static_cast<std::uint64_t>(*value)) : "-";
}

std::string heading_of(std::string_view fate) {
  std::string heading(fate);
  for (char& letter : heading) {
    letter = letter == '_' ? ' ' : static_cast<char>(letter >= 'a' && letter <= 'z' ? letter - 'a' + 'A' : letter);
  }
  return heading;
}

// What became of the tokens that each island trained on. A fate that no token has is left out.
std::string tokens_text(const json& islands, const Terminal& terminal) {
  std::vector<std::string_view> fates = {"trained", "merged"};
  for (const std::string_view fate : {"late", "overwritten", "too_stale", "not_finite", "rejected", "overrun", "dropped", "rest"}) {
    if (std::ranges::any_of(islands, [&](const json& island) { return number_at(island, fate).value_or(0) > 0; })) {
      fates.push_back(fate);
    }
  }
  std::vector<Column> columns = {{"ISLAND"}};
  for (const std::string_view fate : fates) {
    columns.push_back({heading_of(fate), true});
  }
  Table table(columns);
  for (const json& island : islands) {
    std::vector<Cell> row = {{text_at(island, "island")}};
    for (const std::string_view fate : fates) {
      row.push_back({count_text(number_at(island, fate))});
    }
    table.add(std::move(row));
  }
  return "\ntokens of each island, and what became of them:\n" + table.text(terminal);
}

// "12 (9 too stale, 3 overwritten)".
std::string passed_over_text(const json& part) {
  std::string reasons;
  for (const auto& [fate, sequences] : object_at(part, "reasons").items()) {
    std::string name = fate;
    std::ranges::replace(name, '_', ' ');
    reasons += (reasons.empty() ? "" : ", ") + number_text(object_at(part, "reasons"), fate) + " " + printable(name);
  }
  return number_text(part, "passed_over") + (reasons.empty() ? "" : " (" + reasons + ")");
}

}  // namespace

std::string data_passes_text(std::optional<double> passes) {
  if (!passes || *passes <= 0.0) {
    return "";
  }
  std::array<char, 48> text{};
  if (*passes < 1.0) {
    std::snprintf(text.data(), text.size(), "%.3g %% of it was trained on", 100.0 * *passes);
  } else {
    std::snprintf(text.data(), text.size(), "%.2f passes over it", *passes);
  }
  return text.data();
}

std::string render_data(const json& document, const Terminal& terminal) {
  Table table({{"PART", true},
               {"OWNER"},
               {"PASSES", true},
               {"POSITION", true},
               {"COMMITTED", true},
               {"PASSED OVER", true},
               {"COMMITTED BY", false, true}});
  for (const json& part : list_at(document, "parts")) {
    const std::string owner = text_at(part, "owner") + (flag_at(part, "in_use") ? "" : " (free)");
    table.add({{number_text(part, "part")},
               {owner},
               {passes_text(number_at(part, "passes"))},
               {number_text(part, "position")},
               {number_text(part, "committed")},
               {passed_over_text(part)},
               {islands_text(object_at(part, "islands"))}});
  }
  std::string text = table.text(terminal);
  if (const std::string passes = data_passes_text(number_at(document, "passes")); !passes.empty()) {
    text += "data: " + passes + "\n";
  }
  for (const json& read : list_at(document, "reads")) {
    text += printable(text_at(read, "island")) + " reads " + printable(text_at(read, "text"), 1000) + "\n";
  }
  const json& proof = object_at(document, "proof");
  if (text_at(document, "counted_in") == "images") {
    return text + (list_at(document, "parts").empty() ? "the images are not clustered yet\n"
                                                      : "each part is the cluster of one expert, counted in images; whoever takes an "
                                                        "expert over goes on from the step of its newest copy\n");
  }
  if (!proof.contains("holds")) {
    return text + "every island keeps a state of its own: nothing is committed in common\n";
  }
  text += number_text(proof, "committed") + " sequences (" + count_text(number_at(proof, "committed_tokens")) + " tokens) in " +
          number_text(proof, "rounds") + " rounds";
  text += flag_at(proof, "holds") ? std::string(": each sequence up to every part's position once, no sequence on two islands\n")
                                  : "; it does not add up: " + printable(text_at(proof, "fault")) + "\n";
  return text + tokens_text(list_at(document, "tokens"), terminal);
}

}  // namespace atl
