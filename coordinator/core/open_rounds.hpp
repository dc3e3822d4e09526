// The open rounds of a run: what was contributed to each, the attempt that is under way, and what came of it.
//
// A round collects contributions; then an attempt to exchange them is planned. It ends with a commit, which closes the round, or it is
// given up, and the round collects again from what was contributed. What a round waits for is decided by decide_round and decide_attempt
// (decide.hpp), from what is told here.
// Threads: owned by one core.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/decide.hpp"
#include "coordinator/core/outbox.hpp"

namespace atl::coordinator {

struct Contribution {
  bool withdrawn = false;  // first, beside the island's name: each look at a run asks it of every member
  bool rejected = false;   // withdrawn by the coordinator
  bool spoilt = false;     // withdrawn because it was not fit to count: an offence, unless nobody's was
  ContributionFacts facts = {};
  std::string why_not = {};  // withdrawn: why
  friend bool operator==(const Contribution&, const Contribution&) = default;
};
using Contributions = std::map<IslandId, Contribution>;
Contribution contribution_in(const atl::Ready& message);

// Who exchanges, in this order, and what each contributed.
struct AttemptPlan {
  std::vector<IslandId> members;
  std::vector<ContributionFacts> contributions;  // per member
  TimePoint planned;
  std::vector<std::uint8_t> shares = {};  // per member: 0: it owns no shard; empty: everybody owns one
};

class OpenRound {
 public:
  // ---- contributions
  enum class Acceptance : std::uint8_t {
    yes,
    no,        // it exchanges already, with what was contributed before
    restarts,  // a former coordinator planned this attempt, and the island never heard of it, or gave it up: it is to be given up first
  };
  [[nodiscard]] Acceptance accepts(const IslandId& island) const;
  void contribute(const IslandId& island, const Contribution& contribution, TimePoint now);
  // It does not count, in no later round either: nothing is weighed, and its data are passed over.
  void reject(const IslandId& island, const std::string& why);
  // The offence of its withdrawal, to be looked at once; nothing: there is none.
  std::optional<std::string> take_offence(const IslandId& island);
  void forget(const IslandId& island) { contributions_.erase(island); }
  [[nodiscard]] const Contributions& contributions() const { return contributions_; }
  [[nodiscard]] const Contribution* contribution_of(const IslandId& island) const;
  [[nodiscard]] Answer answer_of(const IslandId& island) const;
  [[nodiscard]] std::optional<TimePoint> first_answer() const { return first_answer_; }
  // Of whatever was contributed to it; nothing: nobody has said.
  [[nodiscard]] std::optional<std::uint32_t> fragment() const { return fragment_; }
  // Since when there are enough contributions for a quorum.
  [[nodiscard]] std::optional<TimePoint> quorum_since() const { return quorum_since_; }
  void note_quorum(bool there, TimePoint now) { quorum_since_ = there ? std::optional(quorum_since_.value_or(now)) : std::nullopt; }
  // Whether it is time to tell the others to come as they are (adaptive pace).
  [[nodiscard]] bool cut_is_due(const Outbox& out) { return out.due(cut_); }
  [[nodiscard]] TimePoint next_cut() const { return cut_.next; }

  // ---- attempts
  [[nodiscard]] bool exchanging() const { return exchanging_; }
  [[nodiscard]] bool exchanges(const IslandId& island) const;
  // Planned by a former coordinator: nobody may have heard of it.
  [[nodiscard]] bool recovered() const { return recovered_; }
  [[nodiscard]] Attempt attempt() const { return attempt_; }
  [[nodiscard]] const AttemptPlan& plan() const { return plan_; }
  void recover(const RoundRecord& record, bool exchanging, const Outbox& out);
  // The next attempt, among these. Who has neither contributed nor withdrawn only receives.
  void plan_attempt(const std::vector<IslandId>& participants, const Outbox& out, std::vector<std::uint8_t> shares = {});
  void give_up();
  // What was contributed is forgotten, too; attempts go on counting.
  void start_anew();

  enum class Report : std::uint8_t { counted, ignored, stale };  // stale: of an attempt that was given up
  Report exchanged(const IslandId& island, const Exchanged& message, TimePoint now);
  // `text`: for people, of the first failure of an attempt.
  Report failed(const IslandId& island, const ExchangeFailed& message, const std::string& text, TimePoint now);
  // Of whose own contributions somebody got nothing in this attempt: reader → senders.
  [[nodiscard]] const std::map<IslandId, std::vector<IslandId>>& missing() const { return missing_; }
  [[nodiscard]] bool holds_result(const IslandId& island, const Digest& digest) const;
  [[nodiscard]] std::vector<IslandId> holders(const Digest& digest) const;
  // Whom to send the plan again now, as it has not answered.
  [[nodiscard]] std::vector<IslandId> silent_and_due(const Outbox& out);
  [[nodiscard]] TimePoint next_resend() const { return resend_.next; }
  // What is said of the attempt, without the run and the round: in short where members are those of the epoch, and where what is said of
  // each is the same for all. Whose contribution does not count is told so besides.
  [[nodiscard]] Exchange exchange_of(const std::vector<IslandId>& members_of_epoch, bool with_norms) const;
  // Of the contributions that are exchanged the largest norm that was said; 0: none was.
  [[nodiscard]] double largest_norm() const;
  [[nodiscard]] bool rejects(const IslandId& island) const;
  // How many of the attempt's members have not said that they have the result; nothing: there is no attempt, or somebody failed in it.
  [[nodiscard]] std::optional<std::size_t> awaited() const;
  [[nodiscard]] bool has_exchanged(const IslandId& island) const { return exchanged_.contains(island); }
  // What decide_attempt needs of it; names, times and limits are the core's.
  void describe(AttemptInput& input) const;
  // The attempt came to nothing. Returns why, with the first failure's error.
  std::string blame(const AttemptDecision& decision, TimePoint now);
  // What came of the attempts among these members, in this order, since the round was opened.
  struct Failures {
    unsigned attempts = 0;   // that failed
    unsigned own_fault = 0;  // of these the newest in a row that failed by the members' own fault
    TimePoint newest;
    std::string why;  // the newest one failed
  };
  [[nodiscard]] const Failures* failures_among(const std::vector<IslandId>& members) const;
  [[nodiscard]] RoundTimes times(TimePoint committed) const;

 private:
  Attempt attempt_;  // newest planned
  bool exchanging_ = false;
  bool recovered_ = false;
  Contributions contributions_;
  std::optional<TimePoint> first_answer_;
  std::optional<TimePoint> quorum_since_;
  std::optional<std::uint32_t> fragment_;
  IslandId last_ready_;  // who contributed last
  AttemptPlan plan_;
  std::map<IslandId, Digest> exchanged_;
  std::map<IslandId, std::vector<Digest>> parts_;  // of those, what each member gave
  std::map<IslandId, IslandId> failed_;            // accuser → accused
  std::map<IslandId, std::vector<IslandId>> missing_;
  std::string failure_;  // the first one's error
  std::optional<TimePoint> first_failure_;
  // To whom pieces came last, from whom, and how long after the exchange began there.
  struct Arrival {
    IslandId to;
    IslandId from;
    double seconds = -1;
    TimePoint all;  // when everybody had said so; nobody does before the round before is committed
  } arrival_;
  unsigned bad_attempts_ = 0;
  std::map<IslandId, unsigned> blame_;
  std::map<std::vector<IslandId>, Failures> failures_;  // by the attempts' members
  Resend resend_;
  Resend cut_;
};

// By number.
class OpenRounds {
 public:
  OpenRound& open(Round round) { return rounds_[round]; }
  [[nodiscard]] OpenRound* find(Round round);
  [[nodiscard]] const OpenRound* find(Round round) const;
  [[nodiscard]] OpenRound& at(Round round) { return rounds_.at(round); }
  // Takes it out: it is committed.
  OpenRound close(Round round);
  void clear() { rounds_.clear(); }
  // The rounds in hand are given up; their attempts go on counting when they are taken up again.
  void start_anew();
  [[nodiscard]] std::vector<Round> numbers() const;
  [[nodiscard]] bool any_exchanging() const;
  [[nodiscard]] bool anybody_ready() const;
  // Where rounds close with a quorum: an open round before this one is of the same fragment, and has to be over first.
  [[nodiscard]] bool follows_open_one(Round round) const;
  // Where rounds close with a quorum an island has one contribution to each fragment, which goes to another round when it misses one: what
  // it has in other rounds of this fragment that are not exchanged is that same one.
  void forget_others(const IslandId& island, Round round, std::uint32_t fragment);
  // The newest round to which it has contributed.
  [[nodiscard]] std::optional<Round> newest_of(const IslandId& island) const;
  // It takes no part any more. The rounds whose attempts it was in: they are to be given up.
  std::vector<Round> forget(const IslandId& island);

 private:
  std::map<Round, OpenRound> rounds_;
};

}  // namespace atl::coordinator
