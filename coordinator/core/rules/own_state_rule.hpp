// Runs whose islands have an outer state each, and commit their rounds by themselves: alone, or in pairs. The coordinator keeps the
// membership and learns of the rest by reports; only the rounds that merge all islands' outer parameters at the end of a gossip run are
// planned and committed here.
//
//   own_state_rule.cpp  what both answer as rules, and islands alone
//   pairs.cpp           gossip
//
// Threads: owned by one Core.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/rules/round_rule.hpp"

namespace atl::coordinator {

// Where islands that keep states of their own could go on from, when nobody takes part any more.
struct OwnCopies {
  std::vector<IslandId> newest;      // connected, with their states, of those that left last
  std::vector<IslandId> without;     // connected, and have none
  std::vector<std::string> missing;  // names of those that left last of all, and are away
  bool anybody = false;              // is connected
};

class OwnStateRule : public RoundRule {
 public:
  using RoundRule::RoundRule;

  void enlist(Run& run, const IslandId& island) override;
  void begin(Run& run) override;
  [[nodiscard]] bool remembers(const Run&, const HeldRun&) const override { return false; }
  void compare_held(Run& run, Membership& membership, const HeldRun* held) override;
  void greet_active(Run& run, Membership& membership, bool new_boot, const HeldRun* held) override;
  [[nodiscard]] bool took_part_to_end(const Run&, const RunEnded&) const override { return false; }
  [[nodiscard]] bool is_done(const Run& run, const RunEnded& message) const override;
  [[nodiscard]] Round next_stand(const Run& run) const override;
  void tell_pause(Run& run) override;
  void on_revoked(Run& run) override;
  [[nodiscard]] bool lacks_members(const Run&) const override { return false; }
  [[nodiscard]] Round present_round(const Run& run) const override;
  [[nodiscard]] Round furthest_known(const Run& run) const override { return Round(run.spec.rounds); }
  [[nodiscard]] bool confirms(const Run&, Round, const Digest&) const override { return true; }
  [[nodiscard]] bool exports(const Run& run, const HeldCheckpoint& held, bool alone) const override;
  [[nodiscard]] StartFrom recovered_start(MembershipState state) const override;
  void settle_backup(Run& run) override;
  void describe(const Run& run, RunView& view) const override;

 protected:
  [[nodiscard]] bool trains() const override { return false; }
  [[nodiscard]] bool islands_commit(const Run& run, Round round) const override { return round <= run.terms().last_trained(); }
  void hear_own(Run& run, Membership& membership, const atl::Ready& message) override;
  void on_merged_newer(Run& run, Membership& membership, const Merged& message) override;
  bool takes_checkpoint(Run& run, Membership& membership, const Checkpointed& message) override;
  void come_to(Run&, Membership&, const CaughtUp&) override {}
  [[nodiscard]] Digest digest_at(const Run& run, const Membership& membership, Round round) const override;

  void admit_with_own_state(Run& run, const IslandId& id, MembershipState state);
  void note_own_round(Run& run, Round round);
  // readmits: whoever was away goes on from what it has.
  void advance_alone(Run& run, bool readmits);
  void advance_pause(Run& run);
};

// Every island goes its own way; whoever was away goes on from its own checkpoint.
class OwnRule : public OwnStateRule {
 public:
  using OwnStateRule::OwnStateRule;
  void advance(Run& run) override;

 protected:
  [[nodiscard]] std::uint64_t position_of(const Run&, std::uint32_t, Round) const override { return 0; }
};

// Islands meet in pairs (NoLoCo, arXiv:2506.10911).
class GossipRule : public OwnStateRule {
 public:
  using OwnStateRule::OwnStateRule;
  void hear(Run& run, Membership& membership, const PairQuery& message) override;
  void hear(Run& run, Membership& membership, const PairAnswer& message) override;
  using OwnStateRule::hear;
  void advance(Run& run) override;
  Status pause(Run& run) override;
  [[nodiscard]] bool may_end_early(const Run& run) const override { return !merging(run); }
  [[nodiscard]] PlaceCouples paths_to_avoid(const Run& run) const override;

 protected:
  void on_merged_newer(Run& run, Membership& membership, const Merged& message) override;
  void come_to(Run& run, Membership& membership, const CaughtUp& message) override;

 private:
  // All islands' outer parameters are being merged.
  [[nodiscard]] bool merging(const Run& run) const;
  void note_pair_round(Run& run, Membership& membership, const Merged& message);
  void advance_pair_joins(Run& run);
  void draw_around_paths(Run& run);
  bool restore_merged(Run& run);
  [[nodiscard]] OwnCopies own_copies(const Run& run) const;
  void restore_own(Run& run);
  [[nodiscard]] bool has_state(const Run& run, const IslandId& id) const;
};

}  // namespace atl::coordinator
