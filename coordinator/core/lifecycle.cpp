#include "coordinator/core/lifecycle.hpp"

#include <initializer_list>

#include "transport/base/check.hpp"

namespace atl::coordinator {
namespace {

// The states that may follow, one bit each.
constexpr unsigned bits(std::initializer_list<RunState> states) {
  unsigned all = 0;
  for (const RunState state : states) {
    all |= 1U << static_cast<unsigned>(state);
  }
  return all;
}

constexpr unsigned followers(RunState state) {
  using enum RunState;
  constexpr unsigned kEnds = bits({completed, failed, cancelled});
  switch (state) {
    case queued:  // `running` at once where there is no common initial state to agree on, `interrupted` where it goes on from a copy
      return bits({starting, running, interrupted, paused}) | kEnds;
    case starting:  // queued again when all its islands are gone
      return bits({queued, running, interrupted, paused}) | kEnds;
    case running:  // queued again when everything is lost
      return bits({queued, interrupted, paused}) | kEnds;
    case interrupted:  // `starting` again where its islands could not exchange data before there was an initial state
      return bits({queued, starting, running, paused}) | kEnds;
    case paused:
      return bits({queued, interrupted}) | kEnds;
    case completed:
      return 0;
    case failed:
    case cancelled:
      return bits({queued, interrupted});
  }
  return 0;
}

}  // namespace

bool may_follow(RunState from, RunState to) { return from == to || (followers(from) & bits({to})) != 0; }

void Lifecycle::recover(const RunRecord& record) {
  state_ = record.state;
  reason_ = record.reason;
  pause_after_ = record.pause_after;
  enough_ = record.enough;
  error_ = record.error;
  submitted_ = record.submitted;
  started_ = record.started;
  ended_ = record.ended;
}

void Lifecycle::write_to(RunRecord& record) const {
  record.state = state_;
  record.reason = reason_;
  record.pause_after = pause_after_;
  record.enough = enough_;
  record.error = error_;
  record.submitted = submitted_;
  record.started = started_;
  record.ended = ended_;
}

void Lifecycle::become(RunState state, const std::string& reason, TimePoint now, std::optional<TimePoint> until) {
  ATOLL_CHECK(may_follow(state_, state), "a run that is " + std::string(to_string(state_)) + " cannot be " + std::string(to_string(state)));
  state_ = state;
  wait(reason, now, until);
}

void Lifecycle::wait(const std::string& reason, TimePoint now, std::optional<TimePoint> until) {
  if (reason_.text != reason) {
    reason_.text = reason;
    reason_.since = now;
  }
  reason_.until = until;
}

void Lifecycle::pause(const std::string& reason, TimePoint now) {
  pause_after_.reset();
  become(RunState::paused, reason, now);
}

void Lifecycle::end(RunState state, const std::string& reason, std::optional<Error> error, TimePoint now) {
  error_ = std::move(error);
  ended_ = now;
  pause_after_.reset();
  become(state, reason, now);
}

void Lifecycle::resume(RunState state, TimePoint now) {
  pause_after_.reset();
  enough_.clear();
  error_.reset();
  ended_.reset();
  become(state, "resumed", now);
}

std::optional<TimePoint> Lifecycle::tells_at(Duration patience) const {
  if (reason_.text.empty() || reason_.text == told_) {
    return std::nullopt;
  }
  return reason_.since + patience;
}

bool Lifecycle::tells(TimePoint now, Duration patience) {
  const std::optional<TimePoint> due = tells_at(patience);
  if (!due || now < *due) {
    return false;
  }
  told_ = reason_.text;
  return true;
}

}  // namespace atl::coordinator
