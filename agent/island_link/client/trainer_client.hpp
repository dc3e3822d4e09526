// A trainer's side of the island link: what the agent says becomes one order after another, and what was done is said back.
//
// agent/island_link/README.md is the law here; this is its one implementation, for the built-in trainer (C++), for C (atoll_trainer.h) and
// for Python above that. A trainer pulls: it asks for the next order, carries it out, answers it, and asks again. Which orders there are
// and in which sequence, the counters of each fragment, waiting for results, finishing, skipping, loading, saving atomically and what is
// said of all that live here; what a model, an optimiser or a data set is, does not.
//
//   join → configuration → declare → (the trainer restores what resume() names) → ready → next, answer, next, answer … → stop
//
// A copy between a GPU and the arena, and a report of numbers that a GPU computes, may go on beside the steps: the order is answered as
// begun, and a second time when it has ended, in the order in which they began. What is said to the agent meanwhile waits behind it, so the
// agent hears what it would hear of a trainer that stands still while it copies, only later. So may a save: nothing waits behind it but the
// next save, and what it leads to is said when its folder has its name.
//
// Everything happens on the calling thread: messages are read between orders and while waiting. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/island_link/arena.hpp"
#include "agent/island_link/client/progress_times.hpp"
#include "agent/island_link/client/run_progress.hpp"
#include "agent/island_link/client/saved_folder.hpp"
#include "agent/island_link/client/step_counts.hpp"
#include "agent/island_link/round_orders.hpp"
#include "agent/island_link/trainer_link.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"

namespace atl::island_link {

enum class OrderKind : std::uint8_t {
  none,              // nothing came within the time: ask again
  stop,              // exit with status 0
  step,              // do inner step `step`, whole; answer `samples`, `tokens`
  gradient,          // payload gradient: forward and backward of inner step `step`; answer `samples`, `tokens`
  update,            // payload gradient: clip and take the optimiser's step that the gradient was for
  report,            // answer the losses of the steps since the last report, and the norm if `wants_norm`
  write_parameters,  // copy the fragment's parameters into the arena
  write_gradient,    // copy the fragment's gradient into the arena
  merge,             // p ← alpha·p + (1 − alpha)·arena for the fragment; alpha 0 is an exact copy
  read_gradient,     // take the fragment's gradient from the arena
  stand_at,          // steps and samples were done elsewhere, or are left out: stand at `step` and `position`
  evaluate,          // answer `loss` over the held-out data, if there are any, and `batches`
  save,              // write what is needed to continue into the empty folder `directory`; answer `error` if that failed
  fetch,             // the result that a later merge of the fragment takes lies in the arena: a copy of it may begin. Only for those that
                     // have answered an order as begun
};

// Copies and reports: the orders that may go on beside what comes next.
[[nodiscard]] bool may_go_on(OrderKind kind);

struct Order {
  OrderKind kind = OrderKind::none;
  std::uint32_t fragment = 0;
  std::uint64_t step = 0;        // of step, gradient, update: its number, from 1; of all others: the steps done
  std::uint64_t position = 0;    // samples done
  std::uint64_t free_until = 0;  // of step: steps up to this one may be done at once, and answered as one
  double alpha = 0;
  double progress = 0;  // of step, gradient and update: the share of the run that is done with it, from 0 to 1, for learning rates
  bool wants_norm = false;
  bool fetched = false;  // of merge: the arena holds what the last fetch of the fragment was for
  std::string directory;
};

// Which part of an order is answered.
enum class Answered : std::uint8_t {
  whole,  // it is done
  begun,  // of copies, reports and saves: it goes on beside what comes next. Of the answer only `metrics` and `enough` are looked at
  ended,  // of the oldest order that was begun and has not ended, whatever order is in hand
  saved,  // of the save that was begun: all is in its folder, or `error` says why not
};

// What an order asks for; the rest is not looked at.
struct Answer {
  Answered answered = Answered::whole;
  std::uint64_t steps = 1;  // done at once: at most those up to free_until
  std::uint64_t samples = 0;
  std::uint64_t tokens = 0;
  std::vector<double> losses;  // in the order of the steps; one that is not finite says so
  double norm = 0;             // of the last gradient, before clipping
  std::optional<double> loss;
  std::uint32_t batches = 0;
  std::string error;
  std::vector<Metric> metrics;  // of report and evaluate: numbers of the trainer's own
  std::string enough;           // of any order: why the run may end for all; empty: it goes on
};

class TrainerClient {
 public:
  explicit TrainerClient(TrainerLink link) : link_(std::move(link)) {}

  // Says hello and waits for what the agent wants. Errors: timeout after 60 s; cancelled if the agent says stop; unavailable, corrupt, io.
  Status join(Hello hello);
  // Exactly one of the two is there after join().
  [[nodiscard]] const std::optional<Configure>& configuration() const { return configure_; }
  // What this island trains on, as configuration() has it; how often it was dealt anew since join().
  [[nodiscard]] DataShare share() const;
  [[nodiscard]] std::uint64_t deals() const { return deals_; }
  [[nodiscard]] const std::optional<Task>& task() const { return task_; }
  // For a trainer that does a task: what is said of it. stopped() tells whether the agent has said stop meanwhile.
  TrainerLink& link() { return link_; }
  Result<bool> stopped();
  // The task is done. Success when the agent has said stop. Errors: corrupt for any other message; unavailable, io.
  Status wait_for_stop();

  // Tells the parameters, waits for the arena and maps it. Errors: as join(); invalid_argument for an impossible manifest.
  Status declare(Manifest manifest);
  [[nodiscard]] const Arena& arena() const { return arena_; }
  [[nodiscard]] const ArenaLayout& layout() const { return layout_; }
  // Where it continues, and from what.
  [[nodiscard]] const std::optional<Resume>& resume() const { return configure_->resume; }
  // It stands where resume() says, or at the beginning. Errors: corrupt if the counters that were saved there are broken.
  Status ready(std::uint64_t tokens_available);

  // The next order, waiting up to `timeout` for one (negative: for ever), but not while an order that was begun has not ended: none says
  // then that nothing can be done before the oldest has. After stop there is only stop.
  // Errors: unavailable when the agent is gone; corrupt, io; conflict while an order is not answered.
  Result<Order> next(Duration timeout);
  // The order in hand is done, or has begun, or the oldest that had begun has ended. Errors: conflict if there is none, or for more steps
  // than were free; invalid_argument for more numbers than kMostMetrics, or an order that cannot go on beside others; as next().
  Status answer(const Answer& answer);
  // What the agent has said when it said stop; nothing before.
  [[nodiscard]] const std::optional<Stop>& stop() const { return stop_; }
  // It is about to exit because of this. Best effort.
  void fail(const std::string& why, bool permanent);
  // What it is doing, for people; before it is ready, or where that may take longer than a step.
  Status prepare(const std::string& what);

  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] std::uint64_t position() const { return position_; }

 private:
  using RoundKey = std::pair<std::uint64_t, std::uint32_t>;  // round, fragment
  // What the agent has ordered and is not done.
  struct Pending {
    RoundOrders<PublishOrder, MergeOrder> orders;
    std::map<RoundKey, bool> results;   // come, not taken yet
    std::set<RoundKey> fetched;         // of those
    std::optional<MergeOrder> awaited;  // waits for its result
    double awaited_seconds = 0.0;
    std::vector<std::pair<MergeOrder, double>> parked;  // payload gradient: to be finished after the step; how long each waited
    std::optional<Finish> finish;
  };
  struct Times {
    double compute_seconds = 0.0;
    double wait_seconds = 0.0;
    TimePoint next_step{};  // not before
    ProgressTimes progress;
    double tokens_per_second = 0.0;  // as it was said
    TimePoint handed_out{};          // the order in hand
  };
  // Something to be done in its turn: an order for the trainer, or a deed of our own.
  using Deed = std::function<Status()>;
  using Todo = std::variant<Order, Deed>;
  enum class Phase : std::uint8_t { read, orders, step, after_step };
  // An order that goes on beside the steps.
  struct Begun {
    Order order;
    std::shared_ptr<Answer> answer;  // filled in when it has ended
    StepCounts::Owed losses;         // of a report: where they count
    std::vector<Deed> after;         // what is said to the agent then
  };

  Result<AgentMessage> expect(Duration timeout, const char* what);
  Status handle(const AgentMessage& message);
  Status on(const RoundResult& result);
  Status on(const Plan& plan);
  Status on(const PublishNow& order);
  Status on(const Load& order);
  Status on(const Finish& order);
  Status on(const Skip& order);
  Status on(const Committed& said);
  Status on(const Dealt& dealt);
  Status on(const Save& order);
  Status on(const Evaluate& order);
  void drop_orders(std::uint64_t step);
  void skip_to(std::uint64_t step);

  [[nodiscard]] bool idle() const;
  // One move; an order if it led to one.
  Result<std::optional<Order>> move(TimePoint until);
  Status read_once(TimePoint until);
  bool take_order(std::uint64_t step);
  std::optional<Order> begin_step();
  Status await(TimePoint until);
  void publish(const PublishOrder& order);
  void merge(const MergeOrder& order, bool applied);
  void finish_merge(const MergeOrder& order, double waited);
  void end_steps(std::uint64_t steps);
  Status send_progress(bool whole);
  [[nodiscard]] std::uint64_t tokens_of(const Answer& answer) const;
  Status announce(const Order& due);
  // Sends, behind what has begun and not ended.
  Status say(Deed send);
  Status send_own(const Answer& answer);
  [[nodiscard]] Status check(const Answer& answer) const;
  Status end_oldest(const Answer& answer);
  [[nodiscard]] bool may_begin(OrderKind kind) const;
  // Tells of a save beside the steps that is finished; `wait`: if it is finishing, once it is.
  Status tell_saved(bool wait);
  // Not later than a save that is finishing is looked at again.
  [[nodiscard]] TimePoint soon(TimePoint wake) const;
  // Whether the order can be handed out only when what has begun has ended: it needs the same part of the arena, or saves.
  [[nodiscard]] bool has_to_wait(const Order& due) const;

  [[nodiscard]] Order order(OrderKind kind, std::uint32_t fragment = 0) const;
  [[nodiscard]] Todo report(bool wants_norm) const;
  [[nodiscard]] std::vector<Todo> saving(const std::string& directory);
  // Puts these before everything that is to be done already, in their order.
  void do_next(std::vector<Todo> todos);
  [[nodiscard]] bool may_step() const { return step_ < until_step_; }
  [[nodiscard]] bool gradients() const { return configure_->payload == Payload::gradient; }

  TrainerLink link_;
  [[nodiscard]] Status check_share() const;

  std::optional<Configure> configure_;
  std::uint64_t deals_ = 0;
  std::optional<Task> task_;
  ArenaLayout layout_;
  Arena arena_;
  bool stopped_ = false;
  std::optional<Stop> stop_;  // of a trainer that does no task

  std::uint64_t step_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t until_step_ = 0;
  Phase phase_ = Phase::read;
  bool waited_ = false;  // in this phase, for its first message
  std::deque<Todo> todos_;
  std::optional<Order> in_hand_;
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();  // the newest; of an order that was begun it is empty until that has ended
  std::deque<Begun> begun_;
  bool begins_orders_ = false;  // it has answered one as begun
  std::string saving_to_;       // of the newest order to save
  FolderBeside folder_beside_;
  Pending pending_;
  bool stepped_ = false;               // a step was handed out
  bool inside_step_ = false;           // payload gradient: between gradient and update
  std::uint64_t pending_samples_ = 0;  // of the gradient in hand
  StepCounts counts_;
  RunProgress progress_;
  Times times_;
};

}  // namespace atl::island_link
