// Views of the planner's documents (cli/planning/planner.hpp).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/table.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

std::string fixed(const char* pattern, double value) {
  std::array<char, 48> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return text.data();
}

std::string percent(std::optional<double> share) { return share ? fixed("%.1f %%", 100.0 * *share) : "-"; }
std::string whole(std::optional<double> value) { return value ? fixed("%.0f", *value) : "-"; }

// "layers 0, 2 · embeddings and head".
std::string contents_of(const json& fragment) {
  std::string text;
  for (const json& layer : list_at(fragment, "layers")) {
    text += (text.empty() ? "layers " : ", ") + (layer.is_number() ? std::to_string(layer.get<int>()) : "?");
  }
  if (flag_at(fragment, "embeddings_and_head")) {
    text += std::string(text.empty() ? "" : " · ") + "embeddings and head";
  }
  return text;
}

std::string given_table(const json& document, const Terminal& terminal) {
  Table table(
      {{"ISLAND", false, true}, {"STEP", true}, {"UP", true}, {"DOWN", true}, {"ROUND TRIP", true}, {"OVERLAP", true}, {"FIGURES"}});
  for (const json& island : list_at(document, "islands")) {
    table.add({{text_at(island, "name")},
               {seconds_text(number_at(island, "step_seconds"))},
               {bits_text(number_at(island, "uplink_bits_per_second"))},
               {bits_text(number_at(island, "downlink_bits_per_second"))},
               {seconds_text(number_at(island, "round_trip_seconds"))},
               {whole(number_at(island, "overlap_steps"))},
               {text_at(island, "source")}});
  }
  return table.text(terminal);
}

std::string expected_table(const json& document, const Terminal& terminal) {
  const double wanted = number_at(document, "utilisation_wanted").value_or(1);
  Table table({{"ISLAND", false, true},
               {"COMPUTES", true},
               {"WAITS", true},
               {"SENDS", true},
               {"A STEP", true, false, 1},
               {"A DAY", true},
               {"MEAN", true, false, 2},
               {"PEAK", true},
               {"BOUND " + fixed("%.4g %%", wanted * 100), true}});
  for (const json& island : list_at(document, "islands")) {
    const auto share = number_at(island, "utilisation");
    table.add({{text_at(island, "name")},
               {percent(share), share && *share >= wanted ? Style::good : Style::attention},
               {seconds_text(number_at(island, "waiting_seconds"))},
               {bytes_text(number_at(island, "bytes_sent"))},
               {bytes_text(number_at(island, "bytes_sent_per_step"))},
               {bytes_text(number_at(island, "bytes_sent_per_day"))},
               {bits_text(number_at(island, "mean_bits_per_second"))},
               {bits_text(number_at(island, "peak_bits_per_second"))},
               {bits_text(number_at(island, "sustained_bound_bits_per_second"))}});
  }
  return table.text(terminal);
}

std::string fragments_table(const json& document, const Terminal& terminal) {
  Table table({{"FRAGMENT", true}, {"VALUES", true}, {"BYTES SENT", true}, {"HOLDS", false, true}});
  for (const json& fragment : list_at(document, "fragments")) {
    table.add({{whole(number_at(fragment, "fragment"))},
               {whole(number_at(fragment, "values"))},
               {bytes_text(number_at(fragment, "bytes"))},
               {contents_of(fragment)}});
  }
  return table.text(terminal);
}

std::string schedule_table(const json& document, const Terminal& terminal) {
  Table table({{"ROUND", true}, {"FRAGMENT", true}, {"STARTS AT STEP", true}, {"APPLIED AT", true}, {""}});
  bool last_seen = false;
  for (const json& round : list_at(document, "schedule")) {
    const bool last = flag_at(round, "last");
    table.add({{whole(number_at(round, "round"))},
               {whole(number_at(round, "fragment"))},
               {whole(number_at(round, "start"))},
               {whole(number_at(round, "apply"))},
               {last && !last_seen ? "the last synchronisation" : ""}});
    last_seen = last_seen || last;
  }
  return table.text(terminal);
}

// "0.42 ns to form a value of a contribution and 1.30 ns to apply one, and 10 ms a round".
std::string costs_text(const json& costs) {
  return fixed("%.2f ns", 1e9 * number_at(costs, "form_seconds_per_value").value_or(0)) + " to form a value of a contribution and " +
         fixed("%.2f ns", 1e9 * number_at(costs, "apply_seconds_per_value").value_or(0)) + " to apply one, and " +
         seconds_text(number_at(costs, "round_seconds")) + " a round";
}

// What ends a run before its steps do, with which it is planned.
std::string token_limit_text(const json& document) {
  const auto limit = number_at(document, "token_limit");
  const bool first = number_at(document, "steps") != number_at(document, "step_limit");
  return !limit  ? ""
         : first ? " (until " + count_text(limit) + " tokens are committed; at most " + whole(number_at(document, "step_limit")) + ")"
                 : " (before " + count_text(limit) + " tokens are committed)";
}

std::string heading(const std::string& text, const Terminal& terminal) { return "\n" + styled(text, Style::bold, terminal) + "\n"; }

}  // namespace

std::string pairs_text(const json& document, const Terminal& terminal) {
  constexpr std::size_t kMostPairs = 12;
  const json& pairs = list_at(document, "pairs");
  Table table({{"BETWEEN", false, true}, {"AND", false, true}, {"WAY", false, true}, {"MEASURED", true}});
  std::string reasons;
  for (std::size_t i = 0; i < std::min(pairs.size(), kMostPairs); ++i) {
    const json& ends = list_at(pairs[i], "islands");
    const std::string a = ends.empty() || !ends.front().is_string() ? "" : ends.front().get<std::string>();
    const std::string b = ends.empty() || !ends.back().is_string() ? "" : ends.back().get<std::string>();
    const std::string way = text_at(pairs[i], "way");
    table.add({{a}, {b}, {way.empty() ? "not known yet" : way}, {bits_text(number_at(pairs[i], "bits_per_second"))}});
    if (const std::string why = text_at(pairs[i], "why_indirect"); !why.empty()) {
      reasons += wrapped(printable(a, 60) + " and " + printable(b, 60) + ": " + printable(why, 300), 2, terminal) + "\n";
    }
  }
  return table.empty() ? ""
                       : "\n" + table.text(terminal) + reasons +
                             (pairs.size() > kMostPairs ? "and " + std::to_string(pairs.size() - kMostPairs) + " more pairs\n" : "");
}

std::string render_plan(const json& document, const Terminal& terminal) {
  const json& strategy = object_at(document, "strategy");
  std::string text = printable(text_at(document, "run")) + ": " + printable(text_at(strategy, "name")) + ", " +
                     whole(number_at(document, "steps")) + " steps" + token_limit_text(document) + ", " +
                     whole(number_at(document, "rounds")) + " rounds, " + count_text(number_at(document, "parameters")) +
                     " parameters, H " + whole(number_at(strategy, "inner_steps")) + ", overlap " +
                     whole(number_at(strategy, "overlap_steps")) + ", codec " + printable(text_at(strategy, "codec")) + " and " +
                     printable(text_at(strategy, "reduce_codec")) + "\n";
  text += "takes " + seconds_text(number_at(document, "seconds")) + ", computing " + percent(number_at(document, "utilisation")) +
          " of the islands' time; a round sends at most " + bytes_text(number_at(document, "bytes_per_round")) + "; an agent needs " +
          bytes_text(number_at(document, "agent_memory_bytes")) + " besides its trainer\n";
  if (const auto price = number_at(document, "price")) {
    text += std::string(list_at(document, "relays").empty() ? "what the islands send costs " : "what islands and relays send costs ") +
            fixed(*price < 1 ? "%.2g" : "%.2f", *price) + ", at " + fixed("%.4g", number_at(document, "price_per_gigabyte").value_or(0)) +
            " a GB\n";
  }
  const json& costs = object_at(document, "agent_costs");
  text += "reckoned with " + costs_text(costs) + " (" + printable(text_at(costs, "source"), 60) + ")\n";
  for (const json& note : list_at(document, "notes")) {
    text += note.is_string() ? "note: " + printable(note.get<std::string>(), 500) + "\n" : "";
  }
  for (const json& relay : list_at(document, "relays")) {
    const auto pairs = number_at(relay, "pairs");
    text += "relay " + printable(text_at(relay, "relay"), 60) + " carries " + bytes_text(number_at(relay, "bytes_per_round")) +
            " a round and " + bytes_text(number_at(relay, "bytes")) + " in the run, for " + whole(pairs) +
            (pairs == 1 ? " pair" : " pairs") + " of islands\n";
  }
  text = wrapped(text, 2, terminal) + pairs_text(document, terminal);
  text += heading("islands", terminal) + given_table(document, terminal);
  text += heading("expected", terminal) + expected_table(document, terminal);
  text += wrapped(
      "PEAK is the uplink at which no merge would wait (with no overlap: the whole uplink). BOUND is the uplink below which no schedule "
      "of these bytes computes that share of the time.\n",
      0, terminal);
  text += heading("fragments", terminal) + fragments_table(document, terminal);
  text += heading("schedule: each fragment's first round, then every " + whole(number_at(strategy, "inner_steps")) + " steps", terminal) +
          schedule_table(document, terminal);
  return text;
}

std::string render_plan_sweep(const json& document, const Terminal& terminal) {
  Table table({{"H", true},
               {"FRAGMENTS", true},
               {"OVERLAP", true},
               {"CODEC"},
               {"REDUCED", false, false, 4},
               {"COMPUTES", true},
               {"TAKES", true},
               {"A STEP", true, false, 1},
               {"A DAY", true},
               {"MEAN", true, false, 2},
               {"PEAK", true, false, 6},
               {"BOUND", true, false, 5},
               {"MEMORY", true, false, 3},
               {""}});
  bool reached = false;
  for (const json& row : list_at(document, "settings")) {
    const bool reaches = flag_at(row, "reaches");
    reached = reached || reaches;
    table.add({{whole(number_at(row, "inner_steps"))},
               {whole(number_at(row, "fragments"))},
               {whole(number_at(row, "overlap_steps"))},
               {text_at(row, "codec")},
               {text_at(row, "reduce_codec")},
               {percent(number_at(row, "utilisation")), reaches ? Style::good : Style::plain},
               {seconds_text(number_at(row, "seconds"))},
               {bytes_text(number_at(row, "bytes_sent_per_step"))},
               {bytes_text(number_at(row, "bytes_sent_per_day"))},
               {bits_text(number_at(row, "mean_bits_per_second"))},
               {bits_text(number_at(row, "peak_bits_per_second"))},
               {bits_text(number_at(row, "sustained_bound_bits_per_second"))},
               {bytes_text(number_at(row, "agent_memory_bytes"))},
               {flag_at(row, "cheapest")                  ? "<- cheapest"
                : flag_at(row, "cheapest_of_inner_steps") ? "<- cheapest of this H"
                                                          : "",
                Style::good}});
  }
  const std::string wanted = fixed("%.4g %%", 100 * number_at(document, "utilisation_wanted").value_or(1));
  std::string text = reached ? "Marked: the fewest bytes among those that compute at least " + wanted +
                                   " of the time. A longer H always costs fewer bytes, and some loss: choose H by quality.\n"
                             : "No setting computes " + wanted +
                                   " of the time: these links are too thin for this model, or its last synchronisation weighs too much.\n";
  text += "The agents' arithmetic is " + printable(text_at(document, "agent_costs_source"), 60) + ", for each codec.\n";
  text += "Of the island that sends most; BOUND: the uplink below which no schedule of these bytes computes " + wanted + " of the time.\n";
  return given_table(document, terminal) + "\n" + table.text(terminal) + wrapped(text, 0, terminal);
}

std::string render_plan_table_4(const json& document, const Terminal& terminal) {
  std::vector<Column> columns = {{"SIZE"}, {"METHOD"}};
  std::vector<std::vector<Cell>> rows;
  std::set<double> shares;
  std::pair<std::string, std::string> row_name;
  for (const json& cell : list_at(document, "cells")) {
    const std::pair<std::string, std::string> name{text_at(cell, "size"), text_at(cell, "method")};
    if (rows.empty() || name != row_name) {
      row_name = name;
      rows.push_back({{name.first}, {name.second}});
    }
    shares.insert(number_at(cell, "utilisation").value_or(0));
    const int apart = static_cast<int>(number_at(cell, "points_apart").value_or(0));
    rows.back().push_back({fixed("%.1f", number_at(cell, "ours_gigabits_per_second").value_or(0)) + " / " +
                               fixed("%.1f", number_at(cell, "printed_gigabits_per_second").value_or(0)) +
                               (apart == 0  ? " ="
                                : apart > 0 ? " +"
                                            : " -"),
                           apart == 0 ? Style::plain : Style::attention});
  }
  for (const double share : shares) {
    columns.push_back({fixed("%.0f %%", share * 100), true});
  }
  Table table(std::move(columns));
  for (std::vector<Cell>& row : rows) {
    table.add(std::move(row));
  }
  return "Streaming DiLoCo (arXiv:2501.18512), Table 4: Gbit/s needed to compute a share of the time, ours / printed.\n" +
         table.text(terminal) + whole(number_at(document, "exact")) + " of " + std::to_string(list_at(document, "cells").size()) +
         " cells are exactly the printed point, " + whole(number_at(document, "within_one_point")) +
         " within one point of the paper's bandwidth axis (a factor of 1.207), with " +
         fixed("%.1f", number_at(document, "bits_per_parameter").value_or(0)) +
         " effective bits a parameter; the agents' arithmetic takes no time there.\n";
}

std::string render_gossip_timing(const json& document, const Terminal& terminal) {
  Table table({{"ISLANDS", true},
               {"TREE/PAIR, EQUAL", true},
               {"TREE", true},
               {"PAIR", true},
               {"PAIR, CLOSED FORM", true},
               {"TREE/PAIR", true},
               {"ALL/PAIRS", true},
               {"ALL/ALONE", true}});
  for (const json& row : list_at(document, "rows")) {
    const auto cell = [&](const char* key) { return Cell{fixed("%.3f", number_at(row, key).value_or(0))}; };
    table.add({{whole(number_at(row, "islands"))},
               cell("constant_ratio"),
               cell("tree"),
               cell("pair"),
               cell("pair_closed_form"),
               cell("ratio"),
               cell("all_by_pairs"),
               cell("all_by_alone")});
  }
  return "NoLoCo (arXiv:2506.10911), §5.3: averaging by a tree all-reduce and in pairs, and what waiting costs.\n" + table.text(terminal) +
         "TREE, PAIR: mean time in medians of a message's, log-normal with mu = 1, sigma^2 = 0.5; EQUAL: all messages take the same time.\n"
         "ALL/PAIRS: how much longer a run takes when all islands wait for each other in every round than when pairs do; ALL/ALONE: than "
         "when nobody waits.\n"
         "250 rounds of 100 inner steps, each step log-normal as above, messages without delay. The paper has about 1.2 at 1,024 "
         "islands.\n";
}

std::string render_goodput(const json& document, const Terminal& terminal) {
  Table table({{"METHOD", false}, {"CHIPS", true}, {"PRINTED", true}, {"OURS", true}, {"QUORUM", true}, {"RULE", true}, {"ALL", true}});
  for (const json& row : list_at(document, "cells")) {
    const auto cell = [&](const char* key) { return Cell{fixed("%.1f", 100 * number_at(row, key).value_or(0))}; };
    table.add({{printable(text_at(row, "method"))},
               {whole(number_at(row, "chips"))},
               cell("printed"),
               cell("ours"),
               cell("quorum_of_one"),
               cell("rule"),
               cell("waiting_for_all")});
  }
  return "Decoupled DiLoCo (arXiv:2604.21428): per cent of all chips' time that ends in the model, one interruption a chip and year.\n" +
         table.text(terminal) +
         "PRINTED: as the paper's figures were told elsewhere. OURS: rounds of 24 steps of 2 s, overlap 2, straggler_factor 1.05; an "
         "interruption stops an island for\n"
         "23 s on average (without elasticity 80 s), which is fitted to the two rows of data-parallel. QUORUM: rounds "
         "that close with a\n"
         "quorum of one, so that nobody waits. RULE: one island of N / M chips alone. ALL: straggler_factor 0, so that every round waits "
         "for\n"
         "every island.\n";
}

}  // namespace atl
