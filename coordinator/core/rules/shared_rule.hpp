// Runs whose islands share one outer state: DiLoCo, Streaming DiLoCo, eager updates, CO2, Decoupled DiLoCo; data-parallel in lockstep.
//
//   shared_rule.cpp     what it answers as a rule
//   answers.cpp         what an answer in a round changes before it is heard
//   initial_round.cpp   round 0
//   admission.cpp       who comes, or comes back, and with what state
//   restore.cpp         nobody has the state in memory any more; an older ledger
//
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/rules/round_rule.hpp"

namespace atl::coordinator {

class SharedRule : public RoundRule {
 public:
  using RoundRule::RoundRule;

  void hear(Run& run, Membership& membership, const atl::Ready& message) override;
  using RoundRule::hear;
  [[nodiscard]] Stir stir_of(const Run& run, const IslandId& island, const atl::Ready& message) const override;
  [[nodiscard]] Stir stir_of(const Run& run, const IslandId& island, const Exchanged& message) const override;
  [[nodiscard]] Stir stir_of(const Run& run, const IslandId& island, const Merged& message) const override;
  using RoundRule::stir_of;
  void account(const Run& run, const IslandId& island, const Withdrawn& message) override;
  void account(const Run& run, const IslandId& island, const Checkpointed& message) override;
  void enlist(Run& run, const IslandId& island) override;
  void begin(Run& run) override;
  void compare_held(Run& run, Membership& membership, const HeldRun* held) override;
  void greet_active(Run& run, Membership& membership, bool new_boot, const HeldRun* held) override;
  void advance(Run& run) override;
  [[nodiscard]] Round next_stand(const Run& run) const override { return run.lineage.next(); }
  [[nodiscard]] Round present_round(const Run& run) const override;
  [[nodiscard]] bool confirms(const Run& run, Round round, const Digest& digest) const override;
  [[nodiscard]] bool claims_alone(const Run& run, const IslandId& island) const override;
  bool take_over_beginning(Run& run) override;
  void go_on_from_copy(Run& run, const CopyToGoOnFrom& copy) override;

 protected:
  bool fits(Run& run, Membership& membership, const atl::Ready& message) override;
  bool takes_checkpoint(Run& run, Membership& membership, const Checkpointed& message) override;
  [[nodiscard]] bool has_newest(const Run& run, const CaughtUp& message) const override;
  void come_to(Run& run, Membership& membership, const CaughtUp& message) override;
  [[nodiscard]] bool awaits_leavers(const Run& run) const override;
  [[nodiscard]] bool awaits_members(const Run& run) const override { return run.members.size() < run.spec.islands.min; }
  // A checkpoint that differs from its peers' is a fault.
  [[nodiscard]] virtual bool compares_files() const { return true; }

 private:
  void advance_joins(Run& run);
  void readmit(Run& run);
  void admit_joiners(Run& run);
  void compare_files(Run& run, const IslandId& teller, Round round);
  void order_catch_up(Run& run, Membership& membership);
  void advance_restore(Run& run);
  bool finish_restore(Run& run);
  // Whether its islands show that the ledger is an older copy: what they have is taken over then, as after a restore.
  void notice_older_ledger(Run& run);
  [[nodiscard]] std::vector<IslandId> holders_of_beginning(const Run& run) const;
  bool adopt_newer(Run& run);
  [[nodiscard]] AdoptionInput adoption_input(const Run& run) const;
  [[nodiscard]] std::optional<Wait> wait_for_loading(Run& run);
  [[nodiscard]] RestoreInput restore_input(const Run& run) const;
  [[nodiscard]] std::optional<Round> restorable(const Run& run, const IslandId& island) const;
  [[nodiscard]] bool holds(const Run& run, const IslandId& island, Round round) const;
  void start_over(Run& run, const std::string& why);
  void on_initial(Run& run, Membership& membership, const atl::Ready& message);
  void advance_initial(Run& run);
  void commit_initial(Run& run, const Digest& digest);
  void advance_pause(Run& run);
  [[nodiscard]] const OpenRound* awaiting(const Run& run, const IslandId& island, Round round) const;
};

// Gradients are exchanged at every step: whoever joins copies the state while the others stand, and not before it can train.
class LockstepRule : public SharedRule {
 public:
  using SharedRule::SharedRule;

 protected:
  [[nodiscard]] bool takes_state(const Run& run, const IslandId& joiner) const override;
  [[nodiscard]] Duration hold_limit(const Run& run) const override { return run.spec.islands.deadline; }
  [[nodiscard]] bool stands_for_joiners() const override { return true; }
  [[nodiscard]] bool compares_files() const override { return false; }
};

}  // namespace atl::coordinator
