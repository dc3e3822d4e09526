#include "strategies/planning/forecast.hpp"

#include <algorithm>
#include <cmath>
#include <deque>

#include "strategies/diloco.hpp"
#include "strategies/noloco.hpp"
#include "strategies/pairing.hpp"

namespace atl {
namespace {

Error refuse(std::string why) { return Error{Code::invalid_argument, std::move(why)}; }

std::uint64_t overlap_of(const ForecastQuestion& question, const ForecastIsland& island) {
  return island.overlap_steps.value_or(question.composition.overlap_steps);
}

Status check(const ForecastQuestion& question) {
  if (question.islands.empty()) {
    return refuse("a forecast needs at least one island");
  }
  if (question.fragment_values.empty()) {
    return refuse("a forecast needs the size of every fragment");
  }
  for (const ForecastIsland& island : question.islands) {
    const auto positive = [](double value) { return value > 0 && std::isfinite(value); };
    if (!positive(island.step_seconds) || !positive(island.uplink_bits_per_second) || !positive(island.downlink_bits_per_second)) {
      return refuse("island " + island.name + ": step time, uplink and downlink must be positive");
    }
    if (!(island.round_trip_seconds >= 0) || !std::isfinite(island.round_trip_seconds)) {
      return refuse("island " + island.name + ": the round-trip time must not be negative");
    }
    const std::uint64_t own = overlap_of(question, island);
    if (own > 0 && own >= question.composition.inner_steps && !question.composition.whole_period()) {
      return refuse("island " + island.name + ": its overlap of " + std::to_string(own) + " steps must be less than inner_steps " +
                    std::to_string(question.composition.inner_steps));
    }
  }
  return {};
}

// What a round of a fragment moves, per island.
struct RoundBytes {
  std::vector<double> sent;
  double received = 0;  // by each island: about the same for all
  double early = 0;     // of them: outer parameters of pairs, sent during the inner steps before
  int hops = 0;
};

Result<RoundBytes> bytes_of_round(const ForecastQuestion& question, std::uint64_t values) {
  RoundBytes bytes;
  const auto members = static_cast<std::uint32_t>(question.islands.size());
  bytes.sent.resize(members);
  if (question.composition.group == Group::nobody || members == 1) {
    return bytes;
  }
  if (question.composition.group == Group::pairs) {
    ATOLL_ASSIGN(const RoundCost cost, gossip_cost(values, std::min(question.composition.group_size, members), question.composition.codec,
                                                   question.composition.parameters_codec));
    bytes.received = static_cast<double>(cost.bytes) * question.costs.bytes_overhead;
    std::fill(bytes.sent.begin(), bytes.sent.end(), bytes.received);
    bytes.early = static_cast<double>((std::min(question.composition.group_size, members) - 1) *
                                      encoded_bytes(question.composition.parameters_codec, values)) *
                  question.costs.bytes_overhead;
    bytes.hops = 1;
    return bytes;
  }
  double total = 0;
  const std::size_t one_level = sums_by_groups(question.composition.aggregator) ? kOneLevelMembers : members;
  for (std::uint32_t member = 0; member < members; ++member) {
    ATOLL_ASSIGN(const RoundCost cost,
                 exchange_cost(values, members, member, question.composition.codec, question.composition.reduce_codec, one_level));
    bytes.sent[member] = static_cast<double>(cost.bytes) * question.costs.bytes_overhead;
    total += bytes.sent[member];
  }
  bytes.received = total / members;
  bytes.hops = members == 2 ? 1 : members <= one_level ? 2 : 4;
  return bytes;
}

// So many contributions close a round of so many islands.
std::size_t contributions_of(const Composition& composition, std::size_t islands) {
  return composition.quorum > 0 ? std::min<std::size_t>(composition.quorum, islands) : islands;
}

// A result that is on its way to an island, and the step after which it is merged there.
struct PendingMerge {
  std::uint64_t start_step = 0;
  std::uint64_t apply_step = 0;
  double arrival = 0;
};

// One island's clock.
struct Track {
  const ForecastIsland* island = nullptr;
  double step_seconds = 0;  // of a step of the schedule
  double now = 0;
  std::uint64_t steps = 0;
  double waiting = 0;
  double uplink_free = 0;
  double downlink_free = 0;
  double sent = 0;
  double received = 0;
  double last_round = 0;  // when the newest round is applied here; in pairs: when the outer parameters of the next can begin to travel
  std::deque<PendingMerge> pending = {};  // in the order of rounds, which is that of steps
};

class TrackGroup {
 public:
  explicit TrackGroup(const ForecastQuestion& question) : question_(question) {
    for (std::size_t i = 0; i < question.islands.size(); ++i) {
      const std::string number = std::to_string(i);
      names_.emplace_back(std::string(10 - std::min<std::size_t>(number.size(), 10), '0') + number);  // in the order of numbers
    }
    // With a quorum slower islands take the schedule's steps with fewer of their own.
    std::vector<double> seconds;
    for (const ForecastIsland& island : question.islands) {
      seconds.push_back(island.step_seconds);
    }
    const double of_schedule = schedule_step_seconds(question.composition, std::move(seconds));
    for (const ForecastIsland& island : question.islands) {
      tracks_.push_back(Track{&island, std::min(island.step_seconds, of_schedule)});
    }
  }

  // A round that starts after this step and is merged by each island after its own.
  void round(const RoundPlan& plan, const std::vector<std::uint64_t>& apply_steps, const RoundBytes& bytes, double values) {
    advance(plan.start.value, plan.start.value);
    const double form = values * question_.costs.form_seconds_per_value;
    const double apply = values * question_.costs.apply_seconds_per_value;
    if (question_.composition.group == Group::pairs && tracks_.size() > 1) {
      pair_round(plan, apply_steps, bytes, form, apply);
      return;
    }
    const bool alone = bytes.hops == 0;
    std::vector<double> ready;
    for (const Track& track : tracks_) {
      ready.push_back(track.now + form + track.island->round_trip_seconds / 2);
    }
    std::ranges::sort(ready);
    const double start = ready[needed() - 1];
    double told = 0;  // when the coordinator has heard everyone's digest
    double slowest_uplink = 0;
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
      Track& track = tracks_[i];
      const double begin = std::max(start + track.island->round_trip_seconds / 2, track.uplink_free);
      track.uplink_free = begin + bytes.sent[i] * 8 / track.island->uplink_bits_per_second;
      track.sent += bytes.sent[i];
      slowest_uplink = std::max(slowest_uplink, track.uplink_free);
    }
    for (Track& track : tracks_) {
      const double begin = std::max(start + track.island->round_trip_seconds / 2, track.downlink_free);
      track.downlink_free = begin + bytes.received * 8 / track.island->downlink_bits_per_second;
      track.received += bytes.received;
      const double done = std::max(track.downlink_free, slowest_uplink) + bytes.hops * track.island->round_trip_seconds;
      told = std::max(told, std::max(done, track.last_round) + track.island->round_trip_seconds / 2);
    }
    for (std::size_t i = 0; i < tracks_.size(); ++i) {
      const double arrival = alone ? tracks_[i].now + form + apply
                                   : told + tracks_[i].island->round_trip_seconds / 2 + question_.costs.round_overhead_seconds + apply;
      tracks_[i].pending.push_back({plan.start.value, apply_steps[i], arrival});
      tracks_[i].last_round = arrival;
    }
  }

  // To this step, with the merges up to it, but for those of rounds that start at `starting`: all that start together do so first. Where an
  // exchange takes the whole period those that start do so before the merges of the same step, too.
  void advance(std::uint64_t step, std::uint64_t starting) {
    const std::uint64_t merged = question_.composition.whole_period() && starting == step && step > 0 ? step - 1 : step;
    for (Track& track : tracks_) {
      while (!track.pending.empty() && track.pending.front().apply_step <= merged && track.pending.front().start_step < starting) {
        const PendingMerge merge = track.pending.front();
        track.pending.pop_front();
        step_to(track, merge.apply_step);
        if (!closes_with_quorum()) {
          wait_until(track, merge.arrival);
        }
      }
      step_to(track, step);
    }
  }

  // The run is over once all its rounds are.
  void finish(std::uint64_t step) {
    advance(step, step + 1);
    for (Track& track : tracks_) {
      wait_until(track, track.last_round);
    }
  }

  [[nodiscard]] const std::vector<Track>& tracks() const { return tracks_; }

 private:
  // Nobody waits but for its partner of the round; the outer parameters have been on their way since the round before.
  void pair_round(const RoundPlan& plan, const std::vector<std::uint64_t>& apply_steps, const RoundBytes& bytes, double form,
                  double apply) {
    for (const std::vector<IslandId>& group : pairing(1, plan.round, names_, question_.composition.group_size)) {
      double done = 0;
      for (const IslandId& member : group) {
        Track& track = tracks_[index_of(member)];
        const double ready = track.now + form;
        if (group.size() == 1) {
          done = ready;
          break;
        }
        const double seconds_early = bytes.early * 8 / track.island->uplink_bits_per_second;
        track.uplink_free = std::max(std::max(track.uplink_free, track.last_round) + seconds_early, ready) +
                            (bytes.sent[0] - bytes.early) * 8 / track.island->uplink_bits_per_second;
        track.sent += bytes.sent[0];
        track.received += bytes.received;
        done = std::max(done, track.uplink_free);
      }
      for (const IslandId& member : group) {
        Track& track = tracks_[index_of(member)];
        const double trip = group.size() == 1 ? 0.0 : 2 * track.island->round_trip_seconds;  // the gradient, and the decision
        const double passed = group.size() == 1 ? 0.0
                                                : std::max(track.downlink_free, track.now) +
                                                      (bytes.received - bytes.early) * 8 / track.island->downlink_bits_per_second;
        track.downlink_free = std::max(track.downlink_free, passed);
        track.last_round = std::max(done, passed) + trip + apply;
        track.pending.push_back({plan.start.value, apply_steps[index_of(member)], track.last_round});
      }
    }
  }

  [[nodiscard]] bool closes_with_quorum() const { return question_.composition.quorum > 0; }
  // As many contributions close a round.
  [[nodiscard]] std::size_t needed() const { return contributions_of(question_.composition, question_.islands.size()); }

  static void wait_until(Track& track, double time) {
    track.waiting += std::max(0.0, time - track.now);
    track.now = std::max(track.now, time);
  }

  [[nodiscard]] std::size_t index_of(const IslandId& name) const {
    return static_cast<std::size_t>(std::lower_bound(names_.begin(), names_.end(), name) - names_.begin());
  }

  static void step_to(Track& track, std::uint64_t step) {
    if (step > track.steps) {
      track.now += static_cast<double>(step - track.steps) * track.step_seconds;
      track.steps = step;
    }
  }

  const ForecastQuestion& question_;
  std::vector<Track> tracks_;
  std::vector<IslandId> names_;
};

// What a run comes to for one island.
struct Outcome {
  double now = 0;
  double waiting = 0;
  double sent = 0;
  double received = 0;
};

Result<std::vector<Outcome>> simulate(const ForecastQuestion& question, const std::vector<RoundBytes>& bytes, std::uint64_t total_steps) {
  ATOLL_ASSIGN(const Schedule schedule, schedule_of(question.composition, total_steps, static_cast<std::uint32_t>(bytes.size())));
  std::vector<Schedule> own;
  for (const ForecastIsland& island : question.islands) {
    ATOLL_ASSIGN(const Schedule merged, schedule.merged_after(overlap_of(question, island)));
    own.push_back(merged);
  }
  TrackGroup group(question);
  std::vector<std::uint64_t> apply_steps(own.size());
  for (std::uint64_t r = 1; r <= schedule.rounds(); ++r) {
    ATOLL_ASSIGN(const RoundPlan plan, schedule.round_at(Round(r)));
    for (std::size_t i = 0; i < own.size(); ++i) {
      ATOLL_ASSIGN(const RoundPlan merged, own[i].round_at(Round(r)));
      apply_steps[i] = merged.apply.value;
    }
    group.round(plan, apply_steps, bytes[plan.fragment], static_cast<double>(question.fragment_values[plan.fragment]));
  }
  group.finish(total_steps);
  std::vector<Outcome> outcomes;
  for (const Track& track : group.tracks()) {
    outcomes.push_back({track.now, track.waiting, track.sent, track.received});
  }
  return outcomes;
}

// Of the whole run: simulated, or a beginning of it and the periods that follow.
Result<std::vector<Outcome>> outcomes_of(const ForecastQuestion& question, const std::vector<RoundBytes>& bytes, const Schedule& schedule) {
  const std::uint64_t period = question.composition.inner_steps;
  const std::uint64_t shorter = std::max<std::uint64_t>(3, kSimulatedRounds / 2 / bytes.size());  // periods
  const std::uint64_t rest = question.total_steps % period;
  if (schedule.rounds() <= kSimulatedRounds || question.total_steps / period <= 2 * shorter) {
    return simulate(question, bytes, question.total_steps);
  }
  ATOLL_ASSIGN(const std::vector<Outcome> half, simulate(question, bytes, shorter * period + rest));
  ATOLL_ASSIGN(std::vector<Outcome> whole, simulate(question, bytes, 2 * shorter * period + rest));
  const std::uint64_t periods = question.total_steps / period;
  const double repeats = static_cast<double>(periods - 2 * shorter) / static_cast<double>(shorter);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto extend = [&](double Outcome::*field) { whole[i].*field += repeats * (whole[i].*field - half[i].*field); };
    extend(&Outcome::now);
    extend(&Outcome::waiting);
    extend(&Outcome::sent);
    extend(&Outcome::received);
  }
  return whole;
}

// The most bytes of rounds in a row per step from the first one's start to the last one's merge, that is, how fast island i has to send
// so that no merge waits. Rounds repeat themselves after as many as there are fragments, and a longer stretch lies between a shorter one
// and the mean of a period, which is looked at, too. The last synchronisation, whose rounds begin and end at one step, is left out.
// Nothing where every round is waited for.
Result<std::optional<double>> peak_bytes_per_step(const Schedule& schedule, std::uint64_t overlap, const std::vector<RoundBytes>& bytes,
                                                  std::size_t i) {
  const std::uint64_t fragments = schedule.fragments();
  const std::uint64_t regular = schedule.rounds() - fragments;
  if (overlap == 0 || regular == 0) {
    return std::optional<double>();
  }
  std::vector<RoundPlan> plans;
  for (std::uint64_t round = 1; round <= std::min(regular, 3 * fragments + 1); ++round) {
    ATOLL_ASSIGN(const RoundPlan plan, schedule.round_at(Round(round)));
    plans.push_back(plan);
  }
  double most = 0;
  for (std::size_t first = 0; first < plans.size(); ++first) {
    double sent = 0;
    for (std::size_t last = first; last < std::min<std::size_t>(plans.size(), first + fragments); ++last) {
      sent += bytes[plans[last].fragment].sent[i];
      most = std::max(most, sent / static_cast<double>(plans[last].start.value - plans[first].start.value + overlap));
    }
    if (first + fragments < plans.size()) {
      most = std::max(most, sent / static_cast<double>(plans[first + fragments].start.value - plans[first].start.value));
    }
  }
  return std::optional(most);
}

std::uint64_t agent_memory(const ForecastQuestion& question) {
  std::uint64_t values = 0;
  std::uint64_t largest = 0;
  for (const std::uint64_t count : question.fragment_values) {
    values += count;
    largest = std::max(largest, count);
  }
  const std::uint64_t outer = values * outer_state_bytes(question.composition.outer.kind, question.composition.outer_state);
  const std::uint64_t arena = values * 4;
  // f32 contributions of fragments are formed in place in the arena; others are encoded beside it.
  const auto encoded = [&](const CodecSettings& codec) { return encoded_bytes(codec, largest); };
  const std::uint64_t contribution = question.composition.codec.kind == CodecKind::f32 ? 0 : encoded(question.composition.codec);
  if (question.composition.group == Group::pairs) {  // everybody's gradient and outer parameters of the largest fragment, encoded
    return outer + arena + contribution + (question.composition.group_size - 1) * encoded(question.composition.codec) +
           question.composition.group_size * encoded(question.composition.parameters_codec);
  }
  const CodecSettings& reduced = question.islands.size() > 2 ? question.composition.reduce_codec : question.composition.codec;
  const std::uint64_t residual = question.composition.error_feedback ? values * 4 : 0;
  return outer + arena + residual + contribution + encoded(reduced);
}

}  // namespace

double schedule_step_seconds(const Composition& composition, std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const std::size_t needed = contributions_of(composition, seconds.size());
  if (composition.quorum == 0 || composition.quorum_of == QuorumOf::on_time) {
    return seconds[needed - 1];
  }
  double rate = 0;  // of all those that do not contribute to every round
  for (const double each : seconds) {
    rate += 1 / each;
  }
  std::size_t always = 0;
  while (always + 1 < needed && seconds[always] * rate < static_cast<double>(needed - always)) {
    rate -= 1 / seconds[always];
    ++always;
  }
  return static_cast<double>(needed - always) / rate;
}

Result<Forecast> forecast(const ForecastQuestion& question, double bound_utilisation) {
  ATOLL_TRY(check(question));
  const auto fragments = static_cast<std::uint32_t>(question.fragment_values.size());
  ATOLL_ASSIGN(const Schedule schedule, schedule_of(question.composition, question.total_steps, fragments));
  std::vector<RoundBytes> bytes;
  for (const std::uint64_t values : question.fragment_values) {
    ATOLL_ASSIGN(RoundBytes of_fragment, bytes_of_round(question, values));
    bytes.push_back(std::move(of_fragment));
  }

  ATOLL_ASSIGN(const std::vector<Outcome> outcomes, outcomes_of(question, bytes, schedule));
  Forecast result;
  result.rounds = schedule.rounds();

  double computing = 0;
  double elapsed = 0;
  for (std::size_t i = 0; i < question.islands.size(); ++i) {
    const Outcome& track = outcomes[i];
    const double step_seconds = question.islands[i].step_seconds;
    const bool skips = question.composition.quorum > 0;
    const double compute = skips ? track.now - track.waiting : static_cast<double>(question.total_steps) * step_seconds;
    computing += compute;
    elapsed += track.now;
    result.seconds = std::max(result.seconds, track.now);
    IslandForecast island;
    island.name = question.islands[i].name;
    island.steps = skips ? static_cast<std::uint64_t>(compute / step_seconds + 1e-6) : question.total_steps;
    island.bytes_sent = static_cast<std::uint64_t>(track.sent);
    island.bytes_received = static_cast<std::uint64_t>(track.received);
    island.bytes_sent_per_step = track.sent / static_cast<double>(question.total_steps);
    island.bytes_sent_per_day = track.sent / track.now * 86400;
    island.mean_bits_per_second = track.sent * 8 / track.now;
    double largest = 0;
    for (const RoundBytes& round : bytes) {
      largest = std::max(largest, round.sent[i]);
    }
    result.bytes_per_round = std::max(result.bytes_per_round, static_cast<std::uint64_t>(largest));
    const std::uint64_t overlap = overlap_of(question, question.islands[i]);
    if (largest > 0) {
      ATOLL_ASSIGN(const std::optional<double> rate, peak_bytes_per_step(schedule, overlap, bytes, i));
      island.peak_bits_per_second = rate ? *rate * 8 / step_seconds : question.islands[i].uplink_bits_per_second;
    }
    island.waiting_seconds = track.waiting;
    island.utilisation = compute / track.now;
    island.sustained_bound_bits_per_second = track.sent * 8 * bound_utilisation / compute;
    result.islands.push_back(std::move(island));
  }
  result.utilisation = computing / elapsed;
  result.agent_memory_bytes = agent_memory(question);
  return result;
}

}  // namespace atl
