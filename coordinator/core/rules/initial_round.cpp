// Round 0, on which everybody agrees: the digest of the initial state.
#include <algorithm>
#include <map>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/shared_rule.hpp"

namespace atl::coordinator {
namespace {

// It has said so, by an empty digest, of a run that begins with given parameters.
bool lacks_parameters(const Run& run, const Membership& membership) {
  return !run.spec.model.from.empty() && membership.entry.initial() && membership.entry.initial()->empty();
}

}  // namespace

void SharedRule::on_initial(Run& run, Membership& membership, const atl::Ready& message) {
  if (run.lineage.initialised()) {
    answer_committed(run, membership, Round(0), message.digest);
  } else if (current(run, membership, message.epoch) && membership.record.state == MembershipState::starting) {
    membership.entry.told(message.digest);
    touch(run);
  }
}

// Round 0: every member says the digest of its initial state; the one that most have stands, of several the first island's. Who lacks the
// parameters that the run begins with says an empty one, and copies the state of those that have them.
void SharedRule::advance_initial(Run& run) {
  if (take_over_beginning(run)) {
    return;
  }
  const TimePoint deadline = run.last_commit + run.spec.islands.deadline;
  const bool all_lack_it =
      std::ranges::all_of(run.members, [&](const IslandId& id) { return lacks_parameters(run, run.memberships.at(id)); });
  for (const auto& [id, island] : islands_.all()) {
    const bool present = run.memberships.count(id) > 0 && run.memberships.at(id).record.state != MembershipState::absent;
    if (run.members.size() < run.spec.islands.max && !run.members.empty() &&
        (now() < deadline || run.members.size() < run.spec.islands.min || all_lack_it) && !present && island.greeted &&
        core_.admits_name(run, island) && core_.obstacle_of(run, island).empty()) {
      core_.add_membership(run, id, MembershipState::starting, StartFrom::scratch);
      run.members.push_back(id);
      core_.new_epoch(run, island.record.name + " joined");
      invite(run, run.memberships.at(id));
    }
  }
  if (run.members.empty()) {
    run.epoch = run.epoch.next();
    core_.set_state(run, RunState::queued, "the islands that it was starting on are gone");
    touch(run);
    return;
  }
  std::vector<std::string> starting;
  std::map<Digest, std::size_t> votes;
  const Digest* digest = nullptr;
  std::size_t ready = 0;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (membership.entry.initial()) {
      ++ready;
      votes[*membership.entry.initial()] += lacks_parameters(run, membership) ? 0U : 1U;
      continue;
    }
    starting.push_back(islands_.name_of(id));
    if (membership.entry.due(out_) && !claims_alone(run, id)) {
      invite(run, membership);
    }
    wake_at(membership.entry.next_repeat());
  }
  if (const std::optional<Wait> apart = core_.data_paths.wait_for(run)) {
    run.wait = *apart;
    stand(run, Round(0), apart->text);
    return;
  }
  run.in_rounds().stand.reset();
  for (const IslandId& id : run.members) {
    const std::optional<Digest>& told = run.memberships.at(id).entry.initial();
    if (told && votes[*told] > (digest == nullptr ? 0 : votes[*digest])) {
      digest = &*told;
    }
  }
  const InitialDecision decision = decide_initial({now(), deadline, run.spec.islands.min, ready, starting, digest != nullptr});
  if (decision.commit) {
    commit_initial(run, *digest);
    return;
  }
  run.wait = decision.wait;
  if (decision.wait.until) {
    wake_at(*decision.wait.until);
  }
}

void SharedRule::commit_initial(Run& run, const Digest& chosen) {
  const Digest digest = chosen;
  RoundRecord value;
  value.run = run.about.id;
  value.lineage = run.lineage.number();
  value.epoch = run.epoch;
  value.committed = true;
  value.checkpoint = true;
  value.digest = digest;
  value.planned = now();
  value.committed_at = now();
  std::vector<std::pair<IslandId, std::string>> others;
  for (const IslandId& id : run.members) {
    Membership& membership = run.memberships.at(id);
    if (membership.entry.initial() == digest) {
      value.members.push_back(id);
      value.contributions.emplace_back();
      membership.record.state = MembershipState::active;
      core_.save(run, membership);
    } else {
      others.emplace_back(id, !membership.entry.initial()         ? "was not ready by the deadline"
                              : lacks_parameters(run, membership) ? "it lacks the parameters that the run begins with, and copies them"
                                                                  : "its initial state differs from that of most islands");
    }
  }
  run.lineage.commit(Committed{Round(0), Attempt(0), digest, true, value.members});
  run.lineage.decide_in(run.epoch, settings_.generation);
  record(std::move(value));
  // A state that is agreed on exists only in later epochs than every order to begin from scratch: a late one is stale.
  core_.new_epoch(run, "the initial state is agreed");
  for (const auto& [id, cause] : others) {
    core_.leave_epoch(run, id, cause, false);
  }
  run.last_commit = now();
  event(run.about.id, {}, "info", "round_committed", "the initial state of run " + run.about.name + " is agreed",
        {Field{"round", std::int64_t{0}}, Field{"epoch", static_cast<std::int64_t>(run.epoch.value)},
         Field{"members", islands_.names_of(run.members)}, Field{"digest", to_hex(digest)}});
  for (const IslandId& id : run.members) {
    send(id, Commit{run.about.id, run.epoch, Round(0), Attempt(0), digest, true});
  }
  touch(run);
}

}  // namespace atl::coordinator
