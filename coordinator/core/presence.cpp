// What arrivals, silence and departures of islands mean for the runs.
#include "coordinator/core/presence.hpp"

#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "transport/base/planted.hpp"
#include "transport/identity/generation_proof.hpp"

namespace atl::coordinator {

void Core::admit(TimePoint now, const IslandId& id, const std::string& name, const std::string& public_key) {
  state_->out.advance_to(now);
  state_->islands.admit(id, name, public_key, state_->out);
  state_->advance_all();
}

void Core::revoke(TimePoint now, const IslandId& id, const std::string& why) {
  state_->out.advance_to(now);
  if (state_->islands.find(id) != nullptr) {
    state_->send(id, Refused{Error{Code::unauthorized, "this island has no access any more: " + why}});
    state_->presence.lose(id, why);
    const Member revoked = state_->islands.member_of(id);
    state_->event({}, id, "warning", "island_revoked", "island " + revoked.name + " has no access any more: " + why);
    state_->islands.revoke(id);
    for (auto& [run_id, run] : state_->runs) {
      if (!run.life.over() && run.memberships.contains(id)) {
        run.rule->on_revoked(run);
      }
    }
    state_->presence.withdraw_reader(revoked.public_key);
  }
  state_->advance_all();
}

void Core::withdraw_reader(TimePoint now, const std::string& reader_key) {
  state_->out.advance_to(now);
  state_->presence.withdraw_reader(reader_key);
  state_->advance_all();
}

// Whoever may hold the run's state: an order to serve outlives the run.
void Presence::withdraw_reader(const std::string& reader_key) {
  for (const auto& [run_id, run] : runs_) {
    for (const auto& [id, membership] : run.memberships) {
      send(id, Serve{run_id, reader_key, Round(0), false});
    }
  }
}

Status Core::drain(TimePoint now, const IslandId& id, const std::string& why) {
  state_->out.advance_to(now);
  ATOLL_TRY(state_->islands.drain(id, why, state_->out));
  state_->advance_all();
  return {};
}

Result<std::uint32_t> Core::measure_paths(TimePoint now, Duration each) {
  state_->out.advance_to(now);
  return state_->data_paths.measure(each);
}

// An island says which generation it has met. A newer one that this coordinator's key has issued: this store is an older copy.
void Presence::heed_generation(const IslandId& id, const Generation& met) {
  if (core_.superseded || !(settings_.generation < met) || islands_.find(id) == nullptr || !proven(met, settings_.generation_key) ||
      ATOLL_PLANTED(age_unnoticed)) {
    return;
  }
  core_.superseded = Superseded{met, islands_.name_of(id), now()};
  event({}, id, "error", "superseded",
        "island " + core_.superseded->island + " has met " + met.text() + " of this coordinator, and this is " +
            settings_.generation.text() + ": another coordinator was started from a copy of this store. This one stops");
  out_.record(*core_.superseded);
}

void Presence::hear(const IslandId& id, std::uint64_t boot, const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message)) {
    heed_generation(id, hello->generation);
  }
  if (core_.superseded) {
    return;
  }
  if (now() - heard_anybody_ > settings_.heartbeat * 3 / 2) {
    deaf_ = {heard_anybody_, now()};
  }
  heard_anybody_ = now();
  const TimePoint heard = islands_.alive(id) ? islands_.at(id).heard : now();
  if (islands_.hears(id, boot, message, out_)) {
    core_.data_paths.note_heard(id, heard);
    core_.dispatch(id, message);
  } else if (const auto* said = std::get_if<Hello>(&message)) {
    Hello hello = *said;
    std::erase_if(hello.runs, [&](const HeldRun& run) { return !runs_.contains(run.run); });
    const std::optional<Arrival> arrival = islands_.greet(id, hello.boot, hello, out_);
    greet_in_runs(id, arrival);
    if (!arrival && islands_.alive(id)) {
      core_.data_paths.name_neighbours(id);  // it may not have heard
    }
  }
}

void Presence::greet_in_runs(const IslandId& id, const std::optional<Arrival>& arrival) {
  if (!arrival) {
    return;
  }
  if (arrival->new_boot) {
    core_.data_paths.forgive(id);
  }
  if (!arrival->here) {
    core_.data_paths.back(id, arrival->new_boot);
  }
  core_.data_paths.name_neighbours();
  for (auto& [run_id, run] : runs_) {
    const auto membership = run.memberships.find(id);
    if (!run.life.over() && membership != run.memberships.end()) {
      const std::map<RunId, HeldRun>& all = islands_.at(id).held;
      const auto held = all.find(run_id);
      if (!arrival->here) {
        core_.greet_member(run, membership->second, arrival->new_boot, held == all.end() ? nullptr : &held->second);
      }
      if (arrival->moved) {
        announce_move(run, id);
      }
    }
  }
}

// The others dial it anew.
void Presence::announce_move(Run& run, const IslandId& id) {
  if (!run.is_member(id)) {
    return;
  }
  const std::string why = islands_.name_of(id) + " has another address";
  core_.new_epoch(run, why);
  run.rule->on_moved(run, why);
}

void Presence::on_heartbeat(const IslandId& id, const Heartbeat& heartbeat) {
  const Island& island = islands_.at(id);
  if (island.departure.asked && !island.leaving()) {
    send(id, Drain{*island.departure.asked});  // it may not have heard
  }
  std::vector<IslandReport> reports;
  for (const IslandReport& report : heartbeat.reports) {
    const auto found = runs_.find(report.run);
    if (found == runs_.end()) {
      send(id, Release{report.run, Code::not_found, false, "the coordinator does not know this run"});
      continue;
    }
    const auto membership = found->second.memberships.find(id);
    if (membership == found->second.memberships.end() || found->second.life.idle() ||
        membership->second.record.state == MembershipState::refused) {
      core_.release(id, found->second);
      continue;
    }
    Progress& progress = membership->second.progress;
    if (!report.awaits_trainer) {
      progress.trained = true;
    } else if (progress.trained && !progress.trainer_lost) {
      progress.trainer_lost = now();
    }
    if (!report.enough.empty()) {
      core_.note_enough(found->second, membership->second, report.enough);
    }
    reports.push_back(report);
  }
  islands_.report(id, std::move(reports), now());
}

void Presence::watch() {
  for (const auto& [id, island] : islands_.all()) {
    if (const std::optional<Probe> successor = islands_.successor(island, out_)) {
      // The old instance did not speak any more: the new one takes over, with nothing in memory.
      lose(id, "its agent was restarted");
      greet_in_runs(id, islands_.succeed(id, *successor, out_));
    }
    if (const std::optional<std::string> cause = islands_.silence(island, out_)) {
      core_.data_paths.note_lost(id);
      lose(id, *cause);
    }
  }
  for (auto& [id, run] : runs_) {
    if (!run.life.idle()) {
      watch_idle_members(run);
    }
  }
  for (auto& [id, run] : runs_) {
    if (!run.life.idle()) {
      watch_unheard_members(run);
    }
  }
}

// Who lives, and says nothing of a run in which it has a place: it was released by an order that came late. It is assigned anew, in a new
// epoch.
void Presence::watch_idle_members(Run& run) {
  for (auto& [id, membership] : run.memberships) {
    const bool active = membership.record.state == MembershipState::active;
    const bool joining = membership.record.state == MembershipState::joining;
    const bool coming = joining || membership.record.state == MembershipState::starting;
    const Island* island = active || coming ? islands_.find(id) : nullptr;
    if (island == nullptr || !island->greeted || !island->unreported_since || island->reports.contains(run.about.id)) {
      continue;
    }
    const TimePoint limit = *island->unreported_since + settings_.dead_after * (active ? 1 : 2);
    if (now() < limit) {
      wake_at(limit);
      continue;
    }
    islands_.expect_reports_from(id, now());
    core_.membership_lost(run, membership, "its agent does not work for the run any more");
    if (joining) {
      core_.new_epoch(run, islands_.name_of(id) + " is assigned anew");
    }
  }
}

// Members that a restarted coordinator has not heard of yet.
void Presence::watch_unheard_members(Run& run) {
  for (auto& [id, membership] : run.memberships) {
    const MembershipState state = membership.record.state;
    if ((state != MembershipState::active && state != MembershipState::starting && state != MembershipState::joining) ||
        islands_.alive(id)) {
      continue;
    }
    const Island* island = islands_.find(id);
    const TimePoint limit = island == nullptr ? now() : island->heard + settings_.dead_after * 2;
    if (now() >= limit) {
      core_.membership_lost(run, membership, "not heard of since the coordinator's restart");
    } else {
      wake_at(limit);
    }
  }
}

void Presence::lose(const IslandId& id, const std::string& cause) {
  islands_.lost(id);
  core_.data_paths.forgive(id);
  core_.data_paths.name_neighbours();
  for (auto& [run_id, run] : runs_) {
    const auto membership = run.memberships.find(id);
    if (!run.life.over() && membership != run.memberships.end()) {
      core_.membership_lost(run, membership->second, cause);
    }
  }
}

}  // namespace atl::coordinator
