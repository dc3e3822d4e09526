// The view of `atoll compare`: two runs side by side.
#include <nlohmann/json.hpp>

#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/run_state.hpp"
#include "cli/views/parts/table.hpp"
#include "cli/views/views.hpp"

namespace atl {
namespace {

using nlohmann::json;

std::string value_text(const json& setting, const char* key) {
  const auto found = setting.is_object() ? setting.find(key) : setting.end();
  return found == setting.end() || found->is_null() ? "-" : found->is_string() ? found->get<std::string>() : found->dump();
}

}  // namespace

std::string render_comparison(const json& document, const Terminal& terminal) {
  const json& first = object_at(document, "first");
  const json& second = object_at(document, "second");
  Table table({{""}, {printable(text_at(first, "name"), 30), true, true}, {printable(text_at(second, "name"), 30), true, true}});
  const auto row = [&](const std::string& name, const auto& text_of) {
    table.add({{name, Style::dim}, {text_of(first)}, {text_of(second)}});
  };
  row("run", [](const json& run) { return text_at(run, "id"); });
  row("state", [](const json& run) { return text_at(run, "state"); });
  row("rounds", [](const json& run) { return rounds_done_text(run); });
  row("time", [](const json& run) { return seconds_text(number_at(run, "seconds")); });
  row("tokens", [](const json& run) { return count_text(number_at(run, "tokens")); });
  row("sent", [](const json& run) { return bytes_text(number_at(run, "bytes_sent")); });
  row("computing", [](const json& run) { return share_text(number_at(run, "compute_seconds"), number_at(run, "wait_seconds")); });
  row("loss", [](const json& run) { return loss_text(number_at(run, "outer_loss")); });
  const auto losses = [&](const char* key, const std::string& what, const auto& place) {
    const json& at = object_at(document, key);
    if (number_at(at, "at")) {
      table.add({{"loss at " + place(number_at(at, "at")) + what, Style::dim},
                 {loss_text(number_at(at, "first"))},
                 {loss_text(number_at(at, "second"))}});
    }
  };
  losses("equal_steps", " inner steps", count_text);
  losses("equal_tokens", " tokens", count_text);
  losses("equal_seconds", "", seconds_text);
  std::string text = table.text(terminal);
  Table settings({{"SETTING"}, {"FIRST", false, true}, {"SECOND", false, true}});
  for (const json& setting : list_at(document, "settings")) {
    settings.add({{text_at(setting, "key")}, {value_text(setting, "first")}, {value_text(setting, "second")}});
  }
  return text + "\n" + (settings.empty() ? "no setting differs\n" : settings.text(terminal));
}

}  // namespace atl
