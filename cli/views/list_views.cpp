// Views that are one table: runs, islands, tokens; and the events, a line each.
#include <nlohmann/json.hpp>
#include <set>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/parts/table.hpp"
#include "cli/views/relayed_view.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

std::string or_dash(const std::string& text) { return text.empty() ? "-" : text; }

Style level_style(const std::string& level) { return level == "error" ? Style::bad : level == "warning" ? Style::attention : Style::plain; }

// The ways to the other islands, each once: "direct, relay frankfurt".
std::string ways_text(const json& island) {
  std::set<std::string> ways;
  for (const json& path : list_at(island, "paths")) {
    ways.insert(text_at(path, "way"));
  }
  std::string text;
  for (const std::string& way : ways) {
    text += way.empty() ? "" : (text.empty() ? "" : ", ") + way;
  }
  return text;
}

}  // namespace

std::string render_runs(const json& document, const Terminal& terminal) {
  const auto now = number_at(document, "now_unix_ms");
  Table table({{"ID"},
               {"NAME", false, true},
               {"STRATEGY", false, false, 1},
               {"STATE"},
               {"ROUND", true},
               {"LOSS", true},
               {"ISLANDS", true, false, 2},
               {"AGE", true},
               {"REASON", false, true}});
  for (const json& run : list_at(document, "runs")) {
    const std::string state = text_at(run, "state");
    table.add({{text_at(run, "id")},
               {text_at(run, "name")},
               {text_at(run, "strategy")},
               {state, run_state_style(state)},
               {rounds_done_cell(run)},
               {loss_text(number_at(run, "outer_loss"))},
               {count_text(number_at(run, "islands"))},
               {age_text(now, number_at(run, "created_unix_ms"))},
               {text_at(run, "reason")}});
  }
  return table.empty() ? "no runs yet; begin one with: atoll submit run.toml\n" : table.text(terminal);
}

std::string render_islands(const json& document, const Terminal& terminal) {
  const auto now = number_at(document, "now_unix_ms");
  Table table({{"NAME", false, true},
               {"ID", false, true, 3},
               {"STATE"},
               {"RUN", false, true},
               {"ADDRESS", false, true, 4},
               {"LINK"},
               {"SEEN", true},
               {"BUDGET", true, false, 2},
               {"MEMORY", true, false, 1},
               {"WAY", false, true, 1},
               {"UP", true},
               {"DOWN", true}});
  for (const json& island : list_at(document, "islands")) {
    const std::string link = text_at(island, "link");
    const std::string state = text_at(island, "state");
    table.add({{text_at(island, "name")},
               {text_at(island, "id")},
               {state, state == "absent" ? Style::dim : Style::plain},
               {or_dash(text_at(island, "run"))},
               {or_dash(text_at(island, "address"))},
               {link, link == "up"        ? Style::good
                      : link == "revoked" ? Style::dim
                                          : Style::bad},
               {age_text(now, number_at(island, "last_seen_unix_ms"))},
               {bits_text(number_at(island, "uplink_budget_bits_per_second"))},
               {bytes_text(number_at(island, "link_memory_bytes"))},
               {or_dash(ways_text(island))},
               {bits_text(number_at(island, "uplink_bits_per_second"))},
               {bits_text(number_at(island, "downlink_bits_per_second"))}});
  }
  if (table.empty()) {
    return "no islands yet; make a token with: atoll token create, and on the island: atoll agent --join TOKEN\n";
  }
  std::string text = table.text(terminal);
  for (const std::string& line : indirect_lines(document)) {
    text += wrapped(line, 2, terminal) + "\n";
  }
  return text;
}

std::string render_tokens(const json& document, const Terminal& terminal) {
  const auto now = number_at(document, "now_unix_ms");
  Table table({{"ID"}, {"ROLE"}, {"NAME", false, true}, {"STATE"}, {"AGE", true, false, 1}, {"GOOD FOR", true}, {"USED BY", false, true}});
  for (const json& token : list_at(document, "tokens")) {
    const std::string state = text_at(token, "state");
    const bool usable = state == "usable";
    table.add({{text_at(token, "id")},
               {text_at(token, "role")},
               {or_dash(text_at(token, "name"))},
               {state, usable ? Style::good : Style::dim},
               {age_text(now, number_at(token, "created_unix_ms"))},
               {usable ? age_text(number_at(token, "expires_unix_ms"), now) : "-"},
               {or_dash(text_at(token, "used_by"))}});
  }
  return table.empty() ? "no tokens; make one with: atoll token create\n" : table.text(terminal);
}

std::string render_events(const json& document, const Terminal& terminal) {
  std::string text;
  for (const json& event : list_at(document, "events")) {
    const std::string level = text_at(event, "level");
    const std::string island = text_at(event, "island");
    const std::string said = level == "info" || level.empty() ? "" : level + ": ";
    text += styled(time_text(number_at(event, "time_unix_ms")), Style::dim, terminal) + " " +
            (island.empty() ? "" : styled(printable(island), Style::bold, terminal) + " ") +
            styled(printable(said + text_at(event, "text"), 2000), level_style(level), terminal) + "\n";
  }
  return text;
}

}  // namespace atl
