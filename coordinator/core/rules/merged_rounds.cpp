// What islands say once their trainers have merged a round: the metrics of it, and for what they waited.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/round_rule.hpp"

namespace atl::coordinator {
namespace {

constexpr double kToldWait = 1.0;             // seconds that a trainer waited for a result, and
constexpr double kToldShare = 0.1;            // the share of a round: less is not worth an event
constexpr std::size_t kAccountedWaits = 256;  // of an island; its spans come within seconds

}  // namespace

// Results are merged in another order than their rounds have where fragments overlap, and not at all where a newer one of the fragment
// came.
void RoundRule::hear(Run& run, Membership& membership, const Merged& message) {
  Progress& progress = membership.progress;
  const bool older = message.round <= progress.merged && progress.merged.value > 0;
  if ((older && !progress.unmerged.contains(message.round)) ||
      (!islands_commit(run, message.round) && message.round > run.lineage.committed())) {
    return;
  }
  progress.settled = true;
  if (!older) {
    progress.merged = message.round;
    on_merged_newer(run, membership, message);
  }
  MetricRecord metric = metric_of(run, membership, message.round);
  metric.step = message.step;
  metric.outer_loss = message.outer_loss;
  metric.local_loss = message.local_loss;
  metric.wait_seconds = message.wait_seconds;
  account_wait(run, membership, message.round, message.wait_seconds);
  if (const auto found = progress.unmerged.find(message.round); found != progress.unmerged.end()) {
    const std::uint32_t fragment = found->second.facts.fragment;
    progress.unmerged.erase(found);
    record_unmerged(run, membership, message.round, fragment);
  } else {
    const Island& island = islands_.at(membership.record.island);
    const auto report = island.reports.find(run.about.id);
    metric.facts.training_loss = report == island.reports.end() ? kNotMeasured : report->second.training_loss;
  }
  record(std::move(metric));
  tell_own_metrics(run, membership, message);
}

// What is known of an island's round from its contribution.
MetricRecord RoundRule::metric_of(const Run& run, const Membership& membership, Round round) const {
  MetricRecord metric;
  metric.time = now();
  metric.run = run.about.id;
  metric.island = membership.record.island;
  metric.round = round;
  if (const auto found = membership.progress.unmerged.find(round); found != membership.progress.unmerged.end()) {
    metric.facts = found->second.facts;
    metric.bytes_sent = found->second.bytes_sent;
    metric.bytes_received = found->second.bytes_received;
  }
  return metric;
}

// Committed rounds before this one (of this fragment) whose results the island's trainer will not merge any more: they have a row, too.
void RoundRule::record_unmerged(const Run& run, Membership& membership, Round before, std::optional<std::uint32_t> fragment) {
  std::map<Round, Contributed>& unmerged = membership.progress.unmerged;
  for (auto at = unmerged.begin(); at != unmerged.end() && at->first < before;) {
    const bool committed = islands_commit(run, at->first) || at->first <= run.lineage.committed();
    if ((fragment && at->second.facts.fragment != *fragment) || !committed) {
      ++at;
      continue;
    }
    record(metric_of(run, membership, at->first));
    at = unmerged.erase(at);
  }
}

// Numbers of a trainer's own go to the tape.
void RoundRule::tell_own_metrics(const Run& run, const Membership& membership, const Merged& message) {
  if (message.metrics.empty()) {
    return;
  }
  std::string text;
  std::vector<Field> fields = {Field{"round", static_cast<std::int64_t>(message.round.value)}};
  for (const OwnMetric& metric : message.metrics) {
    text += (text.empty() ? "" : ", ") + metric.name + " " + std::to_string(metric.value);
    fields.push_back(Field{"metric." + metric.name, metric.value});
  }
  event(run.about.id, membership.record.island, "debug", "own_metrics",
        "island " + islands_.name_of(membership.record.island) + " at round " + std::to_string(message.round.value) + ": " + bounded(text),
        std::move(fields));
}

// Counts what an island waited for a round's result, by whom it waited for; a wait that matters is told.
void RoundRule::account_wait(Run& run, Membership& membership, Round round, double wait_seconds) {
  const std::vector<RoundTimes> times = run.lineage.times_until(round);
  if (!(wait_seconds > 0) || islands_commit(run, round) || times.empty()) {
    return;
  }
  std::string causes;
  membership.progress.accounted.push_back({round, decide_wait_shares(times, wait_seconds, membership.record.island)});
  if (membership.progress.accounted.size() > kAccountedWaits) {
    membership.progress.accounted.pop_front();
  }
  for (const WaitShare& share : membership.progress.accounted.back().shares) {
    const WaitKey key{share.what, share.island, share.from};
    membership.progress.waits[key] += share.seconds;
    causes += (causes.empty() ? "" : ", ") + human_duration(from_seconds(share.seconds)) + " for " + core_.views.text_of(key);
  }
  if (wait_seconds >= std::max(kToldWait, seconds(run.in_rounds().last_round) * kToldShare)) {
    event(run.about.id, membership.record.island, "info", "island_waited",
          "island " + islands_.name_of(membership.record.island) + " waited for round " + std::to_string(round.value) + ": " + causes,
          {Field{"round", static_cast<std::int64_t>(round.value)}, Field{"seconds", wait_seconds}});
  }
}

}  // namespace atl::coordinator
