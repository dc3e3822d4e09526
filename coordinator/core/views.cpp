// What is asked of a core, answered with values.
#include "coordinator/core/views.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "coordinator/core/core_state.hpp"

namespace atl::coordinator {
namespace {

Reason reason_of(const Run& run, const Membership& membership, bool connected, const std::optional<IslandReport>& report) {
  switch (membership.record.state) {
    case MembershipState::starting:
      return Reason{membership.entry.initial() ? "waits for the others to start" : "starting", run.last_commit, std::nullopt};
    case MembershipState::joining:
      return Reason{membership.entry.from_checkpoint() ? "loads its checkpoint"
                    : !membership.entry.catch_up()     ? "waits for a peer's checkpoint"
                    : membership.entry.caught_up()
                        ? "has the state of round " + std::to_string(membership.entry.caught_up()->value) + "; joins at the next round"
                        : "copies the state from its peers",
                    run.last_commit, std::nullopt};
    case MembershipState::active:
      if (!connected) {
        return Reason{"not heard of since the coordinator's restart", run.nobody_since, std::nullopt};
      }
      return Reason{report ? report->reason : "", run.last_commit, std::nullopt};
    case MembershipState::absent: {
      const bool waits = connected && membership.entry.has_failed();
      return Reason{membership.record.cause, run.nobody_since,
                    waits ? std::optional<TimePoint>(membership.entry.retry_at()) : std::nullopt};
    }
    case MembershipState::refused:
      return Reason{membership.record.cause, run.nobody_since, std::nullopt};
    case MembershipState::ended:
      return Reason{"done", run.last_commit, std::nullopt};
  }
  return {};
}

}  // namespace

MembershipView Views::membership_view(const Run& run, const IslandId& id, const Membership& membership) const {
  MembershipView item;
  item.island = id;
  item.name = islands_.name_of(id);
  item.state = membership.record.state;
  item.part = membership.record.part;
  item.share = membership.record.state == MembershipState::active ? membership.progress.share : 0;
  item.absences = membership.record.absences;
  std::optional<IslandReport> report;
  if (const Island* island = islands_.find(id); island != nullptr) {
    item.connected = island->greeted;
    item.last_seen = island->heard;
    item.kernels = island->kernels;
    if (const auto said = island->reports.find(run.about.id); said != island->reports.end()) {
      report = said->second;
      item.report = *report;
    }
  }
  item.reason = reason_of(run, membership, item.connected, report);
  if (item.state == MembershipState::absent && item.connected && !item.reason.until && !run.life.over()) {
    item.reason.until = core_.data_paths.steadiness().until(id);
  }
  for (const auto& [key, waited] : membership.progress.waits) {
    static constexpr const char* kWhat[] = {"ready", "link", "commit"};
    item.waits.push_back(WaitView{kWhat[static_cast<std::size_t>(key.what)], key.island.empty() ? "" : islands_.name_of(key.island),
                                  key.from.empty() ? "" : islands_.name_of(key.from), text_of(key), waited});
  }
  std::ranges::stable_sort(item.waits, std::greater<>{}, &WaitView::seconds);
  return item;
}

std::string Views::text_of(const WaitKey& key) const {
  switch (key.what) {
    case WaitFor::ready:
      return islands_.name_of(key.island) + " to be ready";
    case WaitFor::link:
      return key.from.empty() ? "the exchange of " + islands_.name_of(key.island)
                              : "the link " + islands_.name_of(key.from) + " → " + islands_.name_of(key.island);
    case WaitFor::commit:
      return "the coordinator to commit";
  }
  return "";
}

RunView Views::view_of(const Run& run) const {
  RunView view;
  static_cast<RunRecord&>(view) = run.to_record();
  view.rounds = run.spec.rounds;
  view.min = run.spec.islands.min;
  view.max = run.spec.islands.max;
  for (const auto& [id, membership] : run.memberships) {
    view.memberships.push_back(membership_view(run, id, membership));
  }
  std::ranges::stable_sort(view.memberships, {}, &MembershipView::part);
  if (core_.data_paths.steadiness().any() && !run.life.over()) {
    view.unsteady = core_.data_paths.unsteady_views(run);
  }
  if (!run.life.over()) {
    view.indirect = core_.data_paths.indirect_views(run);
  }
  view.phases = phases_of(run.spec);
  view.part_of = RunId(run.spec.work.run);
  run.rule->describe(run, view);
  return view;
}

std::vector<RunView> Core::runs(TimePoint) const {
  std::vector<RunView> views;
  for (const auto& [id, run] : state_->runs) {
    views.push_back(state_->views.view_of(run));
  }
  std::stable_sort(views.begin(), views.end(), [](const RunView& a, const RunView& b) { return a.submitted < b.submitted; });
  return views;
}

std::optional<RunView> Core::run(TimePoint, const RunId& id) const {
  const auto run = state_->runs.find(id);
  return run == state_->runs.end() ? std::nullopt : std::optional<RunView>(state_->views.view_of(run->second));
}

std::vector<WaitCause> Core::wait_causes(const RunId& id, const IslandId& island, Round round) const {
  std::vector<WaitCause> causes;
  const auto run = state_->runs.find(id);
  if (run == state_->runs.end() || run->second.memberships.count(island) == 0) {
    return causes;
  }
  const std::deque<AccountedWait>& accounted = run->second.memberships.at(island).progress.accounted;
  const auto wait = std::find_if(accounted.rbegin(), accounted.rend(), [&](const AccountedWait& one) { return one.round == round; });
  if (wait != accounted.rend()) {
    for (auto share = wait->shares.rbegin(); share != wait->shares.rend(); ++share) {
      causes.push_back({share->from.empty() ? share->island : share->from, state_->views.text_of({share->what, share->island, share->from}),
                        share->seconds});
    }
  }
  return causes;
}

std::optional<bool> Core::is_connected(const IslandId& island) const {
  const Island* found = state_->islands.find(island);
  return found == nullptr ? std::nullopt : std::optional(found->greeted);
}

ReachView Core::reach(const IslandId& island) const {
  const Island* found = state_->islands.find(island);
  ReachView view{found == nullptr ? "" : found->record.bulk_address, {}};
  for (const auto& [other, value] : state_->islands.all()) {
    const std::optional<Way> way = value.greeted ? state_->data_paths.paths().way(other, island) : std::nullopt;
    if (way && way->is_direct() && !way->address.empty()) {
      view.dialled.push_back(way->address);
    }
  }
  return view;
}

std::vector<IslandView> Core::islands(TimePoint now) const {
  std::vector<IslandView> views;
  for (const auto& [id, island] : state_->islands.all()) {
    const IslandRecord& value = island.record;
    IslandView view;
    view.id = id;
    view.name = value.name;
    view.state = island.probe ? "probing" : island.greeted ? "connected" : "away";
    view.version = value.version;
    view.platform = value.platform;
    view.uplink_budget_bits_per_second = island.uplink_budget;
    view.link_memory_bytes = island.link_memory_bytes;
    view.bulk_address = value.bulk_address;
    view.seen_host = island.seen_host;
    view.data_sets = value.data_sets;
    for (const auto& [from, why] : state_->data_paths.paths().into(id, now)) {
      const MeasuredPath* measured = state_->data_paths.paths().measurement(id, from);
      view.paths.push_back({state_->islands.name_of(from), why.empty(), why, measured == nullptr ? std::nullopt : std::optional(*measured),
                            state_->data_paths.paths().way(id, from), state_->data_paths.why_indirect(id, from)});
    }
    if (value.boot != 0) {
      view.last_seen = island.heard;
    }
    for (const auto& [run_id, run] : state_->runs) {
      const auto membership = run.memberships.find(id);
      if (!run.life.idle() && membership != run.memberships.end() && membership->second.record.state != MembershipState::refused) {
        view.run = run_id;
        view.reason =
            Reason{std::string(to_string(membership->second.record.state)) + " in run " + run.about.name, run.last_commit, std::nullopt};
      }
    }
    if (island.probe) {
      view.reason = Reason{"a second agent with this identity said hello; the first has " + human_duration(state_->settings.probe) +
                               " to show that it is alive",
                           island.probe->since, island.probe->since + state_->settings.probe};
    } else if (island.leaving()) {
      view.reason = Reason{"leaving: " + *island.departure.leaving, island.heard, std::nullopt};
    } else if (!island.greeted) {
      view.reason = Reason{value.boot == 0 ? "never connected" : "not connected", island.heard, std::nullopt};
    } else if (view.run.empty()) {
      view.reason = Reason{"free: waits for a run", value.last_hello, std::nullopt};
    }
    views.push_back(std::move(view));
  }
  std::stable_sort(views.begin(), views.end(), [](const IslandView& a, const IslandView& b) { return a.name < b.name; });
  return views;
}

}  // namespace atl::coordinator
