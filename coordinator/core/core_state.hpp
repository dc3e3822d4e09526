// The inside of the coordinator's core: its islands and runs, who takes part in a run, and how a run begins and ends.
//
// What a run makes of it is its rule's (rules/rule.hpp), between whom data pass is DataPaths', who is here Presence's. Owned by one Core.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/core.hpp"
#include "coordinator/core/data_paths.hpp"
#include "coordinator/core/islands.hpp"
#include "coordinator/core/outbox.hpp"
#include "coordinator/core/presence.hpp"
#include "coordinator/core/removals.hpp"
#include "coordinator/core/rules/rules.hpp"
#include "coordinator/core/run.hpp"
#include "coordinator/core/views.hpp"
#include "coordinator/core/work_list.hpp"

namespace atl::coordinator {

struct Core::State {
  Settings settings;
  Islands islands;
  std::map<RunId, Run> runs;
  Removals removals;
  Outbox out;
  WorkList work;
  std::optional<Superseded> superseded;  // nothing is decided any more
  DataPaths data_paths;
  Presence presence;
  Views views;
  Rules rules;

  State(Settings times, TimePoint now)
      : settings(std::move(times)),
        islands(settings),
        out(now, settings.resend),
        data_paths(*this),
        presence(*this),
        views(*this),
        rules(*this) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // ---- core.cpp
  template <typename M>
  void route(const IslandId& island, const M& message);
  void dispatch(const IslandId& island, const Message& message);
  void on_event(const IslandId& island, const IslandEvent& message);
  void advance_all();
  // Something about the run changed that another decision may depend on: it is looked at again.
  void touch(const Run& run) { work.add(run.about.id, run.spec.priority, run.life.submitted()); }
  [[nodiscard]] TimePoint time_of_submission(TimePoint wanted) const;
  [[nodiscard]] TimePoint now() const { return out.now(); }
  void wake_at(TimePoint time) { out.wake_at(time); }
  void send(const IslandId& island, Message message) { islands.send(island, std::move(message), out); }
  void record(Record value) { out.record(std::move(value)); }
  void event(const RunId& run, const IslandId& island, std::string level, std::string kind, std::string text,
             std::vector<Field> fields = {}) {
    out.event(run, island, std::move(level), std::move(kind), std::move(text), std::move(fields));
  }
  [[nodiscard]] bool due(Resend& resend) const { return out.due(resend); }  // and schedules the next
  void restart(Resend& resend) const { out.restart(resend); }
  [[nodiscard]] NewEpoch new_epoch_of(const Run& run, const IslandId& to) const;

  [[nodiscard]] Stir stir_of(const IslandId& id, const Message& message) const;

  // ---- memberships.cpp: who takes part in a run
  void start_run(Run& run, const std::vector<IslandId>& chosen);
  void heed_epoch(Run& run, const IslandId& island);
  void adopt_position(Run& run, const HeldRun& held);
  void add_membership(Run& run, const IslandId& island, MembershipState state, StartFrom from);
  static Round newest_held(const Run& run, const HeldRun& held);
  [[nodiscard]] static bool is_ahead(const Run& run, const HeldRun* held);
  void follow_epoch(Run& run, const IslandId& island, const HeldRun* held);
  void follow_position(Run& run, const Membership& membership, const HeldRun* held);
  void lend(const Run& run, const IslandId& island);
  [[nodiscard]] bool is_free_for(const Run& run, const IslandId& island) const;
  void greet_member(Run& run, Membership& membership, bool new_boot, const HeldRun* held);
  void leave_epoch(Run& run, const IslandId& island, const std::string& cause, bool expelled);
  void membership_lost(Run& run, Membership& membership, const std::string& cause);
  void new_epoch(Run& run, const std::string& why);
  void activate(Run& run, Membership& membership);
  void activate(Run& run, const std::vector<IslandId>& ids);
  void take_in(Run& run, Membership& membership);
  void vacate(Run& run, Membership& membership, MembershipState state, const std::string& cause);
  void save(const Run& run, const Membership& membership);
  [[nodiscard]] std::string text_of_alike(const Run& run) const;
  static std::uint32_t place_at_end(const Run& run, const IslandId& island);
  void release(const IslandId& island, const Run& run);
  void advance_leaving(Run& run);
  [[nodiscard]] std::string obstacle_of(const Run& run, const Island& island) const;
  // The name of another run that this island works for, or that waits for it to come back and had it before this run; empty: there is
  // none. Of two runs that both wait for an island that was theirs, the first one to take it has it.
  [[nodiscard]] std::string serves_another(const Run& run, const IslandId& island) const;
  // A member of the run that is away is connected, is not about to leave and serves no other run.
  [[nodiscard]] bool may_come_back(const Run& run, const IslandId& island) const;
  // Why a member that is away is away, for people.
  [[nodiscard]] std::string why_away(const Run& run, const IslandId& id, const Membership& membership) const;
  static bool has_set(const Run& run, const Island& island);  // that the run names, if it names one
  [[nodiscard]] bool admits_name(const Run& run, const Island& island) const;
  void on_run_ended(Run& run, Membership& membership, const RunEnded& message);
  void offend(Run& run, const IslandId& island, const std::string& what);
  void refuse(Run& run, Membership& membership, const Error& error);

  // ---- copies.cpp: checkpoints are copied to a store, and fetched from it
  void on_copied(const IslandId& island, const Copied& message);

  // ---- removals.cpp: runs that are over, and those that operators remove
  [[nodiscard]] std::vector<Holder> holders_of(const std::vector<RunId>& ids) const;
  void forget_run(const RunId& id);
  void tell_removed(const std::vector<RunId>& ids, const std::vector<Holder>& holders);
  void on_holds(const IslandId& island, const Holds& message);

  // ---- operations.cpp: what operators ask of a run. Errors: not_found.
  Result<Run*> run_asked_for(const RunId& id);
  [[nodiscard]] std::optional<ExportSource> export_source(const Run& run, const Membership& membership, bool alone) const;

  // ---- runs.cpp: how a run begins, waits and ends
  void advance(Run& run);
  void settle(Run& run);
  [[nodiscard]] StartInput start_input(const Run& run) const;
  void advance_queued(Run& run);
  void advance_end(Run& run);
  void pause_after(Run& run, Round round);
  void note_enough(Run& run, const Membership& membership, const std::string& why);
  void end_by_tokens(Run& run);
  void complete_soon(Run& run, const IslandId& said_by, const std::string& why);
  void complete_early(Run& run);
  void pause_now(Run& run);
  void check_hopeless(Run& run);
  void set_state(Run& run, RunState state, const std::string& reason, std::optional<TimePoint> until = std::nullopt);
  void tell_wait(Run& run);
  void end_run(Run& run, RunState state, const std::string& reason, std::optional<Error> error);
};

}  // namespace atl::coordinator
