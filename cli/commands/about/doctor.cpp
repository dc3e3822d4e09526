// `atoll doctor`: whether this machine is fit to be an island, a coordinator or an operator's, and what to do where it is not.
#include "cli/doctor/doctor.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>

#include "cli/line/command.hpp"
#include "cli/link/coordinator_client.hpp"
#include "cli/run_file/run_file.hpp"
#include "cli/settings/state_directory.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "cli/views/parts/table.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 3> kHealth = {"good", "doubtful", "bad"};
constexpr std::array<Style, 3> kStyles = {Style::good, Style::attention, Style::bad};

struct DoctorOptions {
  std::string file;
  DoctorFiles files;
  std::optional<Duration> probe;
};

constexpr std::size_t kMostPaths = 12;  // that are listed

json document_of(const std::vector<Finding>& findings, const IslandPaths& between, bool fit) {
  json list = json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"what", finding.what}, {"health", kHealth[static_cast<std::size_t>(finding.health)]}, {"text", finding.text}});
  }
  json islands = json::array();
  for (const IslandReach& reach : between.reaches) {
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
  json paths = json::array();
  for (const PathFigures& path : between.measured) {
    paths.push_back({{"from", path.from},
                     {"to", path.to},
                     {"bits_per_second", path.bits_per_second ? json(*path.bits_per_second) : json()},
                     {"round_trip_ms", path.round_trip_ms ? json(*path.round_trip_ms) : json()}});
  }
  return {{"schema", 1}, {"fit", fit}, {"findings", std::move(list)}, {"islands", std::move(islands)}, {"paths", std::move(paths)}};
}

std::string milliseconds_text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f ms", value);
  return text.data();
}

// The slowest ones.
std::string text_of(const std::vector<PathFigures>& paths, const Terminal& terminal) {
  if (paths.empty()) {
    return {};
  }
  Table table({{"FROM", false, true}, {"TO", false, true}, {"RATE", true}, {"ROUND TRIP", true}});
  for (std::size_t i = 0; i < std::min(paths.size(), kMostPaths); ++i) {
    const PathFigures& path = paths[i];
    table.add({{path.from},
               {path.to},
               {bits_text(path.bits_per_second), path.bits_per_second ? Style::plain : Style::bad},
               {path.round_trip_ms ? milliseconds_text(*path.round_trip_ms) : "-"}});
  }
  const std::string more = paths.size() > kMostPaths ? "and " + std::to_string(paths.size() - kMostPaths) + " that are faster\n" : "";
  return "\n" + table.text(terminal) + more;
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
    table.add({{reach.name},
               {reach.address},
               {answers ? milliseconds_text(reach.round_trip_ms) : "no", answers ? Style::good : Style::bad},
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
  IslandPaths between;
  std::vector<Finding> findings = look_at_machine(invocation, *state, options.files.config, run);
  std::ranges::move(look_at_network(invocation, *state, options.files, options.probe, between), std::back_inserter(findings));
  const bool bad = std::ranges::any_of(findings, [](const Finding& finding) { return finding.health == Health::bad; });
  invocation.streams.out << (invocation.json
                                 ? json_line(document_of(findings, between, !bad)) + "\n"
                                 : text_of(findings, between.reaches, invocation.terminal) + text_of(between.measured, invocation.terminal))
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
      "Arithmetic, trainer, CUDA device, shared memory, descriptors, connections, state directory and disk, data sets of agent.toml; the "
      "page's "
      "certificate, the coordinator\n(name, port, key, version, clock), this machine's own port, and on an operator's machine tokens, "
      "every "
      "connected island (dialled from here) and data\npaths between islands that do not pass; with --probe how fast and how far those are "
      "that do. Clears shared memory that killed agents left behind.\nExits with 1 if something must be mended; it says what to do.";
  command.options = {
      {"FILE", "a run file (TOML), whose model has to fit into shared memory", &options->file, false, {}, Completes::files},
      {"--config", "the agent's settings (else agent.toml in the state directory)", &options->files.config, false, {}, Completes::files},
      {"--web-certificate",
       "the page's certificate (else the one that the coordinator made in the state directory)",
       &options->files.certificate,
       false,
       {},
       Completes::files},
      {"--probe", "measures the paths between the connected islands, each for so long (2s)", &options->probe}};
  command.asks_coordinator = true;
  command.run = [options](Invocation& invocation) { return examine(invocation, *options); };
  return command;
}

}  // namespace atl
