// A run as the coordinator's core sees it: who takes part, how far each is, and what is in hand.
//
// Its lists and records are changed by the core and by the run's rule (rules/rule.hpp). Everything here is owned by one Core.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "coordinator/core/alike.hpp"
#include "coordinator/core/copies.hpp"
#include "coordinator/core/data_parts.hpp"
#include "coordinator/core/decide.hpp"
#include "coordinator/core/decide_lifecycle.hpp"
#include "coordinator/core/entry.hpp"
#include "coordinator/core/guards.hpp"
#include "coordinator/core/lifecycle.hpp"
#include "coordinator/core/lineage.hpp"
#include "coordinator/core/open_rounds.hpp"
#include "coordinator/core/outbox.hpp"
#include "coordinator/core/tasks.hpp"
#include "strategies/round.hpp"
#include "strategies/schedule.hpp"

namespace atl::coordinator {

class Rule;

// What an island contributed to a round, for the metrics.
struct Contributed {
  ContributionFacts facts;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
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
  TimePoint progressed;                        // in pairs: when it last said that it had merged a round
  bool settled = false;                        // where islands commit by themselves: it has said something since it has this membership
  Round contributed;                           // newest
  std::map<Round, Contributed> unmerged;       // those whose result its trainer has not merged yet, the newest few
  std::map<WaitKey, double> waits;             // seconds
  std::deque<AccountedWait> accounted;         // the newest, oldest first
  double share = 0;                            // of the committed tokens, smoothed over rounds
  bool trained = false;                        // its trainer was ready at some time since it was let in
  std::optional<TimePoint> let_in = {};        // in this life of the coordinator
  std::optional<TimePoint> trainer_lost = {};  // and ended after the newest commit, or was not ready then

  void contribute(Round round, const ContributionFacts& facts);
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
  std::string file;  // the specification as submitted, as JSON: a second submit of a name is compared with it
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
  PlaceCouples avoid;                // of these: paths that pairs are drawn around; other ones are another epoch
  std::optional<Schedule> schedule;  // of a run of rounds, where it is known before a trainer has declared its parameters
  TimePoint last_commit;
  TimePoint nobody_since;  // last arrival or loss, for a restore
  Wait wait;               // of the present pass
  Rule* rule = nullptr;    // by which it goes on; one of the core's
  std::variant<RoundsWork, Tasks> work;

  // Of a run of rounds.
  [[nodiscard]] RoundsWork& in_rounds() { return std::get<RoundsWork>(work); }
  [[nodiscard]] const RoundsWork& in_rounds() const { return std::get<RoundsWork>(work); }
  [[nodiscard]] OpenRounds& rounds() { return in_rounds().open; }
  [[nodiscard]] const OpenRounds& rounds() const { return in_rounds().open; }
  // Of a run of phases.
  [[nodiscard]] Tasks& tasks() { return std::get<Tasks>(work); }
  [[nodiscard]] const Tasks& tasks() const { return std::get<Tasks>(work); }
  [[nodiscard]] RunRecord to_record() const;
  // What its rounds are (strategies/round.hpp).
  [[nodiscard]] RunRounds terms() const { return {spec.strategy, spec.rounds, spec.merge_rounds}; }
  // The newest round that a member is known to have come to by itself.
  [[nodiscard]] Round furthest() const;
  // Several islands train one expert in it, for a run of phases.
  [[nodiscard]] bool of_group() const { return !spec.work.run.empty(); }
  // The run of phases that it works for, or itself.
  [[nodiscard]] const std::string& whole() const { return spec.work.run.empty() ? about.id.text : spec.work.run; }
  [[nodiscard]] bool is_member(const IslandId& island) const;
  [[nodiscard]] bool at_end() const { return lineage.initialised() && lineage.committed().value >= spec.rounds; }
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

}  // namespace atl::coordinator
