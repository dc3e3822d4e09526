// Who is there: hellos, heartbeats, silence, and two agents with one identity.
#include <algorithm>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {

void Core::admit(TimePoint now, const IslandId& id, const std::string& name, const std::string& public_key) {
  state_->now = std::max(now, state_->now);
  Island& island = state_->islands[id];
  island.record.id = id;
  island.record.name = name;
  island.record.public_key = public_key;
  state_->record(island.record);
  state_->event({}, id, "info", "island_admitted", "island " + name + " was admitted");
  state_->advance_all();
}

void Core::revoke(TimePoint now, const IslandId& id, const std::string& why) {
  state_->now = std::max(now, state_->now);
  const auto found = state_->islands.find(id);
  if (found != state_->islands.end()) {
    state_->send(id, Refused{Error{Code::unauthorized, "this island has no access any more: " + why}});
    state_->lose(found->second, why);
    state_->event({}, id, "warning", "island_revoked", "island " + state_->name_of(id) + " has no access any more: " + why);
    const std::string key = found->second.record.public_key;
    state_->former_names[id] = found->second.record.name;
    state_->islands.erase(found);
    state_->withdraw_reader(key);
  }
  state_->advance_all();
}

void Core::withdraw_reader(TimePoint now, const std::string& reader_key) {
  state_->now = std::max(now, state_->now);
  state_->withdraw_reader(reader_key);
  state_->advance_all();
}

// Whoever may hold the run's state: an order to serve outlives the run.
void Core::State::withdraw_reader(const std::string& reader_key) {
  for (const auto& [run_id, run] : runs) {
    for (const auto& [id, membership] : run.memberships) {
      send(id, Serve{run_id, reader_key, Round(0), false});
    }
  }
}

Status Core::drain(TimePoint now, const IslandId& id, const std::string& why) {
  state_->now = std::max(now, state_->now);
  const auto found = state_->islands.find(id);
  if (found == state_->islands.end()) {
    return Error{Code::not_found, "there is no island " + id.text};
  }
  Island& island = found->second;
  if (!island.greeted) {
    return Error{Code::conflict, "island " + island.record.name + " is not connected: there is nothing to drain"};
  }
  if (!island.draining && !island.leaving) {
    island.draining = why;
    state_->send(id, Drain{why});
    state_->event({}, id, "info", "island_draining", "island " + island.record.name + " is asked to leave: " + why);
  }
  state_->advance_all();
  return {};
}

// What changes no decision: a heartbeat of an island that is known to live, with a report where there was one; a task that is only further
// than it was.
bool Core::State::is_routine(const IslandId& id, const Message& message) const {
  if (const auto* report = std::get_if<AssignmentReport>(&message)) {
    return says_nothing_new(id, *report);
  }
  if (const auto* ready = std::get_if<atl::Ready>(&message)) {
    return says_nothing_new(id, *ready);
  }
  const auto* heartbeat = std::get_if<Heartbeat>(&message);
  const auto found = heartbeat == nullptr ? islands.end() : islands.find(id);
  if (found == islands.end()) {
    return false;
  }
  const Island& island = found->second;
  const bool as_before = heartbeat->reports.size() == island.reports.size() && (!heartbeat->reports.empty() || island.unreported_since);
  return island.greeted && !island.probe && heartbeat->boot == island.boot && as_before;
}

void Core::State::hear(const IslandId& id, std::uint64_t boot, const Message& message) {
  const auto found = islands.find(id);
  if (found == islands.end()) {
    out.messages.push_back(
        Outgoing{id, boot, Refused{Error{Code::unauthorized, "this island's key is not admitted; ask for a join token"}}});
    return;
  }
  Island& island = found->second;
  if (const auto* hello = std::get_if<Hello>(&message)) {
    on_hello(island, hello->boot, *hello);
    return;
  }
  if (const auto* heartbeat = std::get_if<Heartbeat>(&message)) {
    boot = heartbeat->boot;
  }
  if (!island.greeted) {
    // A restarted coordinator, or an island that was silent for too long: what it has must be heard first.
    if (now - island.told_to_greet >= std::chrono::milliseconds(200)) {
      island.told_to_greet = now;
      out.messages.push_back(Outgoing{id, boot, Refused{Error{Code::unavailable, "say hello first"}}});
    }
    return;
  }
  if (boot != island.boot) {
    return;  // another instance, which was not let in
  }
  island.heard = now;
  if (island.probe && std::holds_alternative<Heartbeat>(message) && now - island.probe->since >= settings.probe / 2) {
    const Error error{Code::conflict, "another agent with the identity of island " + island.record.name +
                                          " is already connected; stop that one first, or give this one an identity of its own"};
    out.messages.push_back(Outgoing{id, island.probe->boot, Refused{error}});
    event({}, id, "warning", "identity_conflict", "a second agent with the identity of island " + island.record.name + " was refused");
    island.probe.reset();
  }
  dispatch(island, message);
}

void Core::State::on_hello(Island& island, std::uint64_t boot, const Hello& hello) {
  const IslandId id = island.record.id;
  if (hello.protocol != kProtocolVersion) {
    const Error error{Code::invalid_argument, "this agent (version " + bounded(hello.version, 64) + ") speaks protocol " +
                                                  std::to_string(hello.protocol) + ", the coordinator (version " + settings.version +
                                                  ") speaks protocol " + std::to_string(kProtocolVersion) +
                                                  "; install the same version on both"};
    out.messages.push_back(Outgoing{id, boot, Refused{error}});
    return;
  }
  if (hello.codec_version != settings.codec_version) {
    const Error error{Code::invalid_argument, "this agent (version " + bounded(hello.version, 64) + ") has version " +
                                                  std::to_string(hello.codec_version) +
                                                  " of the codecs, the coordinator's islands (version " + settings.version +
                                                  ") have version " + std::to_string(settings.codec_version) +
                                                  ": they could not read each other's contributions; install the same version on all"};
    out.messages.push_back(Outgoing{id, boot, Refused{error}});
    return;
  }
  if (island.greeted && boot != island.boot) {
    if (!island.probe || island.probe->boot != boot) {
      island.probe = Probe{boot, hello, now};
    }
    return;
  }
  accept(island, boot, hello);
}

void Core::State::accept(Island& island, std::uint64_t boot, const Hello& hello) {
  const IslandId id = island.record.id;
  const bool new_boot = boot != island.boot;
  const bool fresh = !island.greeted || new_boot;
  island.boot = boot;
  island.heard = now;
  island.greeted = true;
  island.probe.reset();
  send(id, Welcome{settings.version, id,
                   static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(settings.heartbeat).count()),
                   static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(settings.dead_after).count()),
                   static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(settings.stall_after).count())});
  if (!fresh) {
    return;
  }
  island.leaving = false;
  island.contributes = false;
  island.draining.reset();
  island.unreported_since.reset();
  island.reports.clear();
  island.held.clear();
  for (const HeldRun& run : hello.runs) {
    if (runs.count(run.run) > 0 && island.held.size() < 64) {
      island.held[run.run] = run;
    }
  }
  island.uplink_budget = hello.uplink_bits_per_second;
  island.kernels = bounded(hello.kernels, 256);
  IslandRecord& value = island.record;
  value.bulk_address = bounded(hello.bulk_address, 256);
  value.version = bounded(hello.version, 64);
  value.platform = bounded(hello.platform, 256);
  value.data_sets.assign(hello.data_sets.begin(),
                         hello.data_sets.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(hello.data_sets.size(), 256)));
  value.boot = boot;
  value.last_hello = now;
  record(value);
  event({}, id, "info", "island_connected", "island " + value.name + " is connected");
  for (auto& [run_id, run] : runs) {
    const auto membership = run.memberships.find(id);
    if (has_ended(run.record.state) || membership == run.memberships.end()) {
      continue;
    }
    const auto held = island.held.find(run_id);
    greet_member(run, membership->second, new_boot, held == island.held.end() ? nullptr : &held->second);
  }
}

void Core::State::on_heartbeat(Island& island, const Heartbeat& heartbeat) {
  if (island.draining && !island.leaving) {
    send(island.record.id, Drain{*island.draining});  // it may not have heard
  }
  island.reports.clear();
  for (const IslandReport& report : heartbeat.reports) {
    const auto found = runs.find(report.run);
    if (found == runs.end()) {
      send(island.record.id, Release{report.run, Code::not_found, false, "the coordinator does not know this run"});
      continue;
    }
    const auto membership = found->second.memberships.find(island.record.id);
    if (membership == found->second.memberships.end() || is_idle(found->second.record.state) ||
        membership->second.record.state == MembershipState::refused) {
      release(island.record.id, found->second);
      continue;
    }
    IslandReport kept = report;
    kept.state = bounded(report.state, 64);
    kept.reason = bounded(report.reason, 512);
    island.reports[report.run] = std::move(kept);
  }
  if (!island.reports.empty() && (island.lent_to.empty() || island.reports.contains(island.lent_to))) {
    island.unreported_since.reset();
  } else {
    island.unreported_since = island.unreported_since.value_or(now);
  }
}

void Core::State::on_leave(Island& island, const Leave& leave) {
  island.contributes = leave.contributes;
  if (!island.leaving) {
    island.leaving = true;
    island.leaving_why = bounded(leave.why, 512);
    event({}, island.record.id, "info", "island_leaving", "island " + island.record.name + " is leaving: " + island.leaving_why);
  }
}

void Core::State::watch_islands() {
  for (auto& [id, island] : islands) {
    if (island.probe) {
      if (now - island.probe->since >= settings.probe) {
        // The old instance did not speak any more: the new one takes over, with nothing in memory.
        const Probe probe = *island.probe;
        lose(island, "its agent was restarted");
        accept(island, probe.boot, probe.hello);
      } else {
        wake_at(island.probe->since + settings.probe);
      }
    }
    if (island.greeted && now - island.heard > settings.dead_after) {
      event({}, id, "warning", "island_lost",
            "island " + island.record.name + " gave no sign of life for " + human_duration(settings.dead_after));
      lose(island, "no sign of life for " + human_duration(settings.dead_after));
    }
    if (island.greeted) {
      wake_at(island.heard + settings.dead_after + std::chrono::milliseconds(1));
    }
  }
  // Who lives, and says nothing of a run in which it has a place: it was released by an order that came late. It is assigned anew, in a new
  // epoch.
  for (auto& [run_id, run] : runs) {
    if (is_idle(run.record.state)) {
      continue;
    }
    for (auto& [id, membership] : run.memberships) {
      const bool active = membership.record.state == MembershipState::active;
      const auto island = islands.find(id);
      const bool coming = membership.record.state == MembershipState::joining || membership.record.state == MembershipState::starting;
      if ((!active && !coming) || island == islands.end() || !island->second.greeted || !island->second.unreported_since ||
          island->second.reports.contains(run_id)) {
        continue;
      }
      const TimePoint limit = *island->second.unreported_since + settings.dead_after * (active ? 1 : 2);
      if (now < limit) {
        wake_at(limit);
        continue;
      }
      island->second.unreported_since = now;
      const bool joining = membership.record.state == MembershipState::joining;
      membership_lost(run, membership, "its agent does not work for the run any more");
      if (joining) {
        new_epoch(run, name_of(id) + " is assigned anew");
      }
    }
  }
  // Members that a restarted coordinator has not heard of yet.
  for (auto& [run_id, run] : runs) {
    if (is_idle(run.record.state)) {
      continue;
    }
    for (auto& [id, membership] : run.memberships) {
      const MembershipState state = membership.record.state;
      if (alive(id) || (state != MembershipState::active && state != MembershipState::starting && state != MembershipState::joining)) {
        continue;
      }
      const auto island = islands.find(id);
      const TimePoint limit = island == islands.end() ? now : island->second.heard + settings.dead_after * 2;
      if (now >= limit) {
        membership_lost(run, membership, "not heard of since the coordinator's restart");
      } else {
        wake_at(limit);
      }
    }
  }
}

void Core::State::lose(Island& island, const std::string& cause) {
  island.greeted = false;
  island.probe.reset();
  island.reports.clear();
  for (auto& [run_id, run] : runs) {
    const auto membership = run.memberships.find(island.record.id);
    if (!has_ended(run.record.state) && membership != run.memberships.end()) {
      membership_lost(run, membership->second, cause);
    }
  }
}

}  // namespace atl::coordinator
