#include "coordinator/core/entry.hpp"

#include <algorithm>

namespace atl::coordinator {

void Entry::begin(StartFrom from, Round committed, const Outbox& out) {
  Entry fresh;
  fresh.number_ = std::max(number_ + 1, static_cast<std::uint64_t>(out.now().time_since_epoch().count()));
  fresh.from_ = from;
  fresh.assigned_ = committed;
  fresh.failures_ = failures_;
  fresh.misfits_ = misfits_;
  fresh.ahead_ = ahead_;
  fresh.repeat_anew(out);
  *this = std::move(fresh);
}

void Entry::recover(StartFrom from, const Outbox& out) {
  from_ = from;
  repeat_anew(out);
}

void Entry::ordered(CatchUp order, const Outbox& out) {
  catch_up_ = std::move(order);
  repeat_anew(out);
}

const CatchUp& Entry::repeat_order(Epoch epoch, std::uint32_t part, std::uint64_t position) {
  catch_up_->epoch = epoch;
  catch_up_->part = part;
  catch_up_->position = position;
  return *catch_up_;
}

void Entry::drop_progress() {
  catch_up_.reset();
  caught_up_.reset();
}

void Entry::come_to(Round round, TimePoint now) {
  caught_up_ = round;
  resend_.next = now;
}

void Entry::let_in() {
  drop_progress();
  boundaries_missed_ = 0;
  memory_offered_ = false;
  ahead_ = false;
}

void Entry::vacated() {
  initial_.reset();
  drop_progress();
  memory_offered_ = false;
}

void Entry::adopted(bool heard, bool live, TimePoint now) {
  memory_offered_ = heard && live;
  unheard_ = !heard;
  retry_at_ = now;
}

void Entry::fail(TimePoint now, Duration after, Duration most) {
  const unsigned doublings = std::min(failures_++, 8U);
  retry_at_ = now + std::min(after * (1U << doublings), most);
}

void Entry::succeeded() {
  failures_ = 0;
  misfits_ = 0;
}

void Entry::forgive(TimePoint now) {
  succeeded();
  retry_at_ = now;
}

}  // namespace atl::coordinator
