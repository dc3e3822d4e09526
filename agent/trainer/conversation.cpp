#include "agent/trainer/conversation.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "agent/trainer/diffusion/diffusion_task.hpp"
#include "agent/trainer/torch_runtime.hpp"

namespace atl {

using namespace island_link;

namespace {

constexpr Duration kConfigureWithin = std::chrono::seconds(60);
constexpr Duration kForEver = Duration(-1);
constexpr Duration kProgressEvery = std::chrono::milliseconds(500);
constexpr Duration kThrottleSlack = std::chrono::milliseconds(500);  // late steps that a throttled trainer makes up for

std::optional<double> finite(double value) { return std::isfinite(value) ? std::optional<double>(value) : std::nullopt; }
std::optional<double> finite(std::optional<double> value) { return value ? finite(*value) : value; }

// Adds the time until it goes to a sum of seconds.
class Stopwatch {
 public:
  explicit Stopwatch(double& sum) : sum_(sum), begin_(now()) {}
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  ~Stopwatch() { sum_ += seconds(now() - begin_); }

 private:
  double& sum_;
  TimePoint begin_;
};

}  // namespace

Conversation::Conversation(TrainerLink link) : link_(std::move(link)) {}

Status Conversation::run() {
  const Status status = serve();
  if (stopped_) {
    return {};
  }
  if (!status && status.error().code != Code::unavailable) {
    // That it could not be sent is no news: the reason is returned, too.
    static_cast<void>(link_.send(Failed{status.error().why}));
  }
  return status;
}

Status Conversation::serve() {
  ATOLL_TRY(begin());
  while (!stopped_) {
    ATOLL_TRY(turn());
  }
  return {};
}

// ---- the opening

Result<AgentMessage> Conversation::expect(Duration timeout, const char* what) {
  ATOLL_ASSIGN(std::optional<AgentMessage> message, link_.receive(timeout));
  if (!message) {
    return Error{Code::timeout, std::string("the agent has not sent ") + what + " in time"};
  }
  if (std::holds_alternative<Stop>(*message)) {
    stopped_ = true;
    return Error{Code::cancelled, "the agent says stop"};
  }
  return *std::move(message);
}

Status Conversation::begin() {
  ATOLL_TRY(link_.send(Hello{kProtocol, "atoll", ATOLL_VERSION, static_cast<std::uint64_t>(::getpid()), 0, 1, true, blas_in_use()}));
  ATOLL_ASSIGN(const AgentMessage first, expect(kConfigureWithin, "configure"));
  if (const auto* task = std::get_if<Task>(&first)) {
    return work(*task);
  }
  const auto* configure = std::get_if<Configure>(&first);
  if (configure == nullptr) {
    return Error{Code::corrupt, "the agent has sent '" + std::string(type_of(first)) + "' where configure was due"};
  }
  payload_ = configure->payload;
  max_steps_per_second_ = configure->training.max_steps_per_second;
  ATOLL_ASSIGN(Learner learner, Learner::make(*configure));
  learner_ = std::make_unique<Learner>(std::move(learner));
  ATOLL_TRY(link_.send(learner_->manifest()));
  ATOLL_ASSIGN(const AgentMessage second, expect(kForEver, "arena"));
  const auto* layout = std::get_if<ArenaLayout>(&second);
  if (layout == nullptr) {
    return Error{Code::corrupt, "the agent has sent '" + std::string(type_of(second)) + "' where arena was due"};
  }
  ATOLL_ASSIGN(Arena arena, Arena::open(layout->path, layout->bytes));
  ATOLL_TRY(learner_->attach(std::move(arena), *layout));
  tallies_.assign(learner_->fragments(), {});
  if (configure->resume) {
    ATOLL_TRY(restore(*configure->resume));
  }
  last_progress_ = now();
  last_progress_step_ = learner_->step();
  return link_.send(Ready{learner_->step(), learner_->position(), learner_->tokens_available()});
}

// One task from its inputs to its file; a stop that comes meanwhile ends it.
Status Conversation::work(const Task& task) {
  const auto still_wanted = [this]() -> Status {
    ATOLL_ASSIGN(const std::optional<AgentMessage> message, link_.receive(Duration::zero()));
    if (message && std::holds_alternative<Stop>(*message)) {
      stopped_ = true;
      return Error{Code::cancelled, "the agent says stop"};
    }
    return {};
  };
  TaskListener listener;
  listener.progress = [&](const TaskProgress& progress) -> Status {
    ATOLL_TRY(still_wanted());
    return link_.send(progress);
  };
  listener.saved = [&](const TaskSaved& saved) -> Status {
    ATOLL_TRY(still_wanted());
    return link_.send(saved);
  };
  ATOLL_ASSIGN(const std::string facts, perform(task, listener));
  ATOLL_TRY(link_.send(TaskDone{facts}));
  while (!stopped_) {
    ATOLL_ASSIGN(const AgentMessage message, expect(kForEver, "stop"));
    return Error{Code::corrupt, "the agent has sent '" + std::string(type_of(message)) + "' where stop was due"};
  }
  return {};
}

Status Conversation::restore(const Resume& resume) {
  if (!resume.directory) {
    learner_->stand_at(resume.step, resume.position);
    return {};
  }
  ATOLL_ASSIGN(const std::string text, learner_->restore(*resume.directory, resume.step, resume.position));
  return read_notes(text);
}

// ---- messages

Status Conversation::turn() {
  ATOLL_TRY(read_messages(true));
  if (stopped_) {
    return {};
  }
  if (!gradients()) {
    ATOLL_TRY(execute_orders(learner_->step()));
  }
  if (!stopped_ && may_step() && now() >= next_step_) {
    ATOLL_TRY(step());
    // What is due after this step is done before anything else is read.
    if (!gradients() && !stopped_) {
      ATOLL_TRY(execute_orders(learner_->step()));
    }
  }
  return {};
}

// Reads all that has come. `wait`: if there is nothing to do, for as long as it takes.
Status Conversation::read_messages(bool wait) {
  Duration timeout = Duration::zero();
  if (wait && !may_step()) {
    timeout = kForEver;
  } else if (wait) {
    timeout = std::max(Duration::zero(), next_step_ - now());
  }
  double ignored = 0.0;
  while (!stopped_) {
    std::optional<AgentMessage> message;
    const bool held = !may_step();
    {
      const Stopwatch watch(held ? wait_seconds_ : ignored);
      ATOLL_ASSIGN(message, link_.receive(timeout));
    }
    if (held) {
      next_step_ = std::max(next_step_, now());
    }
    if (!message) {
      return {};
    }
    ATOLL_TRY(handle(*message));
    timeout = Duration::zero();
  }
  return {};
}

Status Conversation::handle(const AgentMessage& message) {
  return std::visit(
      [this](const auto& value) -> Status {
        using Message = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Message, Stop>) {
          stopped_ = true;
          return {};
        } else if constexpr (std::is_same_v<Message, RoundResult>) {
          results_[{value.round, value.fragment}] = value.applied;
          return {};
        } else if constexpr (std::is_same_v<Message, Configure> || std::is_same_v<Message, Task> || std::is_same_v<Message, ArenaLayout>) {
          return Error{Code::corrupt, std::string("the agent has sent '") + Message::kType + "' a second time"};
        } else {
          return on(value);
        }
      },
      message);
}

Status Conversation::on(const Plan& plan) {
  const auto known = [this](const auto& order) { return order.fragment < learner_->fragments(); };
  if (!std::all_of(plan.publish.begin(), plan.publish.end(), known) || !std::all_of(plan.merge.begin(), plan.merge.end(), known)) {
    return Error{Code::corrupt, "the agent has sent an order for a fragment that does not exist"};
  }
  until_step_ = std::max(until_step_, plan.until_step);
  orders_.add(plan.publish, plan.merge);
  return {};
}

Status Conversation::on(const PublishNow& order) {
  for (const std::uint32_t fragment : order.fragments) {
    ATOLL_TRY(learner_->write_parameters(fragment));
  }
  return link_.send(PublishedNow{order.fragments, learner_->step(), learner_->position()});
}

Status Conversation::on(const Load& order) {
  learner_->stand_at(order.step, order.position);
  for (const std::uint32_t fragment : order.fragments) {
    ATOLL_TRY(learner_->merge_parameters(fragment, 0.0));
  }
  // A clean sheet: all orders are void, also the one in hand, and what was trained before is no part of the next contribution.
  ATOLL_TRY(account());
  ++loads_;
  orders_.clear();
  results_.clear();
  finish_.reset();
  until_step_ = order.step;
  tallies_.assign(tallies_.size(), {});
  last_progress_step_ = order.step;
  return link_.send(Loaded{order.fragments, order.step, order.position});
}

Status Conversation::on(const Finish& order) {
  finish_ = order;
  until_step_ = orders_.finish(order.round, order.now, learner_->step());
  return {};
}

// Stands at that step; those between are not done.
void Conversation::skip_to(std::uint64_t step) {
  if (step > learner_->step()) {
    last_progress_step_ += step - learner_->step();
    learner_->stand_at(step, learner_->position());
  }
}

Status Conversation::on(const Skip& order) {
  skip_to(std::min(order.step, until_step_));
  return {};
}

Status Conversation::on(const Save& order) {
  const Status saved = save(order.directory);
  return link_.send(
      Saved{order.directory, learner_->step(), learner_->position(), saved ? std::nullopt : std::optional<std::string>(saved.error().why)});
}

Status Conversation::on(const Evaluate&) {
  ATOLL_ASSIGN(const std::optional<double> loss, learner_->evaluate());
  return link_.send(Evaluated{finite(loss), learner_->evaluation_batches(), learner_->step()});
}

// ---- orders

Status Conversation::execute_orders(std::uint64_t step) {
  const std::uint64_t loads = loads_;
  while (!stopped_ && loads == loads_) {
    if (const auto next = finish_ && finish_->now ? orders_.next_step() : std::nullopt) {
      skip_to(*next);
      step = std::max(step, *next);
    }
    const auto due = orders_.take(step);
    if (!due) {
      break;
    }
    const auto* order = std::get_if<PublishOrder>(&*due);
    ATOLL_TRY(order != nullptr ? publish(*order) : merge(std::get<MergeOrder>(*due)));
  }
  return {};
}

Status Conversation::publish(const PublishOrder& order) {
  Published report;
  ATOLL_TRY(gradients() ? learner_->write_gradient(order.fragment) : learner_->write_parameters(order.fragment));
  {
    const Stopwatch watch(compute_seconds_);
    ATOLL_TRY(account());
    ATOLL_ASSIGN(const double norm, learner_->gradient_norm());
    report.norm = finite(norm);
    report.nonfinite = !std::isfinite(norm);
  }
  Tally& tally = tallies_[order.fragment];
  report.round = order.round;
  report.fragment = order.fragment;
  // A gradient belongs to the step that it is about to make.
  report.step = learner_->step() + (gradients() ? 1 : 0);
  report.position = learner_->position() + (gradients() ? learner_->windows_per_step() : 0);
  report.steps = tally.steps;
  report.tokens = tally.steps * learner_->tokens_per_step();
  report.nonfinite = report.nonfinite || tally.nonfinite;
  if (tally.steps > 0 && !tally.nonfinite) {
    report.loss = finite(tally.loss_sum / static_cast<double>(tally.steps));
  }
  tally = {};
  if (order.evaluate_local) {
    ATOLL_ASSIGN(const std::optional<double> loss, learner_->evaluate());
    report.local_validation_loss = finite(loss);
  }
  report.compute_seconds = compute_seconds_;
  return link_.send(report);
}

Status Conversation::merge(const MergeOrder& order) {
  double waited = 0.0;
  ATOLL_ASSIGN(const std::optional<bool> applied, await_result(order, waited));
  if (!applied) {
    return {};
  }
  if (*applied) {
    ATOLL_TRY(gradients() ? learner_->read_gradient(order.fragment) : learner_->merge_parameters(order.fragment, order.alpha));
  }
  if (gradients()) {
    parked_.push_back(order);
    parked_waits_.push_back(waited);
    return {};
  }
  return finish_merge(order, waited);
}

Result<std::optional<bool>> Conversation::await_result(const MergeOrder& order, double& waited) {
  const RoundKey key{order.round, order.fragment};
  const std::uint64_t loads = loads_;
  while (true) {
    if (stopped_ || loads != loads_) {
      return std::optional<bool>();
    }
    if (const auto result = results_.find(key); result != results_.end()) {
      const bool applied = result->second;
      results_.erase(result);
      wait_seconds_ += waited;
      if (waited > 0.0) {
        next_step_ = std::max(next_step_, now());  // what a throttled trainer waits for others it does not make up for
      }
      return std::optional<bool>(applied);
    }
    std::optional<AgentMessage> message;
    {
      const Stopwatch watch(waited);
      ATOLL_ASSIGN(message, link_.receive(kForEver));
    }
    if (message) {
      ATOLL_TRY(handle(*message));
    }
  }
}

Status Conversation::finish_merge(const MergeOrder& order, double waited) {
  Merged report;
  report.round = order.round;
  report.fragment = order.fragment;
  report.step = learner_->step();
  report.position = learner_->position();
  report.wait_seconds = waited;
  if (order.evaluate) {
    ATOLL_ASSIGN(const std::optional<double> loss, learner_->evaluate());
    report.validation_loss = finite(loss);
  }
  const std::optional<std::string>& folder = finish_ && finish_->round == order.round && finish_->save ? finish_->save : order.save;
  if (folder) {
    const Status saved = save(*folder);
    report.saved = saved.ok();
    if (!saved) {
      report.save_error = saved.error().why;
    }
  }
  if (gradients() && (order.parameters || folder)) {
    ATOLL_TRY(learner_->write_parameters(order.fragment));
  }
  return link_.send(report);
}

// ---- stepping

Status Conversation::step() {
  const std::uint64_t loads = loads_;
  if (max_steps_per_second_ > 0.0) {
    next_step_ = std::max(next_step_, now() - kThrottleSlack) + from_seconds(1.0 / max_steps_per_second_);
  }
  {
    const Stopwatch watch(compute_seconds_);
    ATOLL_TRY(learner_->compute_gradient());
  }
  if (gradients()) {
    ATOLL_TRY(execute_orders(learner_->step() + 1));
  }
  if (stopped_ || loads != loads_) {  // the step is void
    parked_.clear();
    parked_waits_.clear();
    return {};
  }
  {
    const Stopwatch watch(compute_seconds_);
    ATOLL_TRY(learner_->apply_gradient());
  }
  for (std::size_t i = 0; i < parked_.size(); ++i) {
    ATOLL_TRY(finish_merge(parked_[i], parked_waits_[i]));
  }
  parked_.clear();
  parked_waits_.clear();
  return report_progress();
}

// Takes the losses of the steps since the last time into all tallies.
Status Conversation::account() {
  ATOLL_ASSIGN(const std::vector<double> losses, learner_->take_losses());
  for (const double loss : losses) {
    const bool bad = !std::isfinite(loss);
    for (Tally& tally : tallies_) {
      ++tally.steps;
      tally.loss_sum += bad ? 0.0 : loss;
      tally.nonfinite = tally.nonfinite || bad;
    }
    last_loss_ = finite(loss);
    nonfinite_ = nonfinite_ || bad;
  }
  return {};
}

Status Conversation::report_progress() {
  const TimePoint present = now();
  if (present - last_progress_ < kProgressEvery) {
    return {};
  }
  {
    const Stopwatch watch(compute_seconds_);
    ATOLL_TRY(account());
  }
  Progress report;
  report.step = learner_->step();
  report.position = learner_->position();
  report.loss = last_loss_;
  report.nonfinite = std::exchange(nonfinite_, false);
  const std::uint64_t steps = learner_->step() - std::min(learner_->step(), last_progress_step_);
  report.tokens_per_second = static_cast<double>(steps * learner_->tokens_per_step()) / seconds(present - last_progress_);
  report.compute_seconds = compute_seconds_;
  report.wait_seconds = wait_seconds_;
  last_progress_ = present;
  last_progress_step_ = learner_->step();
  return link_.send(report);
}

// ---- saving

Status Conversation::save(const std::string& directory) {
  ATOLL_TRY(account());
  return learner_->save(directory, notes());
}

// The tallies, so that a contribution after a restart counts what was trained before it.
std::string Conversation::notes() const {
  nlohmann::json tallies = nlohmann::json::array();
  for (const Tally& tally : tallies_) {
    tallies.push_back({tally.steps, tally.loss_sum, tally.nonfinite});
  }
  return tallies.dump();
}

Status Conversation::read_notes(const std::string& text) {
  const nlohmann::json tallies = nlohmann::json::parse(text, nullptr, false);
  if (!tallies.is_array() || tallies.size() != tallies_.size()) {
    return {};  // saved under another strategy: counting starts here
  }
  for (std::size_t i = 0; i < tallies_.size(); ++i) {
    const nlohmann::json& tally = tallies[i];
    if (!tally.is_array() || tally.size() != 3 || !tally[0].is_number_unsigned() || !tally[1].is_number() || !tally[2].is_boolean()) {
      return Error{Code::corrupt, "cannot resume: the saved state's notes are broken"};
    }
    tallies_[i] = {tally[0].get<std::uint64_t>(), tally[1].get<double>(), tally[2].get<bool>()};
  }
  return {};
}

}  // namespace atl
