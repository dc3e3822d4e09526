// What islands say once their trainers have merged a round: the metrics of it, and for what they waited.
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

constexpr double kToldWait = 1.0;             // seconds that a trainer waited for a result, and
constexpr double kToldShare = 0.1;            // the share of a round: less is not worth an event
constexpr std::size_t kAccountedWaits = 256;  // of an island; its spans come within seconds

}  // namespace

void Core::State::on_merged(Run& run, Membership& membership, const Merged& message) {
  if (message.round <= membership.progress.merged && membership.progress.merged.value > 0) {
    return;
  }
  if (!run.own(message.round) && message.round > run.lineage.committed()) {
    return;
  }
  membership.progress.merged = message.round;
  membership.progress.settled = true;
  note_own_round(run, message.round);
  note_pair_round(run, membership, message);
  MetricRecord metric;
  metric.time = now();
  metric.run = run.about.id;
  metric.island = membership.record.island;
  metric.round = message.round;
  metric.step = message.step;
  metric.outer_loss = message.outer_loss;
  metric.local_loss = message.local_loss;
  metric.wait_seconds = message.wait_seconds;
  account_wait(run, membership, message.round, message.wait_seconds);
  const Island& island = islands.at(membership.record.island);
  if (membership.progress.last.round == message.round) {
    metric.training_loss = membership.progress.last.training_loss;
    metric.norm = membership.progress.last.norm;
    metric.tokens = membership.progress.last.tokens;
    metric.bytes_sent = membership.progress.last.bytes_sent;
    metric.bytes_received = membership.progress.last.bytes_received;
  } else {
    const auto report = island.reports.find(run.about.id);
    metric.training_loss = report == island.reports.end() ? kNotMeasured : report->second.training_loss;
  }
  record(std::move(metric));
  tell_own_metrics(run, membership, message);
}

// Numbers of a trainer's own go to the tape.
void Core::State::tell_own_metrics(const Run& run, const Membership& membership, const Merged& message) {
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
        "island " + islands.name_of(membership.record.island) + " at round " + std::to_string(message.round.value) + ": " + bounded(text),
        std::move(fields));
}

std::string Core::State::text_of(const WaitKey& key) const {
  switch (key.what) {
    case WaitFor::ready:
      return islands.name_of(key.island) + " to be ready";
    case WaitFor::link:
      return key.from.empty() ? "the exchange of " + islands.name_of(key.island)
                              : "the link " + islands.name_of(key.from) + " → " + islands.name_of(key.island);
    case WaitFor::commit:
      return "the coordinator to commit";
  }
  return "";
}

// Counts what an island waited for a round's result, by whom it waited for; a wait that matters is told.
void Core::State::account_wait(Run& run, Membership& membership, Round round, double wait_seconds) {
  const std::vector<RoundTimes> times = run.lineage.times_until(round);
  if (!(wait_seconds > 0) || run.own(round) || times.empty()) {
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
    causes += (causes.empty() ? "" : ", ") + human_duration(from_seconds(share.seconds)) + " for " + text_of(key);
  }
  if (wait_seconds >= std::max(kToldWait, seconds(run.in_rounds().last_round) * kToldShare)) {
    event(run.about.id, membership.record.island, "info", "island_waited",
          "island " + islands.name_of(membership.record.island) + " waited for round " + std::to_string(round.value) + ": " + causes,
          {Field{"round", static_cast<std::int64_t>(round.value)}, Field{"seconds", wait_seconds}});
  }
}

}  // namespace atl::coordinator
