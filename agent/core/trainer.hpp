// The trainer of a run on this island: started, given the outer parameters and orders ahead, started again when it ends.
//
// It knows where the trainer stands and what it was told. What a round is, and which is committed, it is told.
//
//   none ──start──► starting ──TrainerReady──► ready ──load──► loading ──TrainerLoaded──► training
//    ▲                                          │ ▲──────────── drop_orders ────────────────┘
//    └───────── TrainerExited, stop ────────────┴──────── go_on (it holds the parameters) ──► training
// Threads: owned by one Core.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/decide.hpp"
#include "agent/core/event.hpp"
#include "agent/core/outbox.hpp"
#include "agent/core/run_terms.hpp"
#include "agent/core/settings.hpp"
#include "agent/core/stored_runs.hpp"
#include "strategies/schedule.hpp"

namespace atl::agent {

// How a trainer is led through the rounds.
struct OrderSettings {
  bool by_schedule = true;  // orders go ahead, as the schedule says; else one is given at a time, and results are adopted as they come
  bool one_by_one = false;  // each round's result before the next is ordered,
  bool returns_parameters = false;  // and the trainer writes its parameters into the arena before it says merged
};

class Trainer {
 public:
  enum class Phase : std::uint8_t {
    none,  // not started, or ended and waiting to be started again
    starting,
    ready,     // arena mapped; has no orders
    loading,   // takes the outer parameters
    training,  // has orders
  };

  // All of them outlive it.
  Trainer(const RunTerms& terms, const OrderSettings& orders, const Settings& settings, Starts& starts, Outbox& out);

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool runs() const { return phase_ != Phase::none; }
  [[nodiscard]] bool up() const { return phase_ != Phase::none && phase_ != Phase::starting; }
  [[nodiscard]] bool training() const { return phase_ == Phase::training; }
  [[nodiscard]] std::uint64_t incarnation() const { return incarnation_; }
  // It has orders, and can be told that a round is its last.
  [[nodiscard]] bool can_finish() const { return training() && finishes_; }
  // Whose outer parameters it holds, with what it trained since.
  [[nodiscard]] std::optional<Round> holds() const { return holds_; }
  // The newest round that it has orders for.
  [[nodiscard]] Round planned() const { return planned_; }
  [[nodiscard]] Step step() const { return step_; }
  // In its part of the data; newest known.
  [[nodiscard]] std::uint64_t position() const { return position_; }
  // Since it started, as it said last.
  [[nodiscard]] std::uint64_t tokens() const { return told_.progress.tokens; }
  // Of an epoch of the part; 0: not known.
  [[nodiscard]] std::uint64_t sequences() const { return sequences_; }
  // Known once the arena is laid out.
  [[nodiscard]] const std::optional<Schedule>& schedule() const { return schedule_; }
  // Of the merge of this round.
  [[nodiscard]] Step step_of(Round round) const;
  [[nodiscard]] std::optional<TimePoint> restart_at() const { return restart_at_; }

  // Starts it where its own state was saved, with the outer parameters of that checkpoint if that is the newest outer state (`current`).
  void start(std::uint32_t part, const DataShare& share, const StoredCheckpoint* saved, bool current);
  // What its part of the data is made of, told as soon as it can hear it.
  void deal(const DataShare& share);
  // Ends one that runs, and starts none again.
  void stop(const std::string& why);
  void cancel_restart() { restart_at_.reset(); }
  // A contribution was formed. True: of that many in a row none has changed a parameter, though steps were taken. Once each time.
  bool note_formed(std::uint64_t tokens, double norm);
  static constexpr unsigned kUnchanged = 3;

  // Its own parameters became the outer state of round 0.
  void note_initial() { holds_ = Round(0); }
  // It gets the outer parameters of this committed round, and stands at that step.
  void load(Round committed, Step step, std::uint64_t position);
  // It holds the outer parameters of the newest round, and what it trained since: it takes orders.
  void go_on(Round committed);
  // Whatever it was told is void. It may wait for a result that never comes: it is loaded anew.
  void drop_orders();
  // The outer state is another: nothing that it holds is of use.
  void outdate(Round committed);
  // The outer state is that of this round, which came from a checkpoint.
  void set_planned(Round committed) { planned_ = committed; }
  [[nodiscard]] bool wants_plan(Round committed) const {
    return schedule_ && (horizon_of_ != committed || terms_->composition.whole_period());
  }
  // Orders for the rounds that it may come to before the next result must be there; not twice for one committed round, unless the exchange
  // takes a whole period. in_hand: the rounds that it need not publish; formed: those of them whose contributions are formed.
  void extend_plan(Round committed, const std::set<Round>& in_hand, const std::set<Round>& formed = {});
  // ---- where nothing is ordered ahead
  // Grows whenever it begins to train, from the outer parameters of begun_with(), at its step and position.
  [[nodiscard]] std::uint64_t beginnings() const { return beginnings_; }
  [[nodiscard]] Round begun_with() const { return begun_with_; }
  // It trains as long as the run goes on.
  void run_to_the_end();
  void order_publish(const RoundPlan& round, Step step);
  // So many tokens of the run are committed. It is told of them while it trains, where the run ends by tokens.
  void hear_tokens(std::uint64_t committed) { run_tokens_ = committed; }
  void tell_tokens();
  // It stands at this step at once, and does what is due there.
  void skip_to(Step step);
  // It takes a result that lies in the arena, at this step or, where it is further, at once; and saves its own state then.
  void adopt(Round round, std::uint32_t fragment, Step not_before, bool save);

  // The result of a round lies in the arena. False: it has no order for it, and will not merge it.
  bool give(Round round, std::uint32_t fragment);
  // A round is its last for now (FinishTrainer), where it can be told that.
  void finish(Round round, bool now);
  // The others have come to this round: it comes to the synchronisation point with the steps that it has done, once those are enough.
  void hurry(Round round, Round committed);
  void forget_hurry() { cut_.reset(); }
  // It was ended by its agent, which was no crash.
  void forgive_crash() { crashes_ -= crashes_ > 0 ? 1U : 0U; }
  // A round is committed: crashes before it do not count.
  void note_progress() { crashes_ = alike_ = 0; }

  // An error: the run is impossible with this trainer.
  Status on(const TrainerReady& event, const std::string& island);
  // committed: of the outer state now.
  void on(const TrainerLoaded& event, Round committed);
  void on(const TrainerPublished& event);
  void on(const TrainerMerged& event);
  void on(const TrainerProgress& event, Round committed);
  void on(const TrainerSaid& event);
  void on(const TrainerExited& event);
  // After it ended: whether it is started again, and when.
  RestartDecision restart(bool permanent, TimePoint now);

  // What it did, those before it included.
  void describe(IslandReport& report) const;
  // The numbers of its own that it has said since they were asked for last.
  std::vector<OwnMetric> take_metrics() { return std::exchange(told_.fresh_metrics, {}); }
  [[nodiscard]] double training_loss() const { return told_.progress.training_loss; }

 private:
  void keep_pace(Round committed);
  [[nodiscard]] bool evaluates(Round round) const;
  void order(PlanDecision decision);

  struct Totals {
    std::uint64_t tokens = 0;
    double compute_seconds = 0;
    double wait_seconds = 0;
  };
  // What it said of itself, for people.
  struct Told {
    TrainerProgress progress;
    Totals before;  // of earlier incarnations
    std::uint64_t parameters = 0;
    std::vector<OwnMetric> metrics;  // the newest of each name
    std::vector<OwnMetric> fresh_metrics;
    std::string enough;
  };

  const RunTerms* terms_;
  OrderSettings orders_;
  const Settings* settings_;
  Starts* starts_;
  Outbox* out_;
  Phase phase_ = Phase::none;
  std::uint64_t incarnation_ = 0;
  std::optional<TimePoint> restart_at_;
  unsigned crashes_ = 0;    // since the last committed round
  unsigned alike_ = 0;      // the newest of them that ended alike
  unsigned unchanged_ = 0;  // contributions in a row that changed nothing
  std::string words_;
  std::optional<Round> holds_;
  Round planned_;
  std::optional<Round> horizon_of_;  // committed round that planned_ was last decided for
  std::set<Round> merges_;           // that it has orders for
  std::uint64_t position_ = 0;
  std::uint64_t sequences_ = 0;
  Step step_;
  bool finishes_ = false;
  std::uint64_t beginnings_ = 0;
  Round begun_with_;
  std::optional<Round> cut_;  // pace: the round that the others have come to; until the trainer was told
  std::optional<Schedule> schedule_;
  Told told_;
  std::uint64_t run_tokens_ = 0;
  DataShare share_;
  DataShare told_share_;
  std::pair<std::uint64_t, std::uint64_t> told_tokens_{};  // which incarnation, and what
};

}  // namespace atl::agent
