// The inside of the coordinator's core: what it knows of islands, runs, memberships and rounds, and the functions that change it.
//
// Only the files of the core whose names its sections below give include this. Everything here is owned by one Core.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/core/alike.hpp"
#include "coordinator/core/copies.hpp"
#include "coordinator/core/core.hpp"
#include "coordinator/core/data_parts.hpp"
#include "coordinator/core/decide.hpp"
#include "coordinator/core/decide_lifecycle.hpp"
#include "coordinator/core/guards.hpp"
#include "coordinator/core/islands.hpp"
#include "coordinator/core/lifecycle.hpp"
#include "coordinator/core/lineage.hpp"
#include "coordinator/core/open_rounds.hpp"
#include "coordinator/core/outbox.hpp"
#include "coordinator/core/paths.hpp"
#include "coordinator/core/phases.hpp"
#include "coordinator/core/removals.hpp"
#include "coordinator/core/steadiness.hpp"
#include "coordinator/core/tasks.hpp"
#include "coordinator/core/work_list.hpp"
#include "strategies/round.hpp"
#include "strategies/schedule.hpp"

namespace atl::coordinator {

// What an island last contributed, for the metrics.
struct LastContribution {
  Round round;
  std::uint64_t tokens = 0;
  double training_loss = kNotMeasured;  // of what is not counted nothing is known, rather than 0
  double norm = kNotMeasured;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint32_t fragment = 0;
};

// For whom an island waited, in this life of the coordinator.
struct WaitKey {
  WaitFor what = WaitFor::ready;
  IslandId island;
  IslandId from;
  friend auto operator<=>(const WaitKey&, const WaitKey&) = default;
};

// What a wait of an island's trainer was for, while the spans that tell of it may still come.
struct AccountedWait {
  Round round;
  std::vector<WaitShare> shares;
};

// How an island comes into a run: from what it starts, how far it has caught up, and what went wrong before.
struct Entry {
  std::uint64_t number = 0;  // no two of an island have the same, also of two lives of the coordinator; 0: it was in the ledger
  StartFrom from = StartFrom::scratch;
  std::optional<Digest> initial;    // starting: of round 0
  Round assigned;                   // committed round that its Invite named
  Epoch assigned_epoch;             // in which it was assigned last: older answers are stale
  Resend resend;                    // of its Invite and CatchUp
  std::optional<CatchUp> catch_up;  // joining: the last order
  std::optional<Round> caught_up;   // joining: newest verified round
  unsigned boundaries_missed = 0;
  unsigned holds = 0;     // rounds that were held for it
  unsigned failures = 0;  // expulsions and failed catch-ups in a row
  unsigned misfits = 0;   // catch-ups that failed because the run's state is none for its trainer
  TimePoint retry_at;
  bool ahead = false;           // it came with a round that the ledger does not know, and knew no older epoch than the ledger
  bool memory_offered = false;  // its hello said that its state is live: worth a look
  bool unheard = false;         // it was away when rounds were adopted: how far its part of the data was by then it says when it comes
};

// What an island has on its disk, and what it keeps for joiners.
struct Source {
  std::optional<Checkpointed> checkpointed;  // the newest it told
  TimePoint answered;                        // when it was told the epoch because it had said that again
  std::optional<Round> checkpoint_settled;   // the newest round whose checkpoint is written, or could not be
  bool offering = false;
  std::optional<Checkpointed> offered;  // since the offer
  Resend offer_resend;
};

// How far an island is, what it contributed, and for what it waited.
struct Progress {
  Round merged;                   // newest
  std::vector<float> projection;  // of its outer parameters after round `projected`, where it reports one
  Round projected;
  TimePoint progressed;  // in pairs: when it last said that it had merged a round
  bool settled = false;  // where islands commit by themselves: it has said something since it has this membership
  LastContribution last;
  std::map<Round, LastContribution> unmerged;  // those whose result its trainer has not merged yet, the newest few
  std::map<WaitKey, double> waits;             // seconds
  std::deque<AccountedWait> accounted;         // the newest, oldest first
  double share = 0;                            // of the committed tokens, smoothed over rounds
  bool trained = false;                        // its trainer was ready at some time since it was let in
  std::optional<TimePoint> let_in = {};        // in this life of the coordinator
  std::optional<TimePoint> trainer_lost = {};  // and ended after the newest commit, or was not ready then

  void contribute(const LastContribution& contribution);
};

struct Membership {
  MembershipRecord record;
  Entry entry;
  Source source;
  Progress progress;
  std::optional<Round> leaves_after;  // asked to leave: the newest round that it had contributed to by then
};

// The next round cannot be exchanged: since when its attempts have failed, or data have not passed, and why the newest one did.
struct Stand {
  TimePoint since;
  std::string why;  // for people, with the round
};

// What only a run of rounds has.
struct RoundsWork {
  OpenRounds open;
  Duration last_round{};                  // how long the last round took
  std::optional<TimePoint> offers_since;  // joiners wait for a source
  std::optional<TimePoint> hold_since;    // no round is planned, for a joiner
  std::optional<TimePoint> loaded_since;  // a restore: the first island has loaded its checkpoint
  double spread = 0;                      // in pairs: how far the islands are from their mean, estimated,
  Round spread_round;                     // when all had done this round
  std::map<std::uint32_t, Round> newest;  // by fragment, where rounds close with a quorum: the newest committed round
  bool told_of_grace = false;             // that it is longer than the overlap hides
  std::optional<Stand> stand;             // until a round is committed, or others take part
  unsigned skipped = 0;                   // committed rounds in a row, the newest among them, in which no contribution counted
};

struct RunIdentity {
  RunId id;
  std::string name;  // unique among runs
  std::string file;  // the run file's text as submitted
  std::string spec;  // as JSON
};

struct Run {
  RunIdentity about;
  RunSpec spec;
  Lifecycle life;
  Epoch epoch;  // version of `members`
  Lineage lineage;
  DataParts data;
  Guards guards;
  AlikeIslands alike;
  Copies copies;
  std::map<IslandId, Membership> memberships;
  std::vector<IslandId> members;     // of the epoch, in order
  std::optional<Schedule> schedule;  // of a run of rounds, where it is known before a trainer has declared its parameters
  TimePoint last_commit;
  TimePoint nobody_since;  // last arrival or loss, for a restore
  Wait wait;               // of the present pass
  std::variant<RoundsWork, Tasks> work;

  void adopt_spec(RunSpec value);
  // Of a run of rounds.
  [[nodiscard]] RoundsWork& in_rounds() { return std::get<RoundsWork>(work); }
  [[nodiscard]] const RoundsWork& in_rounds() const { return std::get<RoundsWork>(work); }
  [[nodiscard]] OpenRounds& rounds() { return in_rounds().open; }
  [[nodiscard]] const OpenRounds& rounds() const { return in_rounds().open; }
  // Of a run of phases.
  [[nodiscard]] Tasks& tasks() { return std::get<Tasks>(work); }
  [[nodiscard]] const Tasks& tasks() const { return std::get<Tasks>(work); }
  // The rounds in hand are given up, if it is a run of rounds.
  void give_up_rounds();
  // What is in hand is given up: rounds, or tasks that are not done.
  void give_up_work(Outbox& out);
  void start_work_anew();
  // The runs in which several islands train, or trained, an expert of this one; only those of experts that are not done, if so wanted.
  [[nodiscard]] std::vector<RunId> groups(bool unfinished = false) const;
  [[nodiscard]] RunRecord to_record() const;
  [[nodiscard]] RunRounds terms() const { return {spec.strategy, spec.rounds, spec.merge_rounds}; }
  [[nodiscard]] bool lockstep() const { return terms().lockstep(); }
  [[nodiscard]] bool gossips() const { return spec.strategy.group == Group::pairs; }
  // Islands commit their rounds by themselves, but for those at the end that merge all of them.
  [[nodiscard]] bool has_own_outer_state() const { return gossips() || spec.strategy.group == Group::nobody; }
  [[nodiscard]] bool islands_commit(Round round) const { return has_own_outer_state() && round <= last_trained(); }
  // The last round before those that merge all islands' outer parameters; without any, the last of all.
  [[nodiscard]] Round last_trained() const { return Round(spec.rounds - spec.merge_rounds); }
  // After which all members can stand: the next round that is not committed yet; where each commits its own, after those that are furthest.
  [[nodiscard]] Round next_stand() const { return has_own_outer_state() ? std::min(last_trained(), furthest().next()) : lineage.next(); }
  // In pairs: all islands' outer parameters are being merged.
  [[nodiscard]] bool merging() const;
  // The newest round that a member is known to have come to by itself.
  [[nodiscard]] Round furthest() const;
  // The round that is being taken, of those that are furthest where each commits its own; 0 before there is a common state.
  [[nodiscard]] Round present_round() const;
  [[nodiscard]] bool has_tasks() const { return spec.strategy.group == Group::expert; }
  // Rounds close with so many contributions, and nobody waits for the others.
  [[nodiscard]] bool closes_with_quorum() const { return spec.strategy.quorum > 0 && spec.strategy.group == Group::all; }
  // Several islands train one expert in it, for a run of phases.
  [[nodiscard]] bool of_group() const { return !spec.work.run.empty(); }
  [[nodiscard]] bool is_member(const IslandId& island) const;
  [[nodiscard]] bool at_end() const { return lineage.initialised() && lineage.committed().value >= spec.rounds; }
};

// Where islands that keep states of their own could go on from, when nobody takes part any more.
struct OwnCopies {
  std::vector<IslandId> newest;      // connected, with their states, of those that left last
  std::vector<IslandId> without;     // connected, and have none
  std::vector<std::string> missing;  // names of those that left last of all, and are away
  bool anybody = false;              // is connected
};

// So far beyond what is committed of a part of the data may be what an island says of it: a few lies do not drive positions to their end.
inline constexpr std::uint64_t kSequencesAhead = std::uint64_t{1} << 40U;

// What a message may change for the runs. Whatever has the core say something is looked at, but for the numbers of a round.
enum class Stir : std::uint8_t {
  nothing,
  numbers,  // nothing: they are recorded
  little,   // it is seen soon enough with the next answer
  all,
};

struct Core::State {
  Settings settings;
  Islands islands;
  std::map<RunId, Run> runs;
  Removals removals;
  Paths paths;
  Steadiness steadiness;
  TimePoint heard_anybody;
  std::pair<TimePoint, TimePoint> deaf;  // the newest time in which nobody was heard, for longer than a heartbeat takes
  std::uint32_t measurements = 0;        // asked for in this life of the coordinator
  Outbox out;
  WorkList work;
  std::optional<Superseded> superseded;  // nothing is decided any more

  State(Settings times, TimePoint now) : settings(std::move(times)), islands(settings), out(now, settings.resend) {}

  // ---- recovery.cpp: from the ledger's records
  void recover(Recovered recovered);
  void recover_run(const RunRecord& value);
  void recover_memberships(Recovered& recovered);
  void recover_round(const RoundRecord& value);
  static void recover_parts(Run& run, const std::vector<RoundRecord>& rounds);
  void settle_recovered(Run& run);

  // ---- core.cpp
  template <typename M>
  void route(const IslandId& island, const M& message, void (State::*handle)(Run&, Membership&, const M&));
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

  // ---- presence.cpp: what arrivals, silence and departures of islands mean for the runs
  void hear(const IslandId& id, std::uint64_t boot, const Message& message);
  void heed_generation(const IslandId& id, const Generation& met);
  [[nodiscard]] Stir stir_of(const IslandId& id, const Message& message) const;
  void announce_move(Run& run, const IslandId& id);
  void greet_in_runs(const IslandId& id, const std::optional<Arrival>& arrival);
  void on_heartbeat(const IslandId& island, const Heartbeat& heartbeat);
  void watch_islands();
  void watch_idle_members(Run& run);
  void watch_unheard_members(Run& run);
  void lose(const IslandId& island, const std::string& cause);
  void withdraw_reader(const std::string& reader_key);

  // ---- memberships.cpp: who takes part in a run
  void start_run(Run& run, const std::vector<IslandId>& chosen);
  void heed_epoch(Run& run, const IslandId& island);
  void adopt_position(Run& run, const HeldRun& held);
  void add_membership(Run& run, const IslandId& island, MembershipState state, StartFrom from);
  void send_invite(Run& run, Membership& membership);
  static Round newest_held(const Run& run, const HeldRun& held);
  void compare_held(Run& run, Membership& membership, const HeldRun* held);
  void greet_member(Run& run, Membership& membership, bool new_boot, const HeldRun* held);
  void leave_epoch(Run& run, const IslandId& island, const std::string& cause, bool expelled);
  void membership_lost(Run& run, Membership& membership, const std::string& cause);
  void new_epoch(Run& run, const std::string& why);
  void activate(Run& run, Membership& membership);
  void activate(Run& run, const std::vector<IslandId>& ids);
  void take_in(Run& run, Membership& membership);
  void vacate(Run& run, Membership& membership, MembershipState state, const std::string& cause);
  void save(const Run& run, const Membership& membership);
  void deal_data(Run& run);
  void look_for_alike(Run& run, const Membership& membership, const atl::Ready& message);
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

  // ---- joiners.cpp: who comes, or comes back, and with what state
  void advance_joins(Run& run);
  void readmit(Run& run);
  void admit_joiners(Run& run);
  void invite(Run& run);
  [[nodiscard]] bool takes_state(const Run& run, const IslandId& joiner) const;
  void offer(Run& run);
  void order_catch_up(Run& run, Membership& membership);
  [[nodiscard]] Duration hold_limit(const Run& run) const;
  [[nodiscard]] std::optional<Wait> hold_for_joiners(Run& run);
  [[nodiscard]] AdmitInput admission_input(const Run& run);
  [[nodiscard]] bool takes_checkpoint(Run& run, Membership& membership, const Checkpointed& message);
  void on_checkpointed(Run& run, Membership& membership, const Checkpointed& message);
  void on_caught_up(Run& run, Membership& membership, const CaughtUp& message);
  void end_entry(Run& run, Membership& membership, const Error& error);
  void refuse(Run& run, Membership& membership, const Error& error);

  // ---- copies.cpp: checkpoints are copied to a store, and fetched from it
  // Its owner lets it write to and read from the place of this run's copies.
  [[nodiscard]] bool may_copy(const Run& run, const IslandId& island) const;
  void ask_for_copy(Run& run, Round round, const std::vector<IslandId>& holders, const std::vector<DataRange>& data);
  // The commit of a round as an island is told it.
  [[nodiscard]] Commit commit_of(const Run& run, const IslandId& island, const Committed& round) const;
  void on_copied(const IslandId& island, const Copied& message);
  void go_on_from_copy(Run& run, const CopyToGoOnFrom& copy);

  // ---- removals.cpp: runs that are over, and those that operators remove
  [[nodiscard]] std::vector<Holder> holders_of(const std::vector<RunId>& ids) const;
  [[nodiscard]] static Round furthest_known(const Run& run);
  void forget_run(const RunId& id);
  void tell_removed(const std::vector<RunId>& ids, const std::vector<Holder>& holders);
  void on_holds(const IslandId& island, const Holds& message);

  // ---- restore.cpp: nobody has the state in memory any more
  void advance_restore(Run& run);
  bool finish_restore(Run& run);
  // Whether its islands show that the ledger is an older copy: what they have is taken over then, as after a restore.
  void notice_older_ledger(Run& run);
  [[nodiscard]] bool began_before(const Run& run, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> holders_of_beginning(const Run& run) const;
  [[nodiscard]] bool claims_alone(const Run& run, const IslandId& island) const;
  bool take_over_beginning(Run& run);
  bool adopt_newer(Run& run);
  [[nodiscard]] AdoptionInput adoption_input(const Run& run) const;
  [[nodiscard]] std::optional<Wait> wait_for_loading(Run& run);
  [[nodiscard]] RestoreInput restore_input(const Run& run) const;
  [[nodiscard]] std::optional<Round> restorable(const Run& run, const IslandId& island) const;
  [[nodiscard]] bool holds(const Run& run, const IslandId& island, Round round) const;
  void record_lineage(const Run& run);
  static void recount_tokens(Run& run);
  void roll_back(Run& run, Round round);
  void start_over(Run& run, const std::string& why);

  // ---- answers.cpp: what an answer in a round changes before it is heard
  [[nodiscard]] const Run* shared_run(const IslandId& island, const RunId& run) const;
  [[nodiscard]] const OpenRound* awaiting(const IslandId& island, const RunId& run, Round round) const;
  [[nodiscard]] Stir stir_of(const IslandId& island, const atl::Ready& message) const;
  [[nodiscard]] Stir stir_of(const IslandId& island, const Exchanged& message) const;
  [[nodiscard]] Stir stir_of(const IslandId& island, const Merged& message) const;

  // ---- round_path.cpp: what becomes of a round
  void on_ready(Run& run, Membership& membership, const atl::Ready& message);
  void on_withdrawn(Run& run, Membership& membership, const Withdrawn& message);
  void reject(Run& run, Membership& membership, const Withdrawn& message);
  void tell_rejected(const Run& run, const Membership& membership, const Withdrawn& message);
  bool blame_withdrawn(Run& run, Round round, const std::vector<IslandId>& participants);
  void tell_skipped(const Run& run, Round round, const std::string& why);
  MetricRecord metric_of(const Run& run, const Membership& membership, Round round) const;
  void record_unmerged(const Run& run, Membership& membership, Round before, std::optional<std::uint32_t> fragment);
  void contribute(Run& run, Membership& membership, Round round, const Contribution& contribution);
  [[nodiscard]] bool current(Run& run, Membership& membership, Epoch epoch);
  void answer_committed(Run& run, Membership& membership, Round round, const Digest& digest);
  void advance_rounds(Run& run);
  void wait_for(Run& run, const Wait& wait);
  [[nodiscard]] RoundInput round_input(Run& run, Round round);
  [[nodiscard]] RoundRecord record_of(const Run& run, Round number, const OpenRound& round) const;
  [[nodiscard]] bool wants_checkpoint(const Run& run, Round number) const;
  void tell_commit(const Run& run, const RoundRecord& round);
  void note_shares(Run& run, const AttemptPlan& plan);
  void advance_collecting(Run& run, Round round);
  void plan(Run& run, Round round, const std::vector<IslandId>& participants, std::vector<std::uint8_t> shares);
  void send_exchange(Run& run, Round round, const std::vector<IslandId>& to, bool again);
  void commit(Run& run, Round round, const Digest& digest);
  static std::string misplaced(const Run& run, Round round, std::uint32_t fragment, const DataRange& data);
  void reject_unbelievable(Run& run, Round round);
  bool reject_contribution(Run& run, Round round, const IslandId& island, const std::string& why, std::vector<Field> fields);
  void keep_pace(Run& run, Round round);
  void note_accepted(Run& run, const OpenRound& round);
  void forgive(Run& run, const Membership& membership);

  // ---- round_attempts.cpp: what an attempt at a round came to
  void on_exchanged(Run& run, Membership& membership, const Exchanged& message);
  void note_bytes(Membership& membership, const Exchanged& message) const;
  void on_exchange_failed(Run& run, Membership& membership, const ExchangeFailed& message);
  void advance_exchanging(Run& run, Round round);
  void abort(Run& run, Round round, const std::string& why);
  void fail_round(Run& run, Round round, const OpenRound::Failures& failures);
  void stand(Run& run, Round number, const std::string& why);
  [[nodiscard]] std::string why_it_stands(const Run& run) const;
  [[nodiscard]] std::optional<Wait> pause_before(const Run& run, Round round, const std::vector<IslandId>& participants) const;

  // ---- quorum_rounds.cpp: what counts in a round that closes with a quorum
  [[nodiscard]] Answer answer_in(const Run& run, const OpenRound& round, const IslandId& island) const;
  [[nodiscard]] std::optional<Duration> step_of(const Run& run, const IslandId& id) const;
  [[nodiscard]] Duration grace_in(const Run& run, const OpenRound& round) const;
  void tell_of_grace(Run& run);
  static bool late(const Run& run, const OpenRound& round, const IslandId& island);
  static std::uint32_t spanned_by(const Run& run, const Contribution& contribution);
  [[nodiscard]] static std::uint32_t missed_by(const Run& run, const Contribution& contribution);
  static JudgedNorm judged(const Run& run, const IslandId& island, const Contribution& contribution);
  [[nodiscard]] static DataRange counted_by(const Run& run, const Contribution& contribution);

  // ---- initial_round.cpp: round 0
  void on_initial(Run& run, Membership& membership, const atl::Ready& message);
  void advance_initial(Run& run);
  void commit_initial(Run& run, const Digest& digest);

  // ---- merged_rounds.cpp: what trainers have merged
  void on_merged(Run& run, Membership& membership, const Merged& message);
  [[nodiscard]] std::string text_of(const WaitKey& key) const;
  void tell_own_metrics(const Run& run, const Membership& membership, const Merged& message);
  void account_wait(Run& run, Membership& membership, Round round, double wait_seconds);

  // ---- data_paths.cpp: between whom data pass
  void on_path_report(const IslandId& island, const PathReport& message);
  void note_broken(const IslandId& reader, const IslandId& from, const std::string& why);
  void note_whole(const IslandId& reader, const IslandId& from);
  void note_available(const IslandId& reader, const IslandId& from, const Availability& available);
  void note_lost(const IslandId& island);
  void note_heard(const IslandId& island, TimePoint before);
  void tell_unsteady(const IslandId& island, const std::string& text);
  [[nodiscard]] RunId run_that_knows(const IslandId& island) const;
  void settle_paths();
  [[nodiscard]] std::string name_of_path(const UnsteadyPath& path) const;
  [[nodiscard]] std::string text_of_unsteady(const UnsteadyPath& path) const;
  [[nodiscard]] std::vector<UnsteadyView> unsteady_views(const Run& run) const;
  [[nodiscard]] Availability worst_to(const IslandId& island, const std::vector<IslandId>& others) const;
  [[nodiscard]] std::string rhythm_of(const IslandId& island, const std::vector<IslandId>& others) const;
  void touch_runs_of(const IslandId& a, const IslandId& b);
  // In which both are members; none: nullptr.
  [[nodiscard]] const Run* common_run(const IslandId& a, const IslandId& b) const;
  [[nodiscard]] DetourInput detour_input(const std::vector<IslandId>& members, bool at_once = false) const;
  [[nodiscard]] DetourDecision detour_among(const Run& run, const std::vector<IslandId>& participants) const;
  bool waits_for_steadiness(Run& run, Membership& membership);
  [[nodiscard]] std::string why_apart(const IslandId& island, const std::vector<IslandId>& others) const;
  // It could take part in exchanges with the members.
  [[nodiscard]] bool reaches(const IslandId& island, const Run& run);
  [[nodiscard]] std::optional<Wait> wait_for_paths(const Run& run);
  [[nodiscard]] std::string text_of_apart(const IslandId& a, const IslandId& b) const;
  // Islands that try the paths between them before they share a run: all that are connected; nobody where those are too many.
  [[nodiscard]] std::vector<IslandId> neighbours() const;
  void name_neighbours(const IslandId& to);
  void name_neighbours();  // to everybody
  Result<std::uint32_t> measure_paths(Duration each);

  // ---- pairs.cpp: islands that meet in pairs
  void note_pair_round(Run& run, Membership& membership, const Merged& message);
  void on_pair_query(Run& run, Membership& membership, const PairQuery& message);
  void on_pair_answer(Run& run, Membership& membership, const PairAnswer& message);
  void advance_pair_joins(Run& run);
  bool restore_merged(Run& run);
  [[nodiscard]] OwnCopies own_copies(const Run& run) const;
  void restore_own(Run& run);
  [[nodiscard]] bool has_state(const Run& run, const IslandId& id) const;
  void advance_pairs(Run& run);

  // ---- phases.cpp: tasks and who does them
  void advance_phases(Run& run);
  [[nodiscard]] bool keep_task(Run& run, Task& task);
  void admit_islands(Run& run);
  void on_assignment_report(Run& run, Membership& membership, const AssignmentReport& message);
  void take_report(Run& run, Task& task, const AssignmentReport& message);
  [[nodiscard]] bool says_nothing_new(const IslandId& island, const AssignmentReport& message) const;
  void take_back(Run& run, Task& task, const std::string& why);
  [[nodiscard]] bool input_at_hand(Run& run, Task& task);
  [[nodiscard]] bool can_begin(Run& run, Task& task);
  [[nodiscard]] std::optional<IslandId> unheard_of(const Run& run) const;
  void settle_checkpoint(Run& run, Task& task);
  [[nodiscard]] WaitingTask waiting_task(Run& run, Task& task, std::uint64_t size);
  [[nodiscard]] std::vector<WaitingTask> waiting_tasks(Run& run);
  [[nodiscard]] std::vector<FreeIsland> free_islands(Run& run);
  void place_tasks(Run& run);
  [[nodiscard]] std::string progress_of(const Run& run, const Task& task) const;
  void end_phases(Run& run);

  // ---- groups.cpp: several islands that train one expert
  void fill_groups(Run& run, const std::vector<BeginningExpert>& begun, std::vector<FreeIsland> left);
  void form_group(Run& run, Task& task, const std::vector<IslandId>& others);
  void join_group(Run& run, Task& task, const IslandId& island);
  void keep_group(Run& run, Task& task);
  void dissolve_group(Run& run, Task& task, const std::string& why);
  [[nodiscard]] static bool is_stranded(const Run& group);
  [[nodiscard]] bool is_lent(const Run& group, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> present_members(const Run& run, const Task& task) const;
  [[nodiscard]] bool groups_stand(const Run& run) const;

  // ---- task_inputs.cpp: who gets what a task needs
  [[nodiscard]] std::optional<IslandId> holder_out_of_reach(const Run& run, const Task& task, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> cut_from_inputs(const Run& run, const Task& task) const;
  void leave_to_others(Run& run, Task& task);
  void say_what_is_out_of_reach(Run& run, const std::vector<WaitingTask>& waiting);

  // ---- assignments.cpp: what each island of a run of phases is told
  [[nodiscard]] std::vector<IslandId> holders_of(const Run& run, const Digest& digest) const;
  [[nodiscard]] Content content_of(const Run& run, const Digest& digest, std::uint64_t bytes) const;
  [[nodiscard]] IslandId copy_place(Run& run, Task& task);
  [[nodiscard]] bool has_to_keep(Run& run, Task& task, const Digest& digest, const IslandId& island);
  void add_work(Run& run, const Task& task, const IslandId& island, Assignment& assignment);
  void add_kept(Run& run, Task& task, const IslandId& island, Assignment& assignment);
  [[nodiscard]] Assignment assignment_of(Run& run, const IslandId& island);
  void say_assignments(Run& run);

  // ---- image_parts.cpp: a data set whose parts lie on several islands
  [[nodiscard]] bool images_are_used(const Run& run, const Task& task) const;
  [[nodiscard]] bool takes_images(Run& run, Task& task, const AssignmentReport& message);
  [[nodiscard]] std::string lack_of_images(const Run& run, const IslandId& island) const;
  [[nodiscard]] std::vector<IslandId> cannot_pack(const Run& run, const Task& task) const;
  [[nodiscard]] bool found_images_again(Run& run, Task& task);
  void wait_for_images(Run& run, Task& task);
  void say_what_lacks_images(Run& run);

  // ---- operations.cpp: what operators ask of a run. Errors: not_found.
  Result<Run*> run_asked_for(const RunId& id);
  [[nodiscard]] std::optional<ExportSource> export_source(const Run& run, const Membership& membership, bool alone) const;

  // ---- runs.cpp: how a run begins, waits and ends
  void advance(Run& run);
  void advance_shared(Run& run);
  void settle(Run& run);
  [[nodiscard]] StartInput start_input(const Run& run) const;
  void advance_queued(Run& run);
  void admit_with_own_state(Run& run, const IslandId& id, MembershipState state);
  void advance_alone(Run& run);
  void advance_end(Run& run);
  void pause_after(Run& run, Round round);
  void note_enough(Run& run, const Membership& membership, const std::string& why);
  void end_by_tokens(Run& run);
  void complete_soon(Run& run, const IslandId& said_by, const std::string& why);
  void complete_early(Run& run);
  void note_own_round(Run& run, Round round);
  void advance_pause(Run& run);
  void pause_now(Run& run);
  void check_hopeless(Run& run);
  void set_state(Run& run, RunState state, const std::string& reason, std::optional<TimePoint> until = std::nullopt);
  void tell_wait(Run& run);
  void end_run(Run& run, RunState state, const std::string& reason, std::optional<Error> error);
  [[nodiscard]] RunView view_of(const Run& run) const;
  [[nodiscard]] MembershipView membership_view(const Run& run, const IslandId& id, const Membership& membership) const;
  [[nodiscard]] TaskView task_view(const Run& run, const Task& task) const;
};

}  // namespace atl::coordinator
