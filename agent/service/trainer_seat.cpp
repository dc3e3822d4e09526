#include "agent/service/trainer_seat.hpp"

#include <utility>

#include "transport/base/bytes.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace {

constexpr auto kLastWait = std::chrono::seconds(5);  // for the trainer's end, when the agent ends

}  // namespace

TrainerSession* TrainerSeat::session(const RunId& run, std::uint64_t incarnation) const {
  return session_ && session_->run() == run && session_->incarnation() == incarnation ? session_.get() : nullptr;
}

bool TrainerSeat::kept_from(const RunId& next) const {
  const bool kept = session_ && session_->run() != next && (session_->finishing() || ending_);
  if (kept) {
    log_info("run " + next.text + ", island " + settings_->island + ": waits until the trainer of run " + session_->run().text +
             " has finished, at most " + human_duration(session_->spec().trainer.finish_within) + " from that run's end");
  }
  return kept;
}

void TrainerSeat::start(const StartTrainer& order) {
  starting_ = order;
  waits_ = kept_from(order.run);
  if (!waits_) {
    clear();
    preparation_->begin(order);
  }
}

Status TrainerSeat::begin(PreparedTrainer& data, TimePoint now) {
  if (!starting_ || starting_->incarnation != data.order.incarnation || starting_->run != data.order.run) {
    return {};
  }
  starting_.reset();
  if (!data.files) {
    return data.files.error();
  }
  ATOLL_ASSIGN(session_, TrainerSession::start(data.order, *data.files, *settings_, now));
  return {};
}

void TrainerSeat::stop(const StopTrainer& order, TimePoint now) {
  if (starting_ && starting_->run == order.run) {
    starting_.reset();
    waits_ = false;
  }
  if (session_ && session_->run() == order.run) {
    stop_session(order, now);
  }
}

void TrainerSeat::stop_session(const StopTrainer& order, TimePoint now) {
  if (ending_) {
    return;  // it was told already
  }
  if (order.end != RunEnd::none && loading_) {
    ending_ = order;
    return;
  }
  loading_.reset();
  session_->stop(order.why, order.end, now);
}

bool TrainerSeat::load(const LoadTrainer& order) {
  if (session(order.run, order.incarnation) == nullptr) {
    return false;
  }
  loading_ = order;
  return true;
}

void TrainerSeat::filled(const ArenaFilled& answer, TimePoint now) {
  TrainerSession* session = this->session(answer.run, answer.incarnation);
  if (session == nullptr || !loading_) {
    return;
  }
  if (answer.status) {
    session->load(loading_->step, loading_->position);
  } else if (!ending_) {
    session->abort(answer.status.error());
  }
  loading_.reset();
  if (const std::optional<StopTrainer> end = std::exchange(ending_, std::nullopt)) {
    session->stop(end->why, answer.status ? end->end : RunEnd::none, now);
  }
}

std::vector<SessionOutput> TrainerSeat::pump(TimePoint now) {
  if (!session_) {
    return {};
  }
  std::vector<SessionOutput> said = session_->pump(now);
  if (session_->ended()) {
    clear();
    if (starting_ && std::exchange(waits_, false)) {
      preparation_->begin(*starting_);
    }
  }
  return said;
}

Duration TrainerSeat::end(TimePoint now) {
  starting_.reset();
  waits_ = false;
  if (!session_) {
    return Duration::zero();
  }
  const bool finishing = session_->finishing() || ending_;
  stop_session(StopTrainer{session_->run(), "the agent ends"}, now);
  return finishing ? session_->spec().trainer.finish_within + kLastWait : kLastWait;
}

void TrainerSeat::clear() {
  session_.reset();
  loading_.reset();
  ending_.reset();
}

}  // namespace atl::agent
