// The coordinator's decisions, as pure functions: who starts, what a round does next, what an attempt came to, who is let in, and
// what a run is restored from. Each returns its decision and, where somebody waits, the reason: for what or whom, and until when.
//
// A core calls them whenever something happened or time has passed; they hold no state, so every case is a row of a table in a test.
// Threads: pure.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/generation.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/base/usual_norms.hpp"

namespace atl::coordinator {

// A wait: for what or whom, and when it ends at the latest.
struct Wait {
  std::string text;
  std::optional<TimePoint> until;
};

// ---- which islands a queued run starts with ------------------------------------------------------------------------------------

struct StartCandidate {
  IslandId island;
  std::string name;
  bool connected = false;
  std::string obstacle;  // why it cannot serve this run ("serves run r-1", "has no data set 'corpus'"); empty: it can
  TimePoint arrived;     // of its hello
};
struct StartInput {
  TimePoint now;
  TimePoint submitted;
  std::vector<StartCandidate> candidates;  // in order of preference; only islands that the run file admits
  std::vector<std::string> expected;       // names the run file asks for; empty: any island
  std::uint32_t min = 1;
  std::uint32_t max = 1;
  Duration settle{};
};
struct StartDecision {
  bool start = false;
  std::vector<IslandId> islands;  // of a start: at least min, at most max
  Wait wait;                      // otherwise
};
// Starts as soon as max islands (or all expected ones) can serve; with at least min once nobody has arrived for `settle`.
StartDecision decide_start(const StartInput& input);

// ---- what a round does while contributions are collected ---------------------------------------------------------------------------

enum class Answer : std::uint8_t { none, ready, withdrawn };
struct RoundMember {
  IslandId island;
  std::string name;
  Answer answer = Answer::none;
  bool late = false;  // what it contributes missed earlier rounds: it counts, but the quorum is of those that are on time
  std::optional<TimePoint> trainer_lost = {};  // its trainer ended after the round had begun, and begins the round anew when it is up again
  std::string why_not = {};                    // withdrawn: why its contribution does not count
  std::optional<TimePoint> let_in = {};        // where it was let in by this life of the coordinator: it has its time from then on
};
struct RoundInput {
  TimePoint now;
  Round round;
  std::vector<RoundMember> members;  // active, in order
  std::uint32_t min = 1;
  std::uint32_t quorum = 0;  // contributions on time with which the round closes; 0: those of all members
  std::optional<TimePoint> quorum_since;
  Duration grace{};  // how much longer it waits for others then
  std::optional<TimePoint> first_answer;
  Duration deadline{};
  std::optional<TimePoint> begun;  // when the islands began with it
  double straggler_factor = 0;     // of the first one's time; 0: none
  Duration last_round{};           // how long the one before took
  std::optional<Wait> hold;        // planning is held for a joiner
  bool may_skip = true;            // a result of nothing leaves the outer state as it is; false where a round merges islands' own states
  unsigned skipped = 0;            // rounds before this one, in a row, that had no contribution that counts
};
struct RoundDecision {
  enum class Kind : std::uint8_t {
    wait,
    plan,       // exchange among `participants`
    interrupt,  // fewer active members than min
    skip,       // every member withdrew: `participants` take the round without a step, and train on
    hopeless,   // the same, and it may not be skipped, or kMostSkipped rounds before it were
  };
  Kind kind = Kind::wait;
  std::vector<IslandId> participants;  // ready or withdrawn, in order; with a quorum all: who has not answered only receives
  std::vector<IslandId> left_out;      // did not answer by the deadline
  std::string why_left_out;
  bool stragglers = false;  // left out because they are slow, or lost their trainer: they may come back at once
  Wait wait;
};
// Those that have answered wait for one whose trainer is lost no longer than this, or a share of the last round if that is more: it has
// the whole round before it, and comes back with the next one. Where fewer than min would be left it is waited for as everybody is.
inline constexpr Duration kLostTrainerPatience = std::chrono::seconds(1);
inline constexpr double kLostTrainerShare = 0.1;
// Rounds without a contribution that counts are skipped, as many in a row: the scale of float16's losses halves with each such step, and
// begins at 2^16. A run whose every round is so is hopeless.
inline constexpr unsigned kMostSkipped = 20;
RoundDecision decide_round(const RoundInput& input);

// How long a round with its quorum waits for more contributions: a share of what the overlap hides beside the waiting for the quorum and
// the exchange, so that nobody's result comes later for it. With adaptive pace the others are told to come when the first has: then it is
// long enough for the slowest of them to end the step that it is in and to say so, where τ of its steps are longer than that.
struct GraceInput {
  std::uint64_t overlap_steps = 0;  // τ
  Duration step{};                  // that an inner step takes the fastest contributor; zero: not known
  Duration slowest{};               // with adaptive pace: that it takes the slowest member; zero: not known, or the pace is fixed
  Duration period{};                // between two rounds of a fragment: the half of it is the most
  Duration quorum_wait{};           // from the first contribution to the quorum
  Duration exchange{};              // that the newest round's exchange took
};
inline constexpr double kGraceShare = 0.5;   // γ of Decoupled DiLoCo, whose value is not known
inline constexpr double kGraceSteps = 1.25;  // of the slowest member
Duration decide_grace(const GraceInput& input);

// ---- what an attempt came to ---------------------------------------------------------------------------------------------------------

struct AttemptMember {
  IslandId island;
  std::string name;
  std::optional<Digest> done;      // it holds the result, with this digest
  bool failed = false;             // it could not finish
  IslandId accused;                // whom it blames; may be empty
  std::vector<Digest> parts = {};  // done: of what it got of the result (Exchanged::parts), as it holds it; none: not known
};
// What `giver` gave to the result is another at `reader` than at itself: one of them is wrong, or lies, and which of the two nobody can
// tell.
struct Dispute {
  IslandId reader;
  IslandId giver;
  IslandId trusted = {};  // on two levels: which of the two goes on summing, as it is at odds with fewer others
  friend bool operator==(const Dispute&, const Dispute&) = default;
};
struct Offence {
  IslandId island;
  std::string why;
};
struct AttemptInput {
  TimePoint now;
  Round round;
  Attempt attempt;
  std::vector<AttemptMember> members;  // in order
  std::vector<std::uint8_t> shares;    // who of them sums (AttemptPlan::shares)
  TimePoint planned;
  std::optional<TimePoint> first_failure;
  Duration grace{};                    // after the first failure, for the others' reports
  Duration limit{};                    // of an attempt: then those who said nothing are blamed
  unsigned bad_attempts = 0;           // of this round before this one, with everybody alive
  std::map<IslandId, unsigned> blame;  // accusers per member in those attempts
};
struct AttemptDecision {
  enum class Kind : std::uint8_t { wait, commit, retry };
  Kind kind = Kind::wait;
  Digest digest;                                    // of a commit
  std::vector<IslandId> left_out;                   // of a commit: whose digest differs; of a retry: the one that is left out
  std::string why;                                  // of a retry, or of those left out
  std::map<IslandId, unsigned> blame;               // of a retry: the blame so far
  std::vector<Offence> offences;                    // whose doing it is that results differ
  std::vector<Dispute> disputes;                    // of results that differ, those of nobody who is named
  std::optional<std::size_t> accusers_needed = {};  // where there are disputes
  bool own_fault = false;  // of a retry: whoever failed accuses itself or nobody, so that no path and no peer is to blame
  Wait wait;
};
// Results differ, and members may lie: one is named only by more others than can be wrong where most are honest (`accusers_needed`), be it
// that it gave them something else than it says, or that it holds something else than they gave. Whoever differs from most and got the
// same from everybody has made it wrong itself.
// On two levels one gets the result from its group and its column alone, so that several rounds have to tell; whoever passed on to its
// group what it got is not to blame, nor are those of the group. A round commits when more than half of an attempt's members, and all who
// finished alike, hold the same digest. After three bad attempts the most accused is left out; of several the later in order. Whoever fails
// and accuses nobody accuses itself, and so does whoever fails and accuses one that has finished, as more than half have.
AttemptDecision decide_attempt(const AttemptInput& input);
// Whose doing it is that results differ, as far as that can be told: fills in left_out, offences, disputes. usual: the digest that most
// have.
void blame_for_difference(const AttemptInput& input, const Digest& usual, AttemptDecision& decision);
// Of so many members; nothing: with two there is no third to tell which of them it is.
std::optional<std::size_t> accusers_needed(std::size_t members);
inline constexpr unsigned kBadAttempts = 3;

// How long a round that failed waits for its next attempt among the same members: the second attempt follows at once, for most failures
// are of a moment; later ones wait twice as long each time.
// failures: attempts among these members that failed, in a row; at least 1.
Duration decide_pause(unsigned failures);
inline constexpr Duration kFirstPause = std::chrono::milliseconds(500);
inline constexpr Duration kLongestPause = std::chrono::minutes(1);
// So many attempts in a row that failed among the same members by their own fault end the run, after some four minutes: it would go on so
// for ever.
inline constexpr unsigned kMostOwnFailures = 12;

// ---- contributions that explode -----------------------------------------------------------------------------------------------------

struct JudgedNorm {
  IslandId island;
  double norm = 0;
  std::uint32_t missed = 0;  // rounds of its fragment since it was begun, all of which it spans
  std::uint64_t steps = 0;   // inner steps behind it; 0: not known
  // Its share for each round that it spans.
  [[nodiscard]] KnownNorm of_one_round() const { return {norm / (1.0 + missed), steps}; }
};
struct NormInput {
  std::vector<KnownNorm> usual;   // for each round that they span: of contributions to this fragment that were accepted, newest last
  std::vector<JudgedNorm> norms;  // of this round's contributions
  double factor = 10;             // 0: no guard
};
struct RejectedNorm {
  IslandId island;
  double usual = 0;  // what its norm was compared with
  std::string why;
};
struct NormDecision {
  std::vector<RejectedNorm> rejected;
};
// Rejects norms above factor × the larger of two medians: of what was usual (once kUsualNorms are known) and of this round's, so that a
// change that most islands make is no offence. A contribution of more inner steps than others may be larger in proportion. Never rejects
// all.
NormDecision decide_norms(const NormInput& input);

// ---- contributions that claim more than they can hold ---------------------------------------------------------------------------------

struct JudgedAmount {
  IslandId island;
  std::uint64_t tokens = 0;
  std::uint32_t missed = 0;  // rounds of its fragment that it missed: it may hold the steps of those, too
  bool trained = true;       // no: it holds no step, and its least weight says nothing of what the others did
};
struct AmountInput {
  std::vector<JudgedAmount> amounts;  // of this round's contributions
  std::uint64_t inner_steps = 1;      // between two rounds of a fragment
  std::uint64_t tokens_per_step = 0;  // of the built-in trainer; 0: not known, the trainer is of the islands' owners
};
struct RejectedAmount {
  IslandId island;
  std::string why;
};
// Rejects contributions that claim more tokens than their steps can hold, kMostPeriods periods where the tokens of a step are known; and of
// three or more those that claim kMostTimes the median, which takes all the weight. Never rejects all.
std::vector<RejectedAmount> decide_amounts(const AmountInput& input);
inline constexpr std::uint64_t kMostPeriods = 4;  // the first and the last of a fragment are longer than the others
inline constexpr std::uint64_t kMostTimes = 1000;

// ---- joiners -------------------------------------------------------------------------------------------------------------------------

struct Joiner {
  IslandId island;
  std::string name;
  bool copying = false;            // a CatchUp is under way
  std::optional<Round> caught_up;  // newest verified round
  unsigned boundaries_missed = 0;  // rounds that were committed since it first caught up
  unsigned holds = 0;              // rounds that were held for it
  bool trains = true;              // its trainer is ready: it can begin as soon as it is let in
};
struct AdmitInput {
  TimePoint now;
  Round committed;
  std::vector<Joiner> joiners;
  bool lockstep = false;       // payload gradient: the others do not move on meanwhile
  bool enough = true;          // at least min islands are active
  bool stuck = false;          // the members cannot exchange among themselves, and a joiner may be the one that helps
  bool exchanging = false;     // an attempt is under way
  bool anybody_ready = false;  // for the next round
  TimePoint last_commit;
  Duration last_round{};  // how long the last round took
  std::optional<TimePoint> hold_since;
  Duration hold_limit{};
};
struct AdmitDecision {
  std::vector<IslandId> admit;     // become active now
  std::optional<Wait> hold;        // planning of the next round waits
  std::vector<IslandId> held_for;  // for these
};
// A joiner becomes active at once where the others can do nothing without it; else at the start of a round, so that the others do not wait
// for it to train a whole one; if it has missed that once, the next rounds, a few at most, are held for a bounded time until it has. Nobody
// waits for one whose trainer is still starting.
AdmitDecision decide_admission(const AdmitInput& input);

// ---- nobody has the state in memory any more ------------------------------------------------------------------------------------------

struct RestoreCandidate {
  IslandId island;
  std::string name;
  bool connected = false;
  std::optional<Round> checkpoint;  // newest one whose digest the ledger confirms
  TimePoint away_since = {};        // who took part last comes first
  std::string serves = {};          // another run, by its name: it does not come before that one ends or is paused
};
struct RestoreInput {
  TimePoint now;
  Round committed;
  std::vector<RestoreCandidate> candidates;  // islands of the run
  std::uint32_t others = 0;                  // connected islands that could join besides
  std::uint32_t min = 1;
  std::uint32_t max = std::numeric_limits<std::uint32_t>::max();  // the parts of the data are no more
  TimePoint since;                                                // of the last arrival or loss
  Duration grace{};                                               // before committed rounds are given up
  std::string copies = {};                                        // where there may be copies of checkpoints; empty: nowhere
};
struct RestoreDecision {
  bool restore = false;
  bool start_over = false;  // nothing but the initial state was committed, and none has it: it comes from the seed again
  Round round;
  std::vector<IslandId> islands;  // that have it, max at most: those that took part last
  Wait wait;
};
RestoreDecision decide_restore(const RestoreInput& input);

// ---- for whom a trainer waited --------------------------------------------------------------------------------------------------------

// When a round was at which point, on the coordinator's clock, and who came last.
struct RoundTimes {
  TimePoint planned;    // all contributions were there
  TimePoint exchanged;  // all pieces of it were
  TimePoint committed;
  IslandId last_ready;      // whose contribution came last
  IslandId last_exchanged;  // to whom the last pieces came,
  IslandId slowest;         // and who sent them; empty: not known
};
enum class WaitFor : std::uint8_t {
  ready,   // island: for its contribution
  link,    // from → island: for the exchange, by its slowest link
  commit,  // for the coordinator, once every island had the result and the round before was committed
};
struct WaitShare {
  WaitFor what = WaitFor::ready;
  IslandId island;
  IslandId from;
  double seconds = 0;
};
// Puts the seconds that a trainer waited for a round's result down to what held it up then. The wait is taken to have ended with the
// commit, so on the way back from it: first the commit, then the exchange, then the last contribution. Rounds are committed in their order:
// where the round before was committed after this one's exchange, the way goes on there. `rounds`: the one waited for, then those
// before it, newest first; at least one. The shares are in this order, the last before the wait's end first, and sum to the wait.
// `self` is who waited: nobody waits for itself to be ready, so what is left of the last one's wait was the coordinator's.
std::vector<WaitShare> decide_wait_shares(std::span<const RoundTimes> rounds, double wait_seconds, const IslandId& self);

// ---- a ledger that is older than what islands know (it is a backup) -----------------------------------------------------------------

struct KnownRound {
  Round round;
  Digest digest;
};
struct AdoptionCandidate {
  IslandId island;
  std::string name;
  bool connected = false;
  Epoch epoch;                    // newest that it knows
  std::vector<KnownRound> known;  // committed rounds that it holds, in memory or on its disk
  bool ahead = false;             // when it came it held a round that the ledger did not know, and knew no older epoch
  Generation generation = {};     // of the coordinator by whose word it holds what it does
};
struct AdoptionInput {
  TimePoint now;
  std::optional<Round> committed;             // by the ledger; none: it knows of no round
  std::vector<AdoptionCandidate> candidates;  // islands of the run
  std::uint32_t min = 1;
  TimePoint since;  // of the last arrival or loss
  Duration grace{};
};
struct AdoptionDecision {
  enum class Kind : std::uint8_t { nothing, wait, adopt };
  Kind kind = Kind::nothing;
  KnownRound round;  // of adopt
  Wait wait;
};
// The newest round after the ledger's that at least min islands tell of which know the newest epoch; who knows older epochs only may hold
// rounds that were rolled back. One island's word is never enough where min is more: whoever claims a round beyond what the others hold
// catches up with them. Islands that hold the round before may not have heard of a commit, and speak for it where no round has min holders.
// At least min islands must be there, and those that are away are given `grace` to come and say what they know. Islands that hold the round
// with different digests followed different coordinators: nothing is taken over before their owner has chosen, but where min islands hold
// one and fewer another.
AdoptionDecision decide_adoption(const AdoptionInput& input);

// Nobody is left in the run, and at least min islands came with rounds that the ledger does not know although they knew no older epoch: the
// ledger is an older copy that was put in the place of a newer one. The first of them, with its round; null: the ledger is the newest, as
// far as enough islands say.
std::optional<std::pair<std::string, Round>> find_newer_than_ledger(const AdoptionInput& input);

// "a, b and c"; more than six are counted.
std::string list_of(const std::vector<std::string>& names);

}  // namespace atl::coordinator
