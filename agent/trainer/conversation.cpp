#include "agent/trainer/conversation.hpp"

#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "agent/trainer/diffusion/diffusion_task.hpp"

namespace atl {

using island_link::Answer;
using island_link::Answered;
using island_link::Configure;
using island_link::Hello;
using island_link::Order;
using island_link::OrderKind;
using island_link::Preparing;
using island_link::Resume;
using island_link::Task;
using island_link::TaskDone;
using island_link::TrainerLink;

namespace {

constexpr Duration kForEver = Duration(-1);
constexpr auto kLookAgain = std::chrono::microseconds(100);  // for the end of a copy

}  // namespace

Conversation::Conversation(TrainerLink link) : client_(std::move(link)) {}

Status Conversation::run() {
  const Status status = serve();
  if (!status && status.error().code == Code::cancelled) {
    return {};  // the agent said stop before there was an order, or during a task
  }
  if (!status && status.error().code != Code::unavailable) {
    client_.fail(status.error().why, hopeless_);
  }
  return status;
}

Status Conversation::serve() {
  Hello hello;
  hello.trainer = "atoll";
  hello.version = ATOLL_VERSION;
  hello.pid = static_cast<std::uint64_t>(::getpid());
  hello.kernels = computes_with();
  ATOLL_TRY(client_.join(hello));
  if (client_.task()) {
    return work(*client_.task());
  }
  ATOLL_TRY(begin(*client_.configuration()));
  while (true) {
    ATOLL_TRY(answer_ended(false));
    ATOLL_ASSIGN(const Order order, client_.next(kForEver));
    if (dealt_ != client_.deals()) {
      dealt_ = client_.deals();
      learner_->deal(client_.share());
    }
    if (order.kind == OrderKind::stop) {
      return {};
    }
    if (order.kind == OrderKind::none) {
      ATOLL_TRY(answer_ended(true));  // nothing else can be done before it has
    } else if (may_go_on(order.kind)) {
      ATOLL_TRY(begin_order(order));
    } else {
      ATOLL_ASSIGN(const Answer answer, carry_out(order));
      ATOLL_TRY(client_.answer(answer));
    }
  }
}

Status Conversation::begin_order(const Order& order) {
  std::function<Answer()> answer = [] { return Answer(); };
  switch (order.kind) {
    case OrderKind::report: {
      ATOLL_ASSIGN(const std::function<Learner::Numbers()> numbers, learner_->report(order.wants_norm));
      answer = [numbers] {
        Learner::Numbers found = numbers();
        Answer said;
        said.losses = std::move(found.losses);
        said.norm = found.norm;
        return said;
      };
      break;
    }
    case OrderKind::write_parameters:
      ATOLL_TRY(learner_->write_parameters(order.fragment));
      break;
    case OrderKind::write_gradient:
      ATOLL_TRY(learner_->write_gradient(order.fragment));
      break;
    case OrderKind::fetch:
      ATOLL_TRY(learner_->fetch(order.fragment));
      break;
    case OrderKind::merge:
      ATOLL_TRY(learner_->merge_parameters(order.fragment, order.alpha, order.fetched));
      break;
    default:  // read_gradient
      ATOLL_TRY(learner_->read_gradient(order.fragment));
      break;
  }
  ATOLL_ASSIGN(std::function<bool()> ended, learner_->begun());
  if (!ended) {
    return client_.answer(answer());
  }
  begun_.push_back({std::move(ended), std::move(answer)});
  Answer said;
  said.answered = Answered::begun;
  return client_.answer(said);
}

Status Conversation::answer_ended(bool wait) {
  return catching([&]() -> Status {
    while (!begun_.empty() && (begun_.front().ended() || wait)) {
      while (!begun_.front().ended()) {
        std::this_thread::sleep_for(kLookAgain);
      }
      Answer answer = begun_.front().answer();
      begun_.pop_front();
      answer.answered = Answered::ended;
      ATOLL_TRY(client_.answer(answer));
      wait = false;
    }
    return {};
  });
}

Status Conversation::begin(const Configure& configure) {
  ATOLL_ASSIGN(Learner learner, noted(Learner::make(configure)));
  learner_ = std::make_unique<Learner>(std::move(learner));
  ATOLL_TRY(client_.link().send(Preparing{"reading " + learner_->data_listing(), learner_->data_listing()}));
  ATOLL_TRY(client_.declare(learner_->manifest()));
  ATOLL_TRY(learner_->attach(client_.arena().floats(), client_.layout()));
  if (const std::optional<Resume>& resume = client_.resume(); resume && resume->directory) {
    const Status restored = learner_->restore(*resume->directory, resume->step, resume->position);
    hopeless_ = !restored && restored.error().code == Code::invalid_argument;  // other data; another checkpoint may be whole
    ATOLL_TRY(restored);
  } else if (resume) {
    learner_->stand_at(resume->step, resume->position);
  }
  return client_.ready(learner_->tokens_available());
}

// One task from its inputs to its file. A stop that comes meanwhile ends it with `cancelled`.
Status Conversation::work(const Task& task) {
  const auto say = [this](const auto& message) -> Status {
    ATOLL_ASSIGN(const bool stopped, client_.stopped());
    return stopped ? Status(Error{Code::cancelled, "the agent says stop"}) : client_.link().send(message);
  };
  ATOLL_ASSIGN(const std::string facts, perform(task, TaskListener{say, say, say}));
  ATOLL_TRY(client_.link().send(TaskDone{facts}));
  return client_.wait_for_stop();
}

Result<Answer> Conversation::carry_out(const Order& order) {
  Answer answer;
  switch (order.kind) {
    case OrderKind::step:
    case OrderKind::gradient:
      ATOLL_TRY(noted(learner_->compute_gradient()));
      if (order.kind == OrderKind::step) {
        ATOLL_TRY(noted(learner_->apply_gradient(order.progress)));
      }
      stepped_ = true;
      answer.samples = learner_->windows_per_step();
      answer.tokens = learner_->tokens_per_step();
      break;
    case OrderKind::update:
      ATOLL_TRY(learner_->apply_gradient(order.progress));
      break;
    case OrderKind::stand_at:
      learner_->stand_at(order.step, order.position);
      break;
    case OrderKind::evaluate: {
      ATOLL_ASSIGN(answer.loss, noted(learner_->evaluate()));
      answer.batches = learner_->evaluation_batches();
      break;
    }
    case OrderKind::save:
      // A full disk does not end the trainer: the agent hears of it.
      if (const Status saved = learner_->save(order.directory); !saved) {
        answer.error = saved.error().why;
      }
      break;
    default:  // those of begin_order(), none, and stop
      break;
  }
  return answer;
}

}  // namespace atl
