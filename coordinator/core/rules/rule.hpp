// By which rule a run goes on: what its rounds, or its tasks, make of what islands say, of who comes and goes, and of the time.
//
// A core has one object of each rule, which has no state of its own: what is in hand is the run's (run.hpp). The core asks no run what kind
// it is; it calls its rule, and each rule answers for itself:
//
//   TaskRule       tasks instead of rounds (decentralised diffusion)
//   RoundRule      rounds that the coordinator plans and commits (round_path.cpp)
//     SharedRule     one outer state; how a round closes is a Closing (closing.hpp)
//       LockstepRule   the trainers wait for each result (data-parallel)
//     OwnStateRule   every island has an outer state of its own, and commits its rounds by itself
//       GossipRule     in pairs, and merged at the end (NoLoCo)
//       OwnRule        alone
//
// Threads: owned by one Core. Cost: advance() is O(islands); every other door is O(1) or O(members).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/services.hpp"

namespace atl::coordinator {

class Rule : protected Services {
 public:
  explicit Rule(Core::State& core) : Services(core) {}
  virtual ~Rule() = default;
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  // ---- what a member's island says. What is no business of the rule is dropped.
  virtual void hear(Run&, Membership&, const atl::Ready&) {}
  virtual void hear(Run&, Membership&, const Withdrawn&) {}
  virtual void hear(Run&, Membership&, const Exchanged&) {}
  virtual void hear(Run&, Membership&, const ExchangeFailed&) {}
  virtual void hear(Run&, Membership&, const Merged&) {}
  virtual void hear(Run&, Membership&, const PairQuery&) {}
  virtual void hear(Run&, Membership&, const PairAnswer&) {}
  virtual void hear(Run&, Membership&, const Checkpointed&) {}
  virtual void hear(Run&, Membership&, const CaughtUp&) {}
  virtual void hear(Run&, Membership&, const AssignmentReport&) {}
  // What it may change, before it is heard. Of an island that is connected.
  [[nodiscard]] virtual Stir stir_of(const Run&, const IslandId&, const atl::Ready&) const { return Stir::all; }
  [[nodiscard]] virtual Stir stir_of(const Run&, const IslandId&, const Exchanged&) const { return Stir::all; }
  [[nodiscard]] virtual Stir stir_of(const Run&, const IslandId&, const Merged&) const { return Stir::all; }
  [[nodiscard]] virtual Stir stir_of(const Run&, const IslandId&, const AssignmentReport&) const { return Stir::all; }
  // What an island that has a place in the run, or had, says of a contribution that counts nowhere.
  virtual void account(const Run&, const IslandId&, const Withdrawn&) {}
  // What one that has no place in it any more says that it has.
  virtual void account(const Run&, const IslandId&, const Checkpointed&) {}

  // ---- who takes part
  // A run begins on this island, which is no member yet.
  virtual void enlist(Run&, const IslandId&) = 0;
  // All are enlisted, the first epoch is not made.
  virtual void begin(Run&) = 0;
  // Tells the island its place in the run.
  virtual void invite(Run&, Membership&) {}
  // Which part of the data an island gets; had: what it had before.
  virtual std::uint32_t part_for(Run&, const IslandId&, std::optional<std::uint32_t> had);
  // What the run learns by what an island says that it holds, which came anew.
  virtual void compare_held(Run&, Membership&, const HeldRun*);
  // How far the data are is known by what this island holds, which was a member by a newer ledger.
  [[nodiscard]] virtual bool remembers(const Run&, const HeldRun&) const;
  // An active member came anew: what it was doing goes on, or it has to leave.
  virtual void greet_active(Run&, Membership&, bool new_boot, const HeldRun*) = 0;
  // It takes part no more.
  virtual void on_vacated(Run&, const IslandId&) {}
  // It has left the epoch.
  virtual void on_left(Run&, const IslandId&, const std::string& /*why*/) {}
  // A member has left that has no access any more: what it claimed goes with it.
  virtual void on_revoked(Run&) {}
  // It was taken in, and the new epoch comes next.
  virtual void on_admitted(Run&) {}
  // There is a new epoch. Its members have not been told.
  virtual void on_epoch(Run&) {}
  // Which paths the members of the epoch that begins do without where they can, of those that do not pass or come and go.
  [[nodiscard]] virtual PlaceCouples paths_to_avoid(const Run&) const { return {}; }
  // A member has another address; the others were told.
  virtual void on_moved(Run&, const std::string& /*why*/) {}
  // An island that was asked to leave has nothing in hand that others wait for.
  virtual bool may_leave(Run&, Membership&, const Island&) = 0;
  // An island that was away says that it is done with the run: it took part to the end, and was lost before it was heard.
  [[nodiscard]] virtual bool took_part_to_end(const Run& run, const RunEnded& message) const { return is_done(run, message); }
  // It is done with the run as it should be.
  [[nodiscard]] virtual bool is_done(const Run&, const RunEnded&) const;
  // Results that the island's trainer will not merge any more.
  virtual void account_unmerged(const Run&, Membership&) {}

  // ---- the run
  // One look. What changes by it has the run looked at again.
  virtual void advance(Run&) = 0;
  // As operators ask. Errors: conflict where it cannot stand any more.
  virtual Status pause(Run&) = 0;
  // For people, of a run that was paused just now.
  [[nodiscard]] virtual std::string where_paused(const Run&) const = 0;
  // A trainer, or a number of tokens, may end it before its last round.
  [[nodiscard]] virtual bool may_end_early(const Run&) const { return true; }
  // After which all members can stand.
  [[nodiscard]] virtual Round next_stand(const Run&) const = 0;
  // The round after which all stand is known: who would not hear it otherwise is told.
  virtual void tell_pause(Run&) {}
  // It is being paused: for people; empty: that is said elsewhere.
  [[nodiscard]] virtual std::string pauses_after(const Run&) const;
  // Members so few that no round is done.
  [[nodiscard]] virtual bool lacks_members(const Run&) const;
  // Why it stands, though it has its members; empty: it does not.
  [[nodiscard]] virtual std::string why_it_stands(const Run&) const { return ""; }
  // That is being taken; 0 before there is a common state.
  [[nodiscard]] virtual Round present_round(const Run&) const = 0;
  // The furthest that an island may have come to with what this ledger knows.
  [[nodiscard]] virtual Round furthest_known(const Run&) const;
  // Rounds in hand are given up.
  virtual void give_up_rounds(Run&) {}
  // All that is in hand is given up.
  virtual void give_up(Run& run) { give_up_rounds(run); }
  // It goes on after its end, or a pause, and was given up: its islands are told all anew.
  virtual void resume(Run&) {}
  // The runs in which several islands train, or trained, an expert of this one; only those of experts that are not done, if so wanted.
  [[nodiscard]] virtual std::vector<RunId> groups(const Run&, bool /*unfinished*/) const { return {}; }

  // ---- its history
  // What an island says that it has is of the run's history.
  [[nodiscard]] virtual bool confirms(const Run&, Round, const Digest&) const = 0;
  // A checkpoint with which the run's model can be exported; alone: or this island's own.
  [[nodiscard]] virtual bool exports(const Run&, const HeldCheckpoint&, bool alone) const;
  // Errors: invalid_argument where it makes no model.
  [[nodiscard]] virtual Status makes_model(const Run&) const { return {}; }
  // The results of its tasks, for this reader. Errors: as Core::serve_results.
  virtual Result<std::vector<TaskResult>> serve_results(const Run& run, const std::string& reader_key);
  // A run that has not begun by the ledger: the island holds rounds, or the initial state, of it; it alone says so; it is taken over.
  [[nodiscard]] virtual bool began_before(const Run&, const IslandId&) const { return false; }
  [[nodiscard]] virtual bool claims_alone(const Run&, const IslandId&) const { return false; }
  virtual bool take_over_beginning(Run&) { return false; }
  // A new run goes on from a copy in a store.
  virtual void go_on_from_copy(Run&, const CopyToGoOnFrom&) {}

  // ---- from the ledger
  [[nodiscard]] virtual StartFrom recovered_start(MembershipState) const;
  virtual void recover(Run&, const RoundRecord&) {}
  virtual void recover(Run&, TaskRecord&&) {}
  // All its records are there.
  virtual void settle_recovered(Run&) {}
  // Its ledger is a backup: nothing is in hand any more.
  virtual void settle_backup(Run&) {}

  // ---- for people
  virtual void describe(const Run&, RunView&) const {}
};

}  // namespace atl::coordinator
