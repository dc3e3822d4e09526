#include "coordinator/core/removals.hpp"

#include <algorithm>
#include <utility>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

std::uint64_t seconds_since(TimePoint time, TimePoint now) {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(std::max(now - time, Duration::zero())).count());
}

}  // namespace

void Removals::add(RemovedRecord removed) {
  const RunId run = removed.run;
  removed_.insert_or_assign(run, std::move(removed));
}

const RemovedRecord* Removals::find(const RunId& run) const {
  const auto found = removed_.find(run);
  return found == removed_.end() ? nullptr : &found->second;
}

RunOver over_of(const RemovedRecord& removed, TimePoint now) {
  return RunOver{removed.run, true, seconds_since(removed.time, now), removed.epoch, removed.round};
}

RunOver over_of(const RunRecord& ended, Round furthest, TimePoint now) {
  return RunOver{ended.id, false, seconds_since(ended.ended.value_or(now), now), ended.epoch, furthest};
}

// ----------------------------------------------------------------------------------------------------------- in the core

Result<Removal> Core::remove(TimePoint now, const RunId& id, bool rehearse) {
  State& state = *state_;
  state.out.advance_to(now);
  ATOLL_ASSIGN(const Run* const found, state.run_asked_for(id));
  if (found->whole() != id.text) {
    return Error{Code::conflict, "run " + found->about.name + " is a part of run " + found->spec.work.run + ": remove that one"};
  }
  if (!found->life.over()) {
    return Error{Code::conflict, "run " + found->about.name + " is " + std::string(to_string(found->life.state())) +
                                     ", and only a run that has ended can be removed: `atoll cancel " + found->about.name + "` ends it"};
  }
  std::vector<RunId> ids = {id};
  for (const auto& [other, run] : state.runs) {
    if (run.spec.work.run == id.text) {
      ids.push_back(other);
    }
  }
  Removal removal;
  removal.islands = state.holders_of(ids);
  if (!rehearse) {
    const std::string name = found->about.name;
    for (const RunId& each : ids) {
      state.forget_run(each);
    }
    state.event({}, {}, "info", "run_removed", "run " + name + " (" + id.text + ") was removed by an operator");
    state.tell_removed(ids, removal.islands);
    state.advance_all();
  }
  return removal;
}

// Islands that have, or may have, something of one of these runs on their disks.
std::vector<Holder> Core::State::holders_of(const std::vector<RunId>& ids) const {
  std::vector<Holder> holders;
  for (const auto& [island, about] : islands.all()) {
    const bool holds = std::ranges::any_of(ids, [&, id = island](const RunId& run) {
      const auto found = runs.find(run);
      return islands.at(id).held.contains(run) || (found != runs.end() && found->second.memberships.contains(id));
    });
    if (holds) {
      holders.push_back(Holder{island, about.record.name, about.greeted});
    }
  }
  std::ranges::sort(holders, {}, &Holder::name);
  return holders;
}

void Core::State::forget_run(const RunId& id) {
  const Run& run = runs.at(id);
  RemovedRecord removed{id, run.about.name, now(), run.epoch, run.rule->furthest_known(run)};
  record(removed);
  removals.add(std::move(removed));
  islands.forget_run(id);
  runs.erase(id);
}

// Once, at once: whoever does not hear it asks now and then.
void Core::State::tell_removed(const std::vector<RunId>& ids, const std::vector<Holder>& holders) {
  Over over;
  for (const RunId& id : ids) {
    if (const RemovedRecord* removed = removals.find(id); removed != nullptr && over.runs.size() < kMaxListItems) {
      over.runs.push_back(over_of(*removed, now()));
    }
  }
  for (const Holder& holder : holders) {
    send(holder.island, over);
  }
}

void Core::State::on_holds(const IslandId& island, const Holds& message) {
  Over over;
  for (const RunId& id : message.runs) {
    const auto run = runs.find(id);
    if (run != runs.end() && run->second.life.over()) {
      over.runs.push_back(over_of(run->second.to_record(), run->second.rule->furthest_known(run->second), now()));
    } else if (const RemovedRecord* removed = run == runs.end() ? removals.find(id) : nullptr) {
      over.runs.push_back(over_of(*removed, now()));
    }
  }
  if (!over.runs.empty()) {
    send(island, std::move(over));
  }
}

}  // namespace atl::coordinator
