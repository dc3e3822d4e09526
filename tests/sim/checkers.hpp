// Checkers: watch a cluster from outside. They see what was made durable, what islands formed, and what their outer states became; they
// know nothing of the cores' inside.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "agent/core/pending_round.hpp"
#include "agent/engine/round_result.hpp"
#include "coordinator/core/record.hpp"
#include "strategies/schedule.hpp"
#include "strategies/specification/run_spec.hpp"
#include "tests/sim/event_tape.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/exchange_grid.hpp"
#include "transport/base/ids.hpp"

namespace atl::sim {

// Where a fragment begins in the outer state, as in the arena: all are of one size here.
inline std::size_t place_of(std::uint32_t fragment, std::size_t size) { return fragment * ((size + 15) / 16 * 16); }

using Vector = std::vector<float>;
// What a trainer's parameters hold beyond the outer ones that it was loaded with: the samples of a part that it trained on since.
struct Trained {
  std::uint32_t part = 0;
  std::uint64_t from = 0;        // where it was loaded
  std::uint64_t to = 0;          // where it is
  std::uint64_t load = 0;        // which load that was; 0: none
  std::optional<Round> resumed;  // the oldest checkpoint that it went on from: rounds after it may be of the trainer that it replaces
  Digest resumed_digest = {};    // of that checkpoint's round
};

// In a run of phases: how many steps a task has, and the digest of one before its first step (of packing: on this island) and after each;
// and that of the file that is its result, by the one after the last.
std::uint64_t steps_of_task(const RunSpec& spec, const std::string& task);
Digest task_before_steps(const std::string& task, const std::vector<Digest>& inputs, const IslandId& island);
Digest task_after_step(const Digest& before, std::uint64_t step);
Digest task_result(const Digest& history);
// A task whose expert a group has trained goes on from what a trainer saved after the group's last round, whose digest is `digest`.
Digest task_after_rounds(const Digest& before_steps, const Digest& digest, const Vector& trainer);

// Of a run, and of each run of rounds in which a group trains an expert for it: those are checked as any run of rounds is.
class Checkers {
 public:
  // one_level_members: see cut_grid.
  Checkers(const Schedule& schedule, const RunSpec& spec, std::size_t one_level_members = kOneLevelMembers)
      : schedule_(schedule), spec_(spec), one_level_members_(one_level_members), tape_(first_planned()) {}
  // Those of a group's run; of any other these.
  [[nodiscard]] Checkers& of(const RunId& run);
  // A trainer has taken this sequence of the run at this position of its part.
  void trained_on(std::uint32_t part, std::uint64_t position, std::uint64_t sequence) { taken_[{part, position}] = sequence; }
  // A trainer that was loaded or resumed at `stood_at` published for a round, and merged its result, after so many steps.
  void published(const IslandId& island, Round round, Step step, Step stood_at);
  void merged(const IslandId& island, Round round, Step step, Step stood_at);
  // An island formed its contribution to a round, from the state whose digest is `base`, or has it back from a checkpoint of that state.
  // It replaces what that island formed for the round before.
  void contribution(const IslandId& island, Round round, const Digest& base, const Vector& values, const ContributionFacts& facts,
                    const Trained& trained);
  // Where a merge keeps nothing of a trainer's parameters: an island contributes how far its trainer has come since it merged last.
  void moved(const IslandId& island, Round round, const Vector& values, const Vector& by_trainer);
  // An island formed it against an older state than its own: it is that state's parameters without its trainer's.
  void formed_behind(const IslandId& island, Round round, const Digest& base, const Vector& values, const Vector& local);
  // It came too late for the round, and is one to a later round now.
  void postponed(const IslandId& island, Round round, Round to) { formed_[{island, to}] = formed_[{island, round}]; }
  // Of a committed round of the lineage in hand. While that does not reach so far, as after the restoring of an older ledger, of the newest
  // lineage that did: whoever comes with a checkpoint of that time has contributions against its states.
  [[nodiscard]] Digest digest_of(Round round) const {
    const auto found = history_.find(round);
    return found != history_.end() ? found->second : newest_.at(round);
  }
  // How many contributions to rounds after `applied` an island holds.
  void retained(const IslandId& island, Round applied, std::size_t count);
  // An island's outer state is now this.
  void outer_state(const IslandId& island, Round round, const Digest& digest, const Vector& parameters, const Vector& momentum);
  // A committed result was applied to the state of the round before.
  void applied(const IslandId& island, Round before, Round round, const Digest& digest, bool alone);
  // An island of a group has what its trainer saved after the last round on its disk.
  void trainer_saved(const IslandId& island, const Digest& digest, Step step, const Vector& parameters);
  // A transaction of the ledger is durable.
  void durable(const std::vector<coordinator::Record>& records, bool alone);
  void fail(const std::string& what);
  // In pairs: an island took this round with its group, or alone though it had one; `result` is what it used.
  void paired(const IslandId& island, const std::vector<IslandId>& group, Epoch epoch, Round round, bool met, const Vector& result);
  // Its outer state is another one: what it decided after this round counts no more.
  void void_pairs(const IslandId& island, Round after);
  // At the end: nobody in the last commit met somebody in it who went alone.
  void check_pairs();
  // An island has dropped this, and no other has it.
  void last_copy_dropped(const IslandId& island, const Digest& digest);
  // The ledger was replaced by an older copy of it. tape: as it was then; null: the run says at which round it goes on.
  void older_ledger(const std::map<RunId, coordinator::RunRecord>& runs, const std::optional<EventTape>& tape);
  [[nodiscard]] const EventTape& tape() const { return tape_; }

  [[nodiscard]] const std::string& failure() const { return failure_; }
  [[nodiscard]] bool is_committed(const Digest& digest) const { return committed_digests_.count(digest) > 0; }
  [[nodiscard]] std::size_t commits() const { return commits_; }
  // Commits, and rounds that islands took by themselves.
  [[nodiscard]] std::size_t progress() const { return commits_ + applied_alone_; }
  [[nodiscard]] std::size_t tasks_done() const { return tasks_done_; }
  // Of these, those that groups trained, and the rounds that groups committed.
  [[nodiscard]] std::size_t trained_by_groups() const { return trained_by_groups_; }
  [[nodiscard]] std::size_t group_commits() const;
  [[nodiscard]] std::size_t rejected() const { return rejected_; }
  // Committed contributions that were formed against an older state of their fragment than the newest.
  [[nodiscard]] std::size_t late() const { return late_; }
  // Commits of exchanges on two levels.
  [[nodiscard]] std::size_t on_two_levels() const { return two_levels_; }
  [[nodiscard]] std::size_t met() const { return met_; }
  [[nodiscard]] std::size_t went_alone() const { return went_alone_; }

 private:
  Checkers(const Schedule& schedule, const RunSpec& spec, Checkers& whole, RunId run)
      : schedule_(schedule), spec_(spec), tape_(first_planned()), whole_(&whole), run_(std::move(run)) {}
  // Of one run.
  void take(const std::vector<coordinator::Record>& records, bool alone);
  void open_group(const coordinator::RunRecord& record);
  void check_commit(const coordinator::RoundRecord& record);
  [[nodiscard]] Aggregator aggregator_of(const coordinator::RoundRecord& record) const;
  [[nodiscard]] std::vector<EncodedTerm> terms_of(const coordinator::RoundRecord& record,
                                                  const std::vector<const Vector*>& contributions) const;
  // sum: what the terms are put together to.
  [[nodiscard]] Vector sum_by_groups(const coordinator::RoundRecord& record, const std::vector<EncodedTerm>& terms,
                                     const std::vector<const Vector*>& contributions) const;
  [[nodiscard]] RoundResult result_of(const coordinator::RoundRecord& record, const std::vector<EncodedTerm>& terms,
                                      const Vector& sum) const;
  [[nodiscard]] RoundResult result_of_nothing(const coordinator::RoundRecord& record, const Digest& base) const;
  void check_step(Round round, const Digest& digest, const Vector& parameters);
  void check_task(const coordinator::TaskRecord& record);
  void check_group_result(const coordinator::TaskRecord& record, const Digest& before_steps);
  void check_places(const coordinator::TaskRecord& record);
  void check_packing(const coordinator::TaskRecord& record);
  [[nodiscard]] std::uint64_t first_planned() const { return spec_.merge_rounds > 0 ? spec_.rounds - spec_.merge_rounds + 1 : 1; }
  [[nodiscard]] bool merges(Round round) const { return round.value > schedule_.rounds(); }  // all islands' outer parameters
  void check_samples(const coordinator::RoundRecord& record, std::size_t member, const Trained& trained);
  void check_sequences(const coordinator::RoundRecord& record, std::size_t member);
  // Rounds after this one are lost: their samples are open again.
  void forget_samples(Round round);

  // Whether a contribution formed at `base` belongs to round `round` after the state `before`: base is that state or one before it, and
  // no round between them was of the same fragment, unless the contribution may be late.
  [[nodiscard]] bool belongs(Round round, const Digest& base, Digest before, bool late) const;

  const Schedule& schedule_;
  const RunSpec& spec_;
  std::size_t one_level_members_;
  struct Formed {
    Digest base;
    Vector values;
    ContributionFacts facts;
    Trained trained;
  };
  void check_weight(const coordinator::RoundRecord& record, std::size_t member, const Formed& formed);
  std::map<std::pair<IslandId, Round>, Formed> formed_;
  std::map<Digest, Digest> parents_;  // of committed digests
  std::set<Digest> skipped_;          // of committed rounds to which nobody contributed
  std::map<Digest, std::pair<Vector, Vector>> states_;
  std::map<Digest, Vector> means_;                                       // of the contributions to the round that led there
  std::map<std::tuple<RunId, std::uint32_t, Round>, Digest> committed_;  // by lineage
  std::set<Digest> committed_digests_;
  std::map<Round, Digest> history_;        // digests of the lineage in hand
  std::map<Round, Digest> newest_;         // of every round that was ever committed, in its newest lineage
  std::map<std::string, Digest> results_;  // of tasks that are done
  std::map<RunId, coordinator::RunRecord> runs_;
  EventTape tape_;
  bool older_ledger_ = false;  // the coordinator began again from an older copy: it may learn again what it committed
  struct Sample {
    Round round;             // that holds it, or passed it over
    std::uint64_t load = 0;  // by which it was trained on; 0: passed over
    IslandId island;
  };
  std::map<std::uint32_t, std::map<std::uint64_t, Sample>> samples_;  // by part and number
  std::map<std::uint32_t, std::uint64_t> positions_;                  // by part: the next sample that may be committed
  struct Taken {
    Round round;
    IslandId island;
    DataRange place;  // part, and position
  };
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> taken_;  // by part and position: the sequence of the run
  std::map<std::uint64_t, Taken> sequences_;                                // that are committed
  std::map<Digest, std::map<std::uint32_t, std::uint64_t>> positions_at_;   // the same after a committed round
  std::size_t commits_ = 0;
  std::size_t applied_alone_ = 0;
  std::size_t tasks_done_ = 0;
  std::size_t rejected_ = 0;
  std::size_t two_levels_ = 0;
  std::size_t late_ = 0;
  struct Decided {
    std::vector<IslandId> group;
    bool met = false;
    Vector result;
  };
  std::map<std::tuple<Epoch, Round, IslandId>, Decided> pairs_;
  std::vector<IslandId> last_members_;
  std::size_t met_ = 0;
  std::size_t went_alone_ = 0;
  std::string failure_;

  // Of a run with groups.
  struct Group {
    RunSpec spec;
    Schedule schedule;
    std::unique_ptr<Checkers> checkers;
  };
  std::map<RunId, Group> groups_;
  std::map<std::string, std::set<IslandId>> at_work_;  // by running task
  std::map<std::string, IslandId> packed_by_;          // by task of packing that runs or is done
  std::size_t trained_by_groups_ = 0;
  // Of a group.
  Checkers* whole_ = nullptr;
  RunId run_;
  std::map<IslandId, std::set<std::pair<Digest, Vector>>> saved_;  // what trainers saved after the last round, with its digest
};

}  // namespace atl::sim
