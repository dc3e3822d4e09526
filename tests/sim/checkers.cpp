#include "tests/sim/checkers.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "coordinator/core/phases.hpp"
#include "strategies/aggregate.hpp"
#include "strategies/composition.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/specification/run_rules.hpp"
#include "tests/sim/island_host.hpp"
#include "tests/sim/scenario.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::sim {
void Checkers::fail(const std::string& what) {
  if (whole_ != nullptr) {
    whole_->fail("run " + run_.text + ": " + what);
  } else if (failure_.empty()) {
    failure_ = what;
  }
}

Checkers& Checkers::of(const RunId& run) {
  const auto group = groups_.empty() ? groups_.end() : groups_.find(run);
  return group == groups_.end() ? *this : *group->second.checkers;
}

std::size_t Checkers::group_commits() const {
  std::size_t commits = 0;
  for (const auto& [run, group] : groups_) {
    commits += group.checkers->commits_;
  }
  return commits;
}

void Checkers::open_group(const coordinator::RunRecord& record) {
  Result<RunSpec> spec = run_spec_from_json(record.spec);
  if (!spec || spec->work.run.empty()) {
    return;
  }
  Schedule schedule = schedule_of_spec(*spec);
  Group& group = groups_.emplace(record.id, Group{*std::move(spec), std::move(schedule), nullptr}).first->second;
  group.checkers.reset(new Checkers(group.schedule, group.spec, *this, record.id));
}

void Checkers::contribution(const IslandId& island, Round round, const Digest& base, const Vector& values, const ContributionFacts& facts,
                            const Trained& trained) {
  formed_[{island, round}] = Formed{base, values, facts, trained};
}

void Checkers::published(const IslandId& island, Round round, Step step, Step stood_at) {
  const Step start = schedule_.round_at(round).value().start;
  if (spec_.strategy.quorum > 0 ? step < start : step != std::max(start, stood_at)) {
    fail(name_of(island) + " published for round " + std::to_string(round.value) + " after step " + std::to_string(step.value) +
         ", the schedule says " + std::to_string(start.value));
  }
}

void Checkers::merged(const IslandId& island, Round round, Step step, Step stood_at) {
  if (merges(round) || spec_.strategy.quorum > 0) {
    return;
  }
  const Schedule own = schedule_.merged_after(own_overlap(spec_, name_of(island))).value();
  const Step apply = own.round_at(round).value().apply;
  if (step != std::max(apply, stood_at)) {
    fail(name_of(island) + " merged round " + std::to_string(round.value) + " after step " + std::to_string(step.value) +
         ", the schedule says " + std::to_string(apply.value));
  }
}

// Those that its trainer publishes before it needs the next result, and no more: the memory of an island does not grow with a round that
// takes long.
void Checkers::retained(const IslandId& island, Round applied, std::size_t count) {
  if (spec_.strategy.quorum > 0) {  // one of each fragment
    if (count > schedule_.fragments()) {
      fail(name_of(island) + " retains " + std::to_string(count) + " contributions, more than there are fragments");
    }
    return;
  }
  const Schedule own = schedule_.merged_after(own_overlap(spec_, name_of(island))).value();
  const Result<RoundPlan> next = own.round_at(applied.next());
  std::size_t bound = 0;
  for (Round round = applied.next(); next; round = round.next()) {
    const Result<RoundPlan> plan = own.round_at(round);
    if (!plan || plan->start > next->apply) {
      break;
    }
    ++bound;
  }
  if (next && count > bound) {
    fail(name_of(island) + " retains " + std::to_string(count) + " contributions after round " + std::to_string(applied.value) +
         ", at most " + std::to_string(bound) + " can be under way");
  }
}

void Checkers::moved(const IslandId& island, Round round, const Vector& values, const Vector& by_trainer) {
  bool differs = values.size() != by_trainer.size();
  for (std::size_t i = 0; !differs && i < values.size(); ++i) {
    differs = std::abs(values[i] - by_trainer[i]) > 1e-4F * (1.0F + std::abs(by_trainer[i]));
  }
  if (differs) {
    fail("the contribution of " + name_of(island) + " to round " + std::to_string(round.value) +
         " is not what its trainer moved by: " + std::to_string(values.size()) + " values, " + std::to_string(by_trainer.size()) +
         " of the trainer; the first is " + std::to_string(values.empty() ? 0 : values.front()) + ", the trainer's " +
         std::to_string(by_trainer.empty() ? 0 : by_trainer.front()));
  }
}

void Checkers::formed_behind(const IslandId& island, Round round, const Digest& base, const Vector& values, const Vector& local) {
  const auto state = states_.find(base);
  const std::size_t place = place_of(schedule_.round_at(round).value().fragment, values.size());
  bool differs = state == states_.end() || values.size() != local.size() || state->second.first.size() < place + values.size();
  for (std::size_t i = 0; !differs && i < values.size(); ++i) {
    const float expected = state->second.first[place + i] - local[i];
    differs = spec_.strategy.anchor == Anchor::own
                  ? values[i] != expected
                  : std::abs(values[i] - expected) > 1e-4F * (1.0F + std::abs(expected) + std::abs(local[i]));
  }
  if (differs) {
    fail("the late contribution of " + name_of(island) + " to round " + std::to_string(round.value) + " is not that against its base");
  }
}

bool Checkers::belongs(Round round, const Digest& base, Digest before, bool late) const {
  const std::uint32_t fragment = schedule_.round_at(round).value().fragment;
  // Where an exchange takes a whole period the fragment's round before is under way when a contribution is formed.
  const bool whole = spec_.strategy.overlap_steps == spec_.strategy.inner_steps && spec_.strategy.merge_alpha == 0.0;
  int between = whole ? 1 : 0;
  for (Round at(round.value - 1);; at = Round(at.value - 1)) {
    if (before == base) {
      return true;
    }
    const auto parent = parents_.find(before);
    if (at == Round(0) || parent == parents_.end()) {
      return false;
    }
    between -= schedule_.round_at(at).value().fragment == fragment ? 1 : 0;
    if (between < 0 && !late) {
      return false;
    }
    before = parent->second;
  }
}

void Checkers::outer_state(const IslandId& island, Round round, const Digest& digest, const Vector& parameters, const Vector& momentum) {
  const auto [known, inserted] = states_.emplace(digest, std::pair(parameters, momentum));
  if (inserted && spec_.strategy.group == atl::Group::all) {
    check_step(round, digest, parameters);
  }
  if (!inserted && known->second != std::pair(parameters, momentum)) {
    fail("the outer state of round " + std::to_string(round.value) + " on " + name_of(island) +
         " differs from another's with the same digest");
  }
}

void Checkers::applied(const IslandId& island, Round before, Round round, const Digest& digest, bool alone) {
  applied_alone_ += alone ? 1U : 0U;
  if (round != before.next()) {
    fail(name_of(island) + " applied round " + std::to_string(round.value) + " to the state of round " + std::to_string(before.value));
  }
  if (!alone && committed_digests_.count(digest) == 0) {
    fail(name_of(island) + " applied a result of round " + std::to_string(round.value) + " that is not committed");
  }
}

void Checkers::paired(const IslandId& island, const std::vector<IslandId>& group, Epoch epoch, Round round, bool met,
                      const Vector& result) {
  ++(met ? met_ : went_alone_);
  pairs_[{epoch, round, island}] = Decided{group, met, result};
}

void Checkers::void_pairs(const IslandId& island, Round after) {
  std::erase_if(pairs_, [&](const auto& entry) { return std::get<2>(entry.first) == island && std::get<1>(entry.first) > after; });
}

void Checkers::check_pairs() {
  const auto stayed = [&](const IslandId& island) {
    return std::find(last_members_.begin(), last_members_.end(), island) != last_members_.end();
  };
  for (const auto& [key, decided] : pairs_) {
    const auto& [epoch, round, island] = key;
    if (!decided.met || !stayed(island)) {
      continue;
    }
    for (const IslandId& member : decided.group) {
      const auto other = pairs_.find({epoch, round, member});
      if (other == pairs_.end() || !stayed(member)) {
        continue;
      }
      const std::string name = "round " + std::to_string(round.value) + " of " + name_of(island) + " and " + name_of(member) +
                               " in epoch " + std::to_string(epoch.value);
      if (!other->second.met) {
        fail(name + ": one met, the other went alone");
      } else if (other->second.result != decided.result || other->second.group != decided.group) {
        fail(name + ": they used different values");
      }
    }
  }
}

void Checkers::older_ledger(const std::map<RunId, coordinator::RunRecord>& runs, const std::optional<EventTape>& tape) {
  runs_ = runs;
  tape_ = tape.value_or(EventTape(first_planned()));
  older_ledger_ = true;
}

// Each record is checked with those of its run: groups' before those of the run that they work for.
void Checkers::durable(const std::vector<coordinator::Record>& records, bool alone) {
  if (spec_.group_rounds == 0) {
    take(records, alone);
    return;
  }
  std::vector<coordinator::Record> own;
  std::map<RunId, std::vector<coordinator::Record>> of_groups;
  for (const coordinator::Record& record : records) {
    RunId run;
    std::visit(
        [&](const auto& value) {
          if constexpr (requires { value.run; }) {
            run = value.run;
          } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, coordinator::RunRecord>) {
            run = value.id;
            if (!groups_.contains(run)) {
              open_group(value);
            }
          }
        },
        record);
    (groups_.contains(run) ? of_groups[run] : own).push_back(record);
  }
  for (const auto& [run, of_group] : of_groups) {
    groups_.at(run).checkers->take(of_group, false);
  }
  take(own, alone);
}

void Checkers::take(const std::vector<coordinator::Record>& records, bool alone) {
  std::set<RunId> rolled_back;
  for (const coordinator::Record& record : records) {
    if (const auto* event = std::get_if<coordinator::EventRecord>(&record)) {
      if (event->kind == "rolled_back") {
        rolled_back.insert(event->run);
        for (const coordinator::Field& field : event->fields) {
          if (const auto* to = std::get_if<std::int64_t>(&field.value); to != nullptr && field.key == "to") {
            forget_samples(Round(static_cast<std::uint64_t>(*to)));
          }
        }
      }
      rejected_ += event->kind == "contribution_rejected" ? 1U : 0U;
      tape_.take(*event);
    }
  }
  for (const coordinator::Record& record : records) {
    if (const auto* planned = std::get_if<coordinator::RoundRecord>(&record)) {
      tape_.compare(*planned);
    } else if (const auto* task = std::get_if<coordinator::TaskRecord>(&record)) {
      check_task(*task);
    } else if (const auto* membership = std::get_if<coordinator::EpochRecord>(&record)) {
      tape_.compare(*membership);
    }
    if (const auto* round = std::get_if<coordinator::RoundRecord>(&record); round != nullptr && round->committed) {
      check_commit(*round);
    } else if (const auto* run = std::get_if<coordinator::RunRecord>(&record)) {
      const auto old = runs_.find(run->id);
      if (old != runs_.end() && run->committed < old->second.committed && !alone &&
          (run->lineage <= old->second.lineage || rolled_back.count(run->id) == 0)) {
        fail("committed rounds were lost without a rolled_back event");
      }
      if (old != runs_.end() && run->epoch < old->second.epoch) {
        fail("the epoch went back");
      }
      runs_[run->id] = *run;
      if (!coordinator::has_ended(run->state) && run->reason.text.empty() && run->state != coordinator::RunState::running) {
        fail("a run that waits has no reason");
      }
    }
  }
  std::map<std::uint32_t, std::uint64_t> told;
  for (const coordinator::Record& record : records) {
    if (const auto* part = std::get_if<coordinator::PartRecord>(&record)) {
      told[part->part] = part->position;
    }
  }
  for (const auto& [part, position] : told) {
    if (!alone && spec_.strategy.group == atl::Group::all && position != positions_[part]) {
      fail("part " + std::to_string(part) + " is at " + std::to_string(position) + " in the ledger, its samples are committed up to " +
           std::to_string(positions_[part]));
    }
  }
  if (!tape_.failure().empty()) {
    fail(tape_.failure());
  }
}

// What a round counts of a member is what its trainer did: each sample once, none left out, and in the order of its part. Before the range
// there may be samples in its parameters that earlier rounds count, but only as trained by this very trainer since it was loaded.
void Checkers::check_samples(const coordinator::RoundRecord& record, std::size_t member, const Trained& trained) {
  if (spec_.strategy.group != atl::Group::all) {
    return;  // every island counts for itself
  }
  const std::string name = "round " + std::to_string(record.round.value) + " of " + name_of(record.members[member]);
  const DataRange& range = record.contributions.at(member).data;
  const bool counts = record.contributions[member].tokens > 0;
  const std::string told = std::to_string(range.part) + ":" + std::to_string(range.from) + "-" + std::to_string(range.to);
  if (counts && range.sequences() > 0 &&
      (trained.part != range.part || (trained.from > range.from && spec_.strategy.quorum == 0) || trained.to != range.to)) {
    fail(name + " counts other samples than were trained on: the ledger has " + told + ", the trainer " + std::to_string(trained.part) +
         ":" + std::to_string(trained.from) + "-" + std::to_string(trained.to));
    return;
  }
  if (range.sequences() == 0) {
    return;
  }
  std::uint64_t& position = positions_[range.part];
  if (range.from != position) {
    fail(name + (range.from < position ? " commits samples a second time" : " leaves samples out") + ": part " +
         std::to_string(range.part) + " is committed up to " + std::to_string(position) + ", it has " + told);
    return;
  }
  std::map<std::uint64_t, Sample>& samples = samples_[range.part];
  for (std::uint64_t sample = trained.from; counts && sample < range.from; ++sample) {
    const Sample& earlier = samples[sample];
    // The same step, made again: after the checkpoint, or before it on the way to another lineage that came to the same bytes.
    const bool made_again = trained.resumed && (earlier.round > *trained.resumed || history_[*trained.resumed] == trained.resumed_digest);
    const bool again = made_again && earlier.island == record.members[member];
    if (earlier.load != 0 && earlier.load != trained.load && !again) {
      fail(name + " holds sample " + std::to_string(sample) + " of part " + std::to_string(range.part) +
           " again, which is committed already");
      return;
    }
  }
  for (std::uint64_t sample = range.from; sample < range.to; ++sample) {
    samples[sample] = Sample{record.round, counts ? trained.load : 0, record.members[member]};
  }
  position = range.to;
  if (counts) {
    check_sequences(record, member);
  }
}

// No sequence of the run is committed twice, whichever islands had it.
void Checkers::check_sequences(const coordinator::RoundRecord& record, std::size_t member) {
  const DataRange& range = record.contributions.at(member).data;
  for (std::uint64_t place = range.from; place < range.to; ++place) {
    const auto taken = taken_.find({range.part, place});
    if (taken == taken_.end()) {
      continue;  // by a trainer of another world: its run goes on from a copy
    }
    const auto [committed, fresh] =
        sequences_.try_emplace(taken->second, Taken{record.round, record.members[member], DataRange{range.part, place, place + 1}});
    if (!fresh) {
      fail("round " + std::to_string(record.round.value) + " of " + name_of(record.members[member]) + " commits sequence " +
           std::to_string(taken->second) + " (" + std::to_string(range.part) + ":" + std::to_string(place) +
           ") of the run again, which round " + std::to_string(committed->second.round.value) + " of " + name_of(committed->second.island) +
           " (" + std::to_string(committed->second.place.part) + ":" + std::to_string(committed->second.place.from) + ") holds already");
      return;
    }
  }
}

// A result is that of all steps, each once and in order, on the results of the tasks that it needs.
void Checkers::check_task(const coordinator::TaskRecord& record) {
  check_places(record);
  check_packing(record);
  if (record.state != coordinator::TaskState::done) {
    results_.erase(record.task);
    return;
  }
  const std::vector<coordinator::TaskPlan> plans = coordinator::tasks_of(spec_);
  const auto plan = std::ranges::find(plans, record.task, &coordinator::TaskPlan::task);
  if (plan == plans.end()) {
    fail("task " + record.task + " is none of the run's");
    return;
  }
  std::vector<Digest> inputs;
  for (const std::string& need : plan->needs) {
    const auto input = results_.find(need);
    if (input == results_.end()) {
      fail("task " + record.task + " was done before " + need);
      return;
    }
    inputs.push_back(input->second);
  }
  Digest expected = task_before_steps(record.task, inputs, record.island);
  if (!record.group.empty()) {
    check_group_result(record, expected);
  } else {
    for (std::uint64_t step = 0; step < steps_of_task(spec_, record.task); ++step) {
      expected = task_after_step(expected, step);
    }
    if (record.result != task_result(expected)) {
      fail("the result of task " + record.task + " is not that of each of its steps once");
    }
  }
  tasks_done_ += results_.emplace(record.task, record.result).second ? 1U : 0U;
}

// A group's expert is what the trainer of the island that made its file saved after the last round that the group's run committed, when
// that was over.
void Checkers::check_group_result(const coordinator::TaskRecord& record, const Digest& before_steps) {
  const auto group = groups_.find(record.group);
  if (group == groups_.end()) {
    fail("task " + record.task + " was trained by a group that there is not");
    return;
  }
  const Checkers& rounds = *group->second.checkers;
  const coordinator::RunRecord& run = rounds.runs_.at(record.group);
  if (run.state != coordinator::RunState::completed || run.committed.value != group->second.spec.rounds) {
    fail("task " + record.task + " was done before the rounds of its group " + record.group.text + " were");
    return;
  }
  const auto saved = rounds.saved_.find(record.island);
  const bool follows =
      saved != rounds.saved_.end() && std::ranges::any_of(saved->second, [&](const auto& state) {
        return state.first == run.digest && task_result(task_after_rounds(before_steps, state.first, state.second)) == record.result;
      });
  if (!follows) {
    fail("the result of task " + record.task + " is not made of what " + name_of(record.island) +
         " saved after the last round of its group " + record.group.text);
    return;
  }
  trained_by_groups_ += results_.contains(record.task) ? 0U : 1U;
}

// Nobody works on two tasks.
void Checkers::check_places(const coordinator::TaskRecord& record) {
  if (record.state != coordinator::TaskState::running) {
    at_work_.erase(record.task);
    return;
  }
  std::set<IslandId>& islands = at_work_[record.task];
  islands = {record.members.begin(), record.members.end()};
  islands.insert(record.island);
  for (const auto& [task, others] : at_work_) {
    for (const IslandId& island : others) {
      if (task != record.task && islands.contains(island)) {
        fail(name_of(island) + " works on task " + task + " and on task " + record.task);
      }
    }
  }
}

// Every part of a data set is of another island.
void Checkers::check_packing(const coordinator::TaskRecord& record) {
  if (!record.task.starts_with("images/")) {
    return;
  }
  if (record.state != coordinator::TaskState::running && record.state != coordinator::TaskState::done) {
    packed_by_.erase(record.task);
    return;
  }
  packed_by_[record.task] = record.island;
  for (const auto& [task, island] : packed_by_) {
    if (task != record.task && island == record.island) {
      fail(name_of(island) + " packs its images as " + task + " and as " + record.task);
    }
  }
}

void Checkers::trainer_saved(const IslandId& island, const Digest& digest, Step step, const Vector& parameters) {
  if (step.value != spec_.training.steps) {
    fail(name_of(island) + " saved its trainer's state after step " + std::to_string(step.value) + " as that of the end");
  }
  saved_[island].insert({digest, parameters});
}

void Checkers::last_copy_dropped(const IslandId& island, const Digest& digest) {
  for (const auto& [task, result] : results_) {
    if (result == digest && !coordinator::has_ended(runs_.begin()->second.state)) {
      fail(name_of(island) + " dropped the last copy of the result of task " + task);
    }
  }
}

void Checkers::forget_samples(Round round) {
  for (auto& [part, samples] : samples_) {
    std::erase_if(samples, [round](const auto& sample) { return sample.second.round > round; });
    positions_[part] = samples.empty() ? 0 : samples.rbegin()->first + 1;
  }
  std::erase_if(sequences_, [round](const auto& sequence) { return sequence.second.round > round; });
}

}  // namespace atl::sim
