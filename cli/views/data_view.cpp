// The view of `atoll data`.
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"
#include "cli/views/run_state.hpp"
#include "cli/views/table.hpp"
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

// What became of the tokens that each island trained on.
std::string tokens_text(const json& islands, const Terminal& terminal) {
  Table table({{"ISLAND"},
               {"TRAINED", true},
               {"MERGED", true},
               {"LATE", true},
               {"OVERWRITTEN", true},
               {"TOO STALE", true},
               {"REJECTED", true},
               {"OVERRUN", true},
               {"REST", true}});
  for (const json& island : islands) {
    const auto count = [&](std::string_view key) { return count_text(number_at(island, key)); };
    table.add({{text_at(island, "island")},
               {count("trained")},
               {count("merged")},
               {count("late")},
               {count("overwritten")},
               {count("too_stale")},
               {count("rejected")},
               {count("overrun")},
               {count("rest")}});
  }
  return "\ntokens of each island, and what became of them:\n" + table.text(terminal);
}

}  // namespace

std::string data_share_text(const json& counts, bool ended) {
  const auto all = static_cast<std::uint64_t>(number_at(counts, "parts_of_data").value_or(0));
  const auto begun = static_cast<std::uint64_t>(number_at(counts, "parts_begun").value_or(0));
  const auto in_use = static_cast<std::uint64_t>(number_at(counts, "parts_in_use").value_or(0));
  const std::uint64_t some = ended ? begun : in_use;
  if (all == 0 || some == 0) {
    return "";  // of phases, or nobody trains
  }
  const bool one = some == 1;
  const std::string done = ended ? (one ? " was trained on" : " were trained on") : (one ? " has an island" : " have an island");
  if (some >= all) {
    return (all == 1 ? "the one part" : "all " + std::to_string(all) + " parts") + done;
  }
  std::array<char, 32> share{};
  std::snprintf(share.data(), share.size(), "%.3g %%", 100.0 * static_cast<double>(all - some) / static_cast<double>(all));
  return std::to_string(some) + " of " + std::to_string(all) + " parts" + done + "; nobody " + (ended ? "trained" : "trains") +
         " on the other " + (all - some == 1 ? "one" : std::to_string(all - some)) + ", " + share.data() + " of the data";
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
               {number_text(part, "passed_over")},
               {islands_text(object_at(part, "islands"))}});
  }
  std::string text = table.text(terminal);
  const std::string state = text_at(document, "state");
  const std::string share = data_share_text(document, run_has_ended(state));
  text += share.empty() ? "" : share + "\n";
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
  const bool whole = number_at(document, "parts_begun").value_or(0) >= number_at(document, "parts_of_data").value_or(1);
  text += flag_at(proof, "holds") ? std::string(": each sequence up to every part's position once") +
                                        (whole ? ", none left out\n" : ", of the parts that were begun\n")
                                  : "; it does not add up: " + printable(text_at(proof, "fault")) + "\n";
  return text + tokens_text(list_at(document, "tokens"), terminal);
}

}  // namespace atl
