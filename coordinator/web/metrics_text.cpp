#include "coordinator/web/metrics_text.hpp"

#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "coordinator/web/json_fields.hpp"
#include "transport/web/prometheus_text.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;
using prometheus::head;
using prometheus::label;
using prometheus::line;

constexpr double kMs = 1e-3;
constexpr double kBits = 0.125;

constexpr std::array kNames = {
    MetricName{"atoll_run_round", "gauge", "Newest committed round.", MetricOf::run, "round"},
    MetricName{"atoll_run_planned_rounds", "gauge", "Rounds that the run file asks for.", MetricOf::run, "rounds"},
    MetricName{"atoll_run_committed_tokens", "gauge", "Tokens behind the committed rounds.", MetricOf::run, "tokens_committed"},
    MetricName{"atoll_run_token_limit", "gauge", "Committed tokens at which the run ends.", MetricOf::run, "token_limit"},
    MetricName{"atoll_run_outer_loss", "gauge", "Newest validation loss of the outer parameters.", MetricOf::run, "outer_loss"},
    MetricName{"atoll_run_local_loss", "gauge", "Newest validation loss of the islands' own parameters, the mean.", MetricOf::run,
               "local_loss"},
    MetricName{"atoll_run_tokens_total", "counter", "Tokens trained on, by all islands that ever took part.", MetricOf::run, "tokens"},
    MetricName{"atoll_run_tokens_per_second", "gauge", "Tokens a second, of the active islands together.", MetricOf::run,
               "tokens_per_second"},
    MetricName{"atoll_run_sent_bytes_total", "counter", "Bytes that islands sent to each other.", MetricOf::run, "bytes_sent"},
    MetricName{"atoll_run_compute_seconds_total", "counter", "Time that islands spent computing.", MetricOf::run, "compute_seconds"},
    MetricName{"atoll_run_wait_seconds_total", "counter", "Time that islands' trainers waited.", MetricOf::run, "wait_seconds"},
    MetricName{"atoll_run_members", "gauge", "Islands that take part.", MetricOf::run, "members"},
    MetricName{"atoll_run_min_members", "gauge", "Islands without which the run stops.", MetricOf::run, "min"},
    MetricName{"atoll_run_checkpoint_round", "gauge", "Newest round with a checkpoint.", MetricOf::run, "checkpoint_round"},
    MetricName{"atoll_run_copied_round", "gauge", "Newest round of which there is a copy in a store.", MetricOf::run, "copied_round"},
    MetricName{"atoll_run_created_timestamp_seconds", "gauge", "When the run was submitted.", MetricOf::run, "created_unix_ms", kMs},
    MetricName{"atoll_run_ended_timestamp_seconds", "gauge", "When the run ended.", MetricOf::run, "ended_unix_ms", kMs},
    MetricName{"atoll_member_active", "gauge", "1 while the island takes part in the run.", MetricOf::run_island, "active"},
    MetricName{"atoll_member_tokens_total", "counter", "Tokens that the island trained on.", MetricOf::run_island, "tokens"},
    MetricName{"atoll_member_tokens_per_second", "gauge", "Tokens a second.", MetricOf::run_island, "tokens_per_second"},
    MetricName{"atoll_member_training_loss", "gauge", "Loss of the newest steps.", MetricOf::run_island, "training_loss"},
    MetricName{"atoll_member_compute_seconds_total", "counter", "Time spent computing.", MetricOf::run_island, "compute_seconds"},
    MetricName{"atoll_member_wait_seconds_total", "counter", "Time that the trainer waited.", MetricOf::run_island, "wait_seconds"},
    MetricName{"atoll_member_sent_bytes_total", "counter", "Bytes sent to other islands.", MetricOf::run_island, "bytes_sent"},
    MetricName{"atoll_member_received_bytes_total", "counter", "Bytes received from other islands.", MetricOf::run_island,
               "bytes_received"},
    MetricName{"atoll_member_agent_memory_bytes", "gauge", "Memory of the agent's process.", MetricOf::run_island, "agent_memory_bytes"},
    MetricName{"atoll_member_trainer_memory_bytes", "gauge", "Memory of the trainer's process.", MetricOf::run_island,
               "trainer_memory_bytes"},
    MetricName{"atoll_island_connected", "gauge", "1 while the coordinator hears from the island.", MetricOf::island, "connected"},
    MetricName{"atoll_island_last_seen_timestamp_seconds", "gauge", "When the coordinator last heard from the island.", MetricOf::island,
               "last_seen_unix_ms", kMs},
    MetricName{"atoll_island_uplink_bytes_per_second", "gauge", "What the newest exchange sent.", MetricOf::island,
               "uplink_bits_per_second", kBits},
    MetricName{"atoll_island_downlink_bytes_per_second", "gauge", "What the newest exchange received.", MetricOf::island,
               "downlink_bits_per_second", kBits},
    MetricName{"atoll_island_uplink_budget_bytes_per_second", "gauge", "What the island's owner lets it send.", MetricOf::island,
               "uplink_budget_bits_per_second", kBits},
};

constexpr std::array kStates = {"queued", "starting", "running", "interrupted", "paused", "completed", "failed", "cancelled"};

std::string line_of(const std::string& labels, const json& object, const MetricName& metric) {
  const auto found = object.find(metric.key);
  if (found == object.end() || !(found->is_number() || found->is_boolean())) {
    return "";
  }
  const double value = found->is_boolean() ? (found->get<bool>() ? 1 : 0) : found->get<double>() * metric.scale;
  return line(metric.name, labels, value);
}

std::string lines_of_runs(const MetricName& metric, const std::vector<json>& statuses) {
  std::string text;
  for (const json& status : statuses) {
    const auto run = status.find("run");
    if (run == status.end() || !run->is_object()) {
      continue;
    }
    const std::string labels = label("run", text_of(*run, "id")) + "," + label("name", text_of(*run, "name"));
    if (metric.of == MetricOf::run) {
      text += line_of(labels, *run, metric);
      continue;
    }
    for (const json& island : list_of(status, "islands")) {
      text += line_of(labels + "," + label("island", text_of(island, "name")) + "," + label("island_id", text_of(island, "id")), island,
                      metric);
    }
  }
  return text;
}

std::string lines_of_islands(const MetricName& metric, const json& islands) {
  std::string text;
  for (const json& island : list_of(islands, "islands")) {
    text += line_of(label("island", text_of(island, "name")) + "," + label("island_id", text_of(island, "id")), island, metric);
  }
  return text;
}

}  // namespace

std::span<const MetricName> metric_names() { return kNames; }

std::string metrics_text(std::string_view version, const json& runs, const json& islands, const std::vector<json>& statuses) {
  std::string text = head("atoll_build_info", "gauge", "Always 1; the label tells the coordinator's version.");
  text += "atoll_build_info{" + label("version", std::string(version)) + "} 1\n";
  std::map<std::string, std::uint64_t> states;
  for (const json& run : list_of(runs, "runs")) {
    ++states[text_of(run, "state")];
  }
  text += head("atoll_runs", "gauge", "Runs, by state.");
  for (const char* state : kStates) {
    text += "atoll_runs{" + label("state", state) + "} " + std::to_string(states[state]) + "\n";
  }
  for (const MetricName& metric : kNames) {
    const std::string lines = metric.of == MetricOf::island ? lines_of_islands(metric, islands) : lines_of_runs(metric, statuses);
    if (!lines.empty()) {
      text += head(metric.name, metric.type, metric.help) + lines;
    }
  }
  return text;
}

}  // namespace atl::coordinator
