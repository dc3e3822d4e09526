// The lifecycle of a run: in which state it is, why and since when, and which state may follow which.
//
//   queued → starting → running ⇄ interrupted → completed | failed | cancelled
//   `pause` leads to paused, once the round after which the run pauses is committed and on the disks; `resume` leads back from paused,
//   failed and cancelled; a run whose model a trainer calls good enough stands after a round in the same way, and is completed there; a run
//   whose every copy is lost with its first rounds is queued again.
// Threads: owned by one core.
#pragma once

#include <optional>
#include <string>

#include "coordinator/core/record.hpp"

namespace atl::coordinator {

// Whether a run in the state `from` may come to be in the state `to`. Staying is no transition, and allowed.
[[nodiscard]] bool may_follow(RunState from, RunState to);

class Lifecycle {
 public:
  void recover(const RunRecord& record);
  void write_to(RunRecord& record) const;

  // ---- what happens
  void submit(TimePoint now) { submitted_ = now; }
  // Islands are invited for the first time.
  void invite(TimePoint now) { started_ = started_.value_or(now); }
  // A transition that is not in the table is a broken invariant.
  void become(RunState state, const std::string& reason, TimePoint now, std::optional<TimePoint> until = std::nullopt);
  // The same state, for this reason now. `since` is when the reason changed.
  void wait(const std::string& reason, TimePoint now, std::optional<TimePoint> until);
  // The run is to be paused once this round is committed and on the disks.
  void pause_after(Round round) { pause_after_ = round; }
  // Once it stands after the round after which it would be paused, it is complete.
  void complete_there(const std::string& why) { enough_ = why; }
  void pause(const std::string& reason, TimePoint now);
  void end(RunState state, const std::string& reason, std::optional<Error> error, TimePoint now);
  // On from an end or a pause, in this state.
  void resume(RunState state, TimePoint now);
  // The first cause why an island, or a task, cannot go on.
  void blame(Error error) { first_error_ = first_error_.value_or(std::move(error)); }
  void blame_anew(Error error) { first_error_ = std::move(error); }
  void forgive() { first_error_.reset(); }
  // A reason that has stood for `patience` is told, once; shorter waits are of no interest to anybody. True: now.
  bool tells(TimePoint now, Duration patience);
  // When tells() may say so; nothing: the reason was told, or there is none.
  [[nodiscard]] std::optional<TimePoint> tells_at(Duration patience) const;

  // ---- what is asked
  [[nodiscard]] RunState state() const { return state_; }
  [[nodiscard]] bool is(RunState state) const { return state_ == state; }
  [[nodiscard]] bool idle() const { return is_idle(state_); }
  [[nodiscard]] bool over() const { return has_ended(state_); }
  [[nodiscard]] bool pausing() const { return pause_after_.has_value(); }
  [[nodiscard]] std::optional<Round> pauses_after() const { return pause_after_; }
  // Why it is complete after that round; empty: it is paused.
  [[nodiscard]] const std::string& enough() const { return enough_; }
  [[nodiscard]] const Reason& reason() const { return reason_; }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }
  [[nodiscard]] const std::optional<Error>& first_error() const { return first_error_; }
  [[nodiscard]] TimePoint submitted() const { return submitted_; }
  [[nodiscard]] std::optional<TimePoint> started() const { return started_; }
  [[nodiscard]] std::optional<TimePoint> ended() const { return ended_; }

 private:
  RunState state_ = RunState::queued;
  Reason reason_;
  std::optional<Round> pause_after_;
  std::string enough_;
  std::optional<Error> error_;        // of a failed run
  std::optional<Error> first_error_;  // of an island that cannot take part, or a task that failed
  TimePoint submitted_;
  std::optional<TimePoint> started_;
  std::optional<TimePoint> ended_;
  std::string told_;  // the newest reason that was told
};

}  // namespace atl::coordinator
