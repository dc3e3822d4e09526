// `atoll doctor`: whether this machine is fit to be an island, a coordinator or an operator's, and what to do where it is not.
#include "cli/doctor.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/command.hpp"
#include "cli/coordinator_client.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/state_directory.hpp"
#include "cli/views/document.hpp"
#include "cli/views/printable.hpp"
#include "cli/views/table.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kHealth = {"good", "doubtful", "bad"};
constexpr std::array<Style, 3> kStyles = {Style::good, Style::attention, Style::bad};

struct DoctorOptions {
  std::string file;
  DoctorFiles files;
};

json document_of(const std::vector<Finding>& findings, const std::vector<IslandReach>& reaches, bool fit) {
  json list = json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"what", finding.what}, {"health", kHealth[static_cast<std::size_t>(finding.health)]}, {"text", finding.text}});
  }
  json islands = json::array();
  for (const IslandReach& reach : reaches) {
    const bool answers = reach.why_not.empty();
    islands.push_back({{"name", reach.name},
                       {"address", reach.address},
                       {"answers", answers},
                       {"round_trip_ms", answers ? json(reach.round_trip_ms) : json()},
                       {"mtu_bytes", reach.mtu > 0 ? json(reach.mtu) : json()},
                       {"uplink_bits_per_second", reach.uplink_bits_per_second ? json(*reach.uplink_bits_per_second) : json()},
                       {"downlink_bits_per_second", reach.downlink_bits_per_second ? json(*reach.downlink_bits_per_second) : json()},
                       {"why_not", answers ? json() : json(reach.why_not)}});
  }
  return {{"schema", 1}, {"fit", fit}, {"findings", std::move(list)}, {"islands", std::move(islands)}};
}

std::string text_of(const std::vector<Finding>& findings, const std::vector<IslandReach>& reaches, const Terminal& terminal) {
  std::string text;
  for (const Finding& finding : findings) {
    const auto health = static_cast<std::size_t>(finding.health);
    std::string word(kHealth[health]);
    word.resize(10, ' ');
    text += styled(word, kStyles[health], terminal) + printable(finding.text, 1000) + "\n";  // unbroken, for it has commands to copy
  }
  if (reaches.empty()) {
    return text;
  }
  Table table({{"ISLAND", false, true},
               {"ADDRESS", false, true, 1},
               {"FROM HERE", true},
               {"MTU", true, false, 2},
               {"UP", true},
               {"DOWN", true},
               {"", false, true}});
  for (const IslandReach& reach : reaches) {
    const bool answers = reach.why_not.empty();
    std::array<char, 32> far{};
    std::snprintf(far.data(), far.size(), "%.1f ms", reach.round_trip_ms);
    table.add({{reach.name},
               {reach.address},
               {answers ? far.data() : "no", answers ? Style::good : Style::bad},
               {reach.mtu > 0 ? std::to_string(reach.mtu) : "-"},
               {bits_text(reach.uplink_bits_per_second)},
               {bits_text(reach.downlink_bits_per_second)},
               {reach.why_not}});
  }
  return text + "\n" + table.text(terminal);
}

Exit examine(const Invocation& invocation, const DoctorOptions& options) {
  const Result<std::filesystem::path> state = state_directory(invocation.coordinator.state, invocation.environment);
  if (!state) {
    return report(invocation, state.error());
  }
  std::optional<RunSpec> run;
  if (!options.file.empty()) {
    const Result<RunFile> file = read_run_file(options.file);
    if (!file) {
      report(invocation, file.error());
      return Exit::usage;
    }
    if (!file->valid()) {
      invocation.streams.err << problems_text(*file);
      return Exit::usage;
    }
    run = file->spec;
  }
  std::vector<IslandReach> reaches;
  std::vector<Finding> findings = look_at_machine(invocation, *state, options.files.config, run);
  std::ranges::move(look_at_network(invocation, *state, options.files, reaches), std::back_inserter(findings));
  const bool bad = std::ranges::any_of(findings, [](const Finding& finding) { return finding.health == Health::bad; });
  invocation.streams.out << (invocation.json ? json_line(document_of(findings, reaches, !bad)) + "\n"
                                             : text_of(findings, reaches, invocation.terminal))
                         << std::flush;
  return bad ? Exit::run_failed : Exit::ok;
}

}  // namespace

Command doctor_command() {
  auto options = std::make_shared<DoctorOptions>();
  Command command;
  command.name = "doctor";
  command.summary = "looks whether this machine is fit to be an island, a coordinator or an operator's, and whether it reaches the others";
  command.details =
      "Arithmetic, trainer, CUDA device, shared memory, descriptors, state directory and disk, data sets of agent.toml; the page's "
      "certificate, the coordinator (name, "
      "port, key, version, clock), this\nmachine's own port, and on an operator's machine tokens, every connected island (dialled from "
      "here) and "
      "data paths between islands that do not pass. Clears shared\nmemory that killed agents left behind. Exits with 1 if something must "
      "be "
      "mended; it says what to do.";
  command.options = {
      {"FILE", "a run file (TOML), whose model has to fit into shared memory", &options->file, false, {}, Completes::files},
      {"--config", "the agent's settings (else agent.toml in the state directory)", &options->files.config, false, {}, Completes::files},
      {"--web-certificate",
       "the page's certificate (else the one that the coordinator made in the state directory)",
       &options->files.certificate,
       false,
       {},
       Completes::files}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return examine(invocation, *options); };
  return command;
}

}  // namespace atl
