// The islands of a plan: given by hand, or as a coordinator has measured them.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/planning/planner.hpp"
#include "cli/views/parts/document.hpp"
#include "cli/views/parts/printable.hpp"
#include "strategies/specification/model_kind.hpp"
#include "transport/base/bytes.hpp"

namespace atl {
namespace {

using nlohmann::json;

constexpr const char* kForm = "NAME=STEP_TIME,UPLINK[,DOWNLINK[,ROUND_TRIP]], as lyon=250ms,50mbit,200mbit,30ms";

Error refuse(std::string_view text, const std::string& why) {
  return Error{Code::invalid_argument, "--island " + in_quotes(text) + ": " + why + "; it is " + kForm};
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    all += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + printable(names[i], 64);
  }
  return all;
}

// Seconds that each island computed for one token of a model of this size, by the newest run that says.
std::map<std::string, double> seconds_per_token(const std::vector<json>& statuses, double parameters) {
  std::map<std::string, double> found;
  for (const json& status : statuses) {
    if (number_at(object_at(status, "run"), "parameters").value_or(0) != parameters) {
      continue;
    }
    for (const json& island : list_at(status, "islands")) {
      const double tokens = number_at(island, "tokens").value_or(0);
      const double computing = number_at(island, "compute_seconds").value_or(0);
      if (tokens > 0 && computing > 0) {
        found.emplace(text_at(island, "name"), computing / tokens);
      }
    }
  }
  return found;
}

// What a measurement of the paths has shown of an island's link.
struct ProbedLink {
  double up = 0;  // bits/s
  double down = 0;
  double round_trip_seconds = 0;
};

std::map<std::string, ProbedLink> probed_links(const json& islands) {
  std::map<std::string, ProbedLink> links;
  for (const json& island : list_at(islands, "islands")) {
    const std::string reader = text_at(island, "name");
    for (const json& path : flag_at(island, "connected") ? list_at(island, "paths") : json::array()) {
      const json measured = object_at(path, "measured");
      const double rate = number_at(measured, "bits_per_second").value_or(0);
      const double trip = number_at(measured, "round_trip_ms").value_or(0) / 1e3;
      ProbedLink& sender = links[text_at(path, "from")];
      sender.up = std::max(sender.up, rate);
      sender.round_trip_seconds = std::max(sender.round_trip_seconds, trip);
      links[reader].down = std::max(links[reader].down, rate);
      links[reader].round_trip_seconds = std::max(links[reader].round_trip_seconds, trip);
    }
  }
  return links;
}

}  // namespace

Result<PlanIsland> parse_plan_island(std::string_view text, double round_trip_seconds) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return refuse(text, "a name and '=' are missing");
  }
  const std::vector<std::string_view> parts = split(text.substr(equals + 1), ',');
  if (parts.size() < 2 || parts.size() > 4) {
    return refuse(text, std::to_string(parts.size()) + (parts.size() == 1 ? " figure is" : " figures are") + " given");
  }
  const bool tried = parts[0] == kTried;
  const Result<Duration> step = tried ? Result<Duration>(Duration(0)) : parse_duration(parts[0]);
  const Result<double> up = parse_bits_per_second(parts[1]);
  const Result<double> down = parts.size() > 2 ? parse_bits_per_second(parts[2]) : up;
  const Result<Duration> trip = parts.size() > 3 ? parse_duration(parts[3]) : Result<Duration>(from_seconds(round_trip_seconds));
  for (const std::string& why :
       {step ? "" : step.error().why, up ? "" : up.error().why, down ? "" : down.error().why, trip ? "" : trip.error().why}) {
    if (!why.empty()) {
      return refuse(text, why);
    }
  }
  if (*step <= Duration(0) && !tried) {
    return refuse(text, "a step takes longer than that");
  }
  if (!(*up > 0) || !(*down > 0)) {
    return refuse(text, "a link of 0 moves nothing");
  }
  return PlanIsland{{std::string(text.substr(0, equals)), seconds(*step), *up, *down, seconds(*trip)},
                    tried ? std::string(kTried) : "given"};
}

Result<std::vector<PlanIsland>> measured_islands(const json& islands, const std::vector<json>& statuses, const RunSpec& spec,
                                                 const PlanAssumptions& assumed) {
  const std::map<std::string, double> speeds = seconds_per_token(statuses, model_parameter_bytes(spec) / sizeof(float));
  const std::map<std::string, ProbedLink> probed = probed_links(islands);
  const double tokens_per_step = static_cast<double>(spec.training.batch * tokens_per_sequence(spec));
  std::vector<PlanIsland> found;
  std::vector<std::string> without_link;
  std::vector<std::string> without_speed;
  for (const json& island : list_at(islands, "islands")) {
    if (!flag_at(island, "connected")) {
      continue;
    }
    const std::string name = text_at(island, "name");
    const double moved = number_at(island, "uplink_bits_per_second").value_or(0);
    ForecastIsland figures{name, assumed.step_seconds, std::min(moved, number_at(island, "uplink_budget_bits_per_second").value_or(moved)),
                           number_at(island, "downlink_bits_per_second").value_or(0), assumed.round_trip_seconds};
    std::string source = "measured";
    if (const auto link = probed.find(name); link != probed.end() && link->second.up > 0 && link->second.down > 0) {
      figures.uplink_bits_per_second = link->second.up;
      figures.downlink_bits_per_second = link->second.down;
      figures.round_trip_seconds = link->second.round_trip_seconds;
    }
    const auto speed = speeds.find(name);
    if (speed != speeds.end()) {
      figures.step_seconds = speed->second * tokens_per_step;
    } else {
      source = "step assumed";
    }
    if (!(figures.uplink_bits_per_second > 0) || !(figures.downlink_bits_per_second > 0)) {
      without_link.push_back(name);
    } else if (!(figures.step_seconds > 0)) {
      without_speed.push_back(name);
    } else {
      found.push_back({std::move(figures), std::move(source)});
    }
  }
  if (!without_link.empty()) {
    return Error{Code::unavailable, "nobody has measured the links of " + listed(without_link) +
                                        "; --probe 2s measures them, or give the figures: --island " + std::string(kForm)};
  }
  if (!without_speed.empty()) {
    return Error{Code::unavailable, "no run has measured how long a step of this model takes on " + listed(without_speed) +
                                        "; --step-time 250ms assumes it, or give the figures: --island " + std::string(kForm)};
  }
  if (found.empty()) {
    return Error{Code::not_found, "no island is connected; give them: --island " + std::string(kForm)};
  }
  return found;
}

}  // namespace atl
