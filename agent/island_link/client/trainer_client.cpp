#include "agent/island_link/client/trainer_client.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <type_traits>

#include "agent/island_link/client/finite.hpp"

namespace atl::island_link {

namespace {

constexpr Duration kConfigureWithin = std::chrono::seconds(60);
constexpr Duration kForEver = Duration(-1);
constexpr Duration kFinishing = std::chrono::milliseconds(10);  // between two looks at a folder that a thread syncs
constexpr Duration kLongWait = std::chrono::seconds(5);  // for a result: it is told of while it lasts, or it would count as computing
constexpr Duration kThrottleSlack = std::chrono::milliseconds(500);  // late steps that a throttled trainer makes up for

Error out_of_turn(const AgentMessage& message, const char* due) {
  return {Code::corrupt, "the agent has sent '" + std::string(type_of(message)) + "' where " + due + " was due"};
}

}  // namespace

// ---- the opening

Result<AgentMessage> TrainerClient::expect(Duration timeout, const char* what) {
  ATOLL_ASSIGN(std::optional<AgentMessage> message, link_.receive(timeout));
  if (!message) {
    return Error{Code::timeout, std::string("the agent has not sent ") + what + " in time"};
  }
  if (const auto* stop = std::get_if<Stop>(&*message)) {
    stopped_ = true;
    return Error{Code::cancelled, "the agent says stop: " + stop->why};
  }
  return *std::move(message);
}

Status TrainerClient::join(Hello hello) {
  hello.protocol = kProtocol;
  hello.finishes = true;
  ATOLL_TRY(link_.send(hello));
  ATOLL_ASSIGN(AgentMessage first, expect(kConfigureWithin, "configure"));
  if (auto* task = std::get_if<Task>(&first)) {
    task_ = std::move(*task);
    return {};
  }
  auto* configure = std::get_if<Configure>(&first);
  if (configure == nullptr) {
    return out_of_turn(first, "configure");
  }
  configure_ = std::move(*configure);
  return check_share();
}

DataShare TrainerClient::share() const {
  const Data& data = configure_->data;
  return DataShare{data.classes, data.stretches, data.part, data.parts};
}

Status TrainerClient::check_share() const {
  return is_share(share()) ? Status() : Error{Code::corrupt, "the agent says an impossible share of the data"};
}

Result<bool> TrainerClient::stopped() {
  ATOLL_ASSIGN(const std::optional<AgentMessage> message, link_.receive(Duration::zero()));
  stopped_ = stopped_ || (message && std::holds_alternative<Stop>(*message));
  return stopped_;
}

Status TrainerClient::wait_for_stop() {
  const Result<AgentMessage> message = expect(kForEver, "stop");
  if (message) {
    return out_of_turn(*message, "stop");
  }
  return stopped_ ? Status() : Status(message.error());
}

Status TrainerClient::declare(Manifest manifest) {
  ATOLL_TRY(check_manifest(manifest));
  ATOLL_TRY(link_.send(manifest));
  ATOLL_ASSIGN(AgentMessage second, expect(kForEver, "arena"));
  auto* layout = std::get_if<ArenaLayout>(&second);
  if (layout == nullptr) {
    return out_of_turn(second, "arena");
  }
  ATOLL_ASSIGN(arena_, Arena::open(layout->path, layout->bytes));
  ATOLL_TRY(check_layout(manifest, *layout));
  layout_ = std::move(*layout);
  counts_.begin(layout_.fragments.size());
  return {};
}

Status TrainerClient::ready(std::uint64_t tokens_available) {
  if (configure_->resume) {
    step_ = configure_->resume->step;
    position_ = configure_->resume->position;
    if (configure_->resume->directory) {
      ATOLL_ASSIGN(const std::string counts, saved_counts(*configure_->resume->directory));
      if (!counts.empty()) {
        ATOLL_TRY(counts_.read(counts));
      }
    }
  }
  times_.progress.begin(now());
  return link_.send(Ready{step_, position_, tokens_available});
}

Status TrainerClient::prepare(const std::string& what) { return link_.send(Preparing{what}); }

void TrainerClient::fail(const std::string& why, bool permanent) {
  // That it could not be sent is no news to whoever has failed.
  static_cast<void>(link_.send(Failed{why, permanent ? std::optional<bool>(true) : std::nullopt}));
}

// ---- messages

Status TrainerClient::handle(const AgentMessage& message) {
  return std::visit(
      [this](const auto& value) -> Status {
        using Message = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Message, Stop>) {
          stopped_ = true;
          stop_ = value;
          return {};
        } else if constexpr (std::is_same_v<Message, Configure> || std::is_same_v<Message, Task> || std::is_same_v<Message, ArenaLayout>) {
          return Error{Code::corrupt, std::string("the agent has sent '") + Message::kType + "' a second time"};
        } else {
          return on(value);
        }
      },
      message);
}

Status TrainerClient::on(const RoundResult& result) {
  const RoundKey key{result.round, result.fragment};
  pending_.results[key] = result.applied;
  if (result.applied && begins_orders_ && pending_.orders.will_merge(result.round, result.fragment)) {
    todos_.emplace_back(order(OrderKind::fetch, result.fragment));
    pending_.fetched.insert(key);
  }
  return {};
}

Status TrainerClient::on(const Plan& plan) {
  const auto known = [this](const auto& order) { return order.fragment < layout_.fragments.size(); };
  if (!std::all_of(plan.publish.begin(), plan.publish.end(), known) || !std::all_of(plan.merge.begin(), plan.merge.end(), known)) {
    return Error{Code::corrupt, "the agent has sent an order for a fragment that does not exist"};
  }
  until_step_ = std::max(until_step_, plan.until_step);
  pending_.orders.add(plan.publish, plan.merge);
  return {};
}

Status TrainerClient::on(const PublishNow& asked) {
  std::vector<Todo> todos;
  for (const std::uint32_t fragment : asked.fragments) {
    if (fragment >= layout_.fragments.size()) {
      return Error{Code::corrupt, "the agent asks for a fragment that does not exist"};
    }
    todos.emplace_back(order(OrderKind::write_parameters, fragment));
  }
  todos.emplace_back(Deed([this, fragments = asked.fragments] {
    return say([this, said = PublishedNow{fragments, step_, position_}] { return link_.send(said); });
  }));
  do_next(std::move(todos));
  return {};
}

// A clean sheet: all orders are void, also the one in hand, and what was trained before is no part of the next contribution.
Status TrainerClient::on(const Load& load) {
  drop_orders(load.step);
  std::vector<Todo> todos = {report(false)};
  todos.emplace_back(Deed([this, step = load.step, position = load.position] {
    counts_.forget();
    step_ = step;
    position_ = position;
    return Status();
  }));
  Order stand = order(OrderKind::stand_at);
  stand.step = load.step;
  stand.position = load.position;
  todos.emplace_back(stand);
  for (const std::uint32_t fragment : load.fragments) {
    if (fragment >= layout_.fragments.size()) {
      return Error{Code::corrupt, "the agent loads a fragment that does not exist"};
    }
    Order take = stand;
    take.kind = OrderKind::merge;
    take.fragment = fragment;
    todos.emplace_back(take);
  }
  todos.emplace_back(
      Deed([this, said = Loaded{load.fragments, load.step, load.position}] { return say([this, said] { return link_.send(said); }); }));
  do_next(std::move(todos));
  return {};
}

void TrainerClient::drop_orders(std::uint64_t step) {
  pending_.orders.clear();
  pending_.results.clear();
  pending_.fetched.clear();
  pending_.parked.clear();
  pending_.awaited.reset();
  pending_.finish.reset();
  inside_step_ = false;
  pending_samples_ = 0;
  until_step_ = step;
}

Status TrainerClient::on(const Finish& finish) {
  pending_.finish = finish;
  until_step_ = pending_.orders.finish(finish.round, finish.now, step_);
  return {};
}

// Stands at that step; those between are not done.
void TrainerClient::skip_to(std::uint64_t step) {
  if (step > step_) {
    step_ = step;
    todos_.emplace_back(order(OrderKind::stand_at));
  }
}

Status TrainerClient::on(const Skip& skip) {
  skip_to(std::min(skip.step, until_step_));
  return {};
}

Status TrainerClient::on(const Committed& said) {
  progress_.hear(said.tokens, said.of, step_);
  return {};
}

Status TrainerClient::on(const Dealt& dealt) {
  Data& data = configure_->data;
  data.part = dealt.part;
  data.parts = dealt.parts;
  data.classes = dealt.classes;
  data.stretches = dealt.stretches;
  ++deals_;
  return check_share();
}

Status TrainerClient::on(const Save& save) {
  std::vector<Todo> todos = saving(save.directory);
  todos.emplace_back(Deed([this, directory = save.directory] {
    if (answer_->answered == Answered::begun) {
      folder_beside_.announce();
      return Status();
    }
    const std::string& error = answer_->error;
    const Saved said{directory, step_, position_, error.empty() ? std::nullopt : std::optional<std::string>(error)};
    return say([this, said] { return link_.send(said); });
  }));
  do_next(std::move(todos));
  return {};
}

Status TrainerClient::on(const Evaluate&) {
  do_next({order(OrderKind::evaluate), Deed([this] {
             const Evaluated said{finite(answer_->loss), answer_->batches, step_};
             return say([this, said] { return link_.send(said); });
           })});
  return {};
}

// ---- what is to be done

Order TrainerClient::order(OrderKind kind, std::uint32_t fragment) const {
  Order made;
  made.kind = kind;
  made.fragment = fragment;
  made.step = step_;
  made.position = position_;
  return made;
}

TrainerClient::Todo TrainerClient::report(bool wants_norm) const {
  Order made = order(OrderKind::report);
  made.wants_norm = wants_norm;
  return made;
}

void TrainerClient::do_next(std::vector<Todo> todos) {
  todos_.insert(todos_.begin(), std::make_move_iterator(todos.begin()), std::make_move_iterator(todos.end()));
}

// ---- moving on

Result<Order> TrainerClient::next(Duration timeout) {
  if (in_hand_) {
    return Error{Code::conflict, "the order in hand has not been answered"};
  }
  const TimePoint until = !begun_.empty() ? TimePoint{} : timeout < Duration::zero() ? TimePoint::max() : now() + timeout;
  while (true) {
    ATOLL_ASSIGN(std::optional<Order> order, move(until));
    if (order) {
      if (order->kind != OrderKind::none && order->kind != OrderKind::stop) {
        ATOLL_TRY(announce(*order));
        in_hand_ = order;
        times_.handed_out = now();
      }
      return *std::move(order);
    }
    if (idle() && now() >= until) {
      return Order{};
    }
  }
}

// What may take long without a step: the agent does not take it for a hang then.
Status TrainerClient::announce(const Order& due) {
  const bool steps = due.kind == OrderKind::step || due.kind == OrderKind::gradient;
  if (steps && !std::exchange(stepped_, true)) {
    return prepare("doing its first step");
  }
  return due.kind == OrderKind::evaluate ? prepare("evaluating") : due.kind == OrderKind::save ? prepare("saving its state") : Status();
}

// Nothing can be done before a message comes, or the time for the next step.
bool TrainerClient::idle() const {
  if (stopped_ || !todos_.empty()) {
    return false;
  }
  if (pending_.awaited) {
    return !pending_.results.contains({pending_.awaited->round, pending_.awaited->fragment});
  }
  return !inside_step_ && phase_ == Phase::read && !waited_ && (!may_step() || now() < times_.next_step);
}

Result<std::optional<Order>> TrainerClient::move(TimePoint until) {
  ATOLL_TRY(tell_saved(false));
  if (stopped_) {
    return std::optional(order(OrderKind::stop));
  }
  if (!todos_.empty()) {
    if (const auto* due = std::get_if<Order>(&todos_.front()); due != nullptr && has_to_wait(*due)) {
      ATOLL_TRY(tell_saved(true));
      return has_to_wait(*due) ? std::optional(Order{}) : std::nullopt;
    }
    Todo todo = std::move(todos_.front());
    todos_.pop_front();
    if (auto* due = std::get_if<Order>(&todo)) {
      const bool empty = due->kind == OrderKind::report && !due->wants_norm && !counts_.owes_losses();
      return empty ? std::nullopt : std::optional(std::move(*due));
    }
    ATOLL_TRY(std::get<Deed>(todo)());
    return std::optional<Order>();
  }
  if (pending_.awaited) {
    ATOLL_TRY(await(until));
    return std::optional<Order>();
  }
  if (inside_step_) {
    if (!take_order(step_ + 1)) {
      inside_step_ = false;
      Order update = order(OrderKind::update);
      update.step = step_ + 1;
      update.progress = progress_.after(update.step, configure_->training.steps);
      return std::optional(update);
    }
    return std::optional<Order>();
  }
  switch (phase_) {
    case Phase::read:
      ATOLL_TRY(read_once(until));
      return std::optional<Order>();
    case Phase::orders:
    case Phase::after_step:
      if (gradients() || !take_order(step_)) {
        phase_ = phase_ == Phase::orders ? Phase::step : Phase::read;
      }
      return std::optional<Order>();
    case Phase::step:
      return begin_step();
  }
  return std::optional<Order>();
}

// The order that comes next at this step; false if none is due.
bool TrainerClient::take_order(std::uint64_t step) {
  if (const auto next = pending_.finish && pending_.finish->now ? pending_.orders.next_step() : std::nullopt) {
    skip_to(*next);
    step = std::max(step, *next);
  }
  const auto due = pending_.orders.take(step);
  if (!due) {
    return false;
  }
  if (const auto* order = std::get_if<PublishOrder>(&*due)) {
    publish(*order);
  } else {
    pending_.awaited = std::get<MergeOrder>(*due);
    pending_.awaited_seconds = 0.0;
  }
  return true;
}

// Waits for the first message if there is nothing else to do, takes what else has come, then lets what is due be done.
Status TrainerClient::read_once(TimePoint until) {
  const bool held = !may_step();
  TimePoint wake = until;
  if (waited_) {
    wake = TimePoint{};
  } else if (!held) {
    wake = std::min(wake, times_.next_step);
  }
  const TimePoint before = now();
  wake = soon(wake);
  const Duration timeout = wake == TimePoint::max() ? kForEver : std::max(Duration::zero(), wake - before);
  ATOLL_ASSIGN(const std::optional<AgentMessage> message, link_.receive(timeout));
  if (held) {
    times_.wait_seconds += seconds(now() - before);
    times_.next_step = std::max(times_.next_step, now());
  }
  if (message) {
    waited_ = true;
    return handle(*message);
  }
  waited_ = false;
  phase_ = Phase::orders;
  return {};
}

Status TrainerClient::await(TimePoint until) {
  const auto result = pending_.results.find({pending_.awaited->round, pending_.awaited->fragment});
  if (result != pending_.results.end()) {
    const bool applied = result->second;
    pending_.results.erase(result);
    times_.wait_seconds += pending_.awaited_seconds;
    if (pending_.awaited_seconds > 0.0) {
      times_.next_step = std::max(times_.next_step, now());  // what a throttled trainer waits for others it does not make up for
    }
    const MergeOrder due = *std::exchange(pending_.awaited, std::nullopt);
    merge(due, applied);
    return {};
  }
  const TimePoint before = now();
  const TimePoint wake = soon(std::min(until, std::max(before, times_.progress.whole() + kLongWait)));
  ATOLL_ASSIGN(const std::optional<AgentMessage> message, link_.receive(std::max(Duration::zero(), wake - before)));
  pending_.awaited_seconds += seconds(now() - before);
  if (message) {
    return handle(*message);
  }
  return now() >= times_.progress.whole() + kLongWait ? send_progress(true) : Status();
}

std::optional<Order> TrainerClient::begin_step() {
  phase_ = Phase::read;
  if (!may_step() || now() < times_.next_step) {
    return std::nullopt;
  }
  if (const double most = configure_->training.max_steps_per_second; most > 0.0) {
    times_.next_step = std::max(times_.next_step, now() - kThrottleSlack) + from_seconds(1.0 / most);
  }
  Order due = order(gradients() ? OrderKind::gradient : OrderKind::step);
  due.step = step_ + 1;
  due.free_until = due.step;
  due.progress = progress_.after(due.step, configure_->training.steps);
  if (!gradients()) {
    due.free_until = std::max(due.step, pending_.orders.free_until(until_step_));
  }
  return due;
}

// ---- answers

namespace {

bool copies(OrderKind kind) {
  return kind == OrderKind::write_parameters || kind == OrderKind::write_gradient || kind == OrderKind::merge ||
         kind == OrderKind::read_gradient || kind == OrderKind::fetch;
}

}  // namespace

bool may_go_on(OrderKind kind) { return copies(kind) || kind == OrderKind::report; }

bool TrainerClient::has_to_wait(const Order& due) const {
  if (due.kind == OrderKind::save) {
    return !begun_.empty() || folder_beside_.going_on();  // what is saved has been said, and one at a time is written
  }
  return copies(due.kind) && std::ranges::any_of(begun_, [&](const Begun& other) {
           const bool its_own_fetch = due.fetched && other.order.kind == OrderKind::fetch;
           return copies(other.order.kind) && other.order.fragment == due.fragment && !its_own_fetch;
         });
}

Status TrainerClient::check(const Answer& answer) const {
  if (answer.metrics.size() > kMostMetrics) {
    return Error{Code::invalid_argument,
                 std::to_string(answer.metrics.size()) + " metrics are given, at most " + std::to_string(kMostMetrics) + " are taken"};
  }
  if (answer.answered == Answered::ended) {
    return begun_.empty() ? Status(Error{Code::conflict, "no order has begun that has not ended: each ends once"}) : Status();
  }
  if (answer.answered == Answered::saved) {
    const bool due = folder_beside_.going_on() && !folder_beside_.finishing();
    return due ? Status() : Status(Error{Code::conflict, "no save has begun that has not ended: each ends once"});
  }
  if (!in_hand_) {
    return Error{Code::conflict, "no order is in hand: each is answered once"};
  }
  if (answer.answered == Answered::begun && !may_begin(in_hand_->kind)) {
    return Error{Code::invalid_argument, "only copies and reports, and saves where the agent says so, can go on beside other orders"};
  }
  const bool many = in_hand_->kind == OrderKind::step && answer.steps > in_hand_->free_until - step_;
  if (many) {
    return Error{Code::conflict, std::to_string(answer.steps) + " steps were done at once, but only those up to step " +
                                     std::to_string(in_hand_->free_until) + " were free"};
  }
  return {};
}

Status TrainerClient::answer(const Answer& answer) {
  ATOLL_TRY(check(answer));
  if (answer.answered == Answered::ended) {
    return end_oldest(answer);
  }
  if (answer.answered == Answered::saved) {
    folder_beside_.written(answer.error);
    return tell_saved(stopped_);
  }
  const Order done = *std::exchange(in_hand_, std::nullopt);
  answer_ = std::make_shared<Answer>(answer);
  if (!answer.metrics.empty() || !answer.enough.empty()) {
    ATOLL_TRY(say([this, own = answer_] { return send_own(*own); }));
  }
  if (done.kind == OrderKind::report) {
    times_.compute_seconds += seconds(now() - times_.handed_out);
  }
  StepCounts::Owed losses = done.kind == OrderKind::report ? counts_.take_owed() : StepCounts::Owed();
  if (answer.answered == Answered::begun && done.kind == OrderKind::save) {
    folder_beside_.begin(Saved{saving_to_, step_, position_, std::nullopt}, counts_.text());
    return {};
  }
  if (answer.answered == Answered::begun) {
    begins_orders_ = true;
    begun_.push_back({done, answer_, std::move(losses), {}});
    return {};
  }
  counts_.add_losses(losses, answer.losses);
  switch (done.kind) {
    case OrderKind::step:
    case OrderKind::gradient:
      times_.compute_seconds += seconds(now() - times_.handed_out);
      pending_samples_ = answer.samples;
      progress_.train(tokens_of(answer));
      if (done.kind == OrderKind::gradient) {
        counts_.add_steps(step_ + 1, 1, tokens_of(answer));
        inside_step_ = true;
      } else {
        counts_.add_steps(step_ + 1, std::max<std::uint64_t>(answer.steps, 1), tokens_of(answer));
        end_steps(std::max<std::uint64_t>(answer.steps, 1));
      }
      break;
    case OrderKind::update:
      times_.compute_seconds += seconds(now() - times_.handed_out);
      end_steps(1);
      break;
    default:
      break;
  }
  return {};
}

Status TrainerClient::end_oldest(const Answer& answer) {
  const Begun ended = std::move(begun_.front());
  begun_.pop_front();
  *ended.answer = answer;
  counts_.add_losses(ended.losses, answer.losses);
  ATOLL_TRY(send_own(answer));
  for (const Deed& said : ended.after) {
    ATOLL_TRY(said());
  }
  return {};
}

bool TrainerClient::may_begin(OrderKind kind) const {
  // With payload gradient the next step waits for what is told with the save.
  return may_go_on(kind) || (kind == OrderKind::save && configure_->saves_beside.value_or(false) && !gradients());
}

Status TrainerClient::tell_saved(bool wait) {
  const std::optional<Saved> saved = folder_beside_.outcome(wait);
  return saved ? link_.send(*saved) : Status();
}

TimePoint TrainerClient::soon(TimePoint wake) const { return folder_beside_.finishing() ? std::min(wake, now() + kFinishing) : wake; }

Status TrainerClient::say(Deed send) {
  if (begun_.empty()) {
    return send();
  }
  begun_.back().after.push_back(std::move(send));
  return {};
}

// A program may say its samples alone: each holds as many tokens as the run file says.
std::uint64_t TrainerClient::tokens_of(const Answer& answer) const {
  return answer.tokens > 0 || !configure_ || !configure_->trainer ? answer.tokens : answer.samples * configure_->trainer->tokens_per_sample;
}

// The numbers of its own that came with an answer, and that the run may end.
Status TrainerClient::send_own(const Answer& answer) {
  if (!answer.metrics.empty()) {
    Metrics said;
    for (const Metric& metric : answer.metrics) {
      said.values.push_back({metric.name.substr(0, kLongestMetricName), finite(metric.value)});
    }
    ATOLL_TRY(link_.send(said));
  }
  return answer.enough.empty() ? Status() : link_.send(Enough{answer.enough});
}

// What is due after a step is done before anything else is read.
void TrainerClient::end_steps(std::uint64_t steps) {
  step_ += steps;
  if (const double most = configure_->training.max_steps_per_second; most > 0.0) {
    times_.next_step += from_seconds(static_cast<double>(steps - 1) / most);
  }
  position_ += std::exchange(pending_samples_, 0);
  phase_ = Phase::after_step;
  for (const auto& [due, waited] : std::exchange(pending_.parked, {})) {
    todos_.emplace_back(Deed([this, due = due, waited = waited] {
      finish_merge(due, waited);
      return Status();
    }));
  }
  if (const TimePoint present = now(); times_.progress.whole_due(present)) {
    todos_.emplace_back(report(false));
    todos_.emplace_back(Deed([this] { return send_progress(true); }));
  } else if (times_.progress.due(present)) {
    todos_.emplace_back(Deed([this] { return send_progress(false); }));
  }
}

// whole: with the rate since the last whole one. Else how far it is, and the rate as it was said.
Status TrainerClient::send_progress(bool whole) {
  const TimePoint present = now();
  Progress said;
  said.step = step_;
  said.position = position_;
  if (whole) {
    counts_.pace(said, seconds(times_.progress.say_whole(present)));
    times_.tokens_per_second = said.tokens_per_second;
  } else {
    times_.progress.say(present);
    said.tokens_per_second = times_.tokens_per_second;
  }
  said.compute_seconds = times_.compute_seconds;
  said.wait_seconds = times_.wait_seconds + (pending_.awaited ? pending_.awaited_seconds : 0.0);
  return say([this, said]() mutable {
    counts_.newest_loss(said);
    return link_.send(said);
  });
}

}  // namespace atl::island_link
