#include "agent/core/tasks.hpp"

#include <algorithm>
#include <limits>

#include "agent/core/decide.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {
namespace {

constexpr Duration kFetchAgain = std::chrono::seconds(2);
constexpr Duration kFetchUnderWay = std::chrono::hours(24);  // the engine answers in the end

std::vector<Content> contents_of(const Assignment& assignment) {
  std::vector<Content> all = assignment.keep;
  for (const TaskInput& input : assignment.inputs) {
    all.push_back(input.content);
  }
  if (!assignment.resume.digest.empty()) {
    all.push_back(assignment.resume);
  }
  return all;
}

}  // namespace

Tasks::Tasks(RunId run, RunSpec spec, const Settings& settings, Outbox& out) : settings_(&settings), out_(&out), spec_(std::move(spec)) {
  report_.run = std::move(run);
  report_.state = "idle";
  report_.loss = std::numeric_limits<double>::quiet_NaN();
  out_->effect(OpenContent{report_.run});
}

void Tasks::take(const Assignment& message) {
  const bool same =
      message.task == assignment_.task && message.group == assignment_.group && message.group_round == assignment_.group_round;
  want(message);
  drop(message);
  assignment_ = message;
  report_.number = message.number;
  if (!same) {
    forget_task(message.task);
  }
  say();
}

void Tasks::want(const Assignment& message) {
  wanted_.clear();
  for (const Content& content : contents_of(message)) {
    wanted_.insert(content.digest);
  }
  out_->effect(AllowPeers{message.run, Epoch(0), message.members, readers_.all()});
  for (auto next = fetching_.begin(); next != fetching_.end();) {
    const auto here = next++;
    if (!wanted_.contains(here->first)) {
      out_->effect(DropContent{message.run, here->first});
      fetching_.erase(here);
    }
  }
}

// What is held goes only by its name: a coordinator that was started anew does not know what lies here, and it may be the last copy.
void Tasks::drop(const Assignment& message) {
  if (adopting_ > 0) {
    return;  // what is being adopted may be the same bytes; the coordinator names again what is still held then
  }
  std::vector<Content> named = message.drop;
  if (ATOLL_PLANTED(drops_unnamed)) {
    for (const auto& [digest, bytes] : held_) {
      named.push_back(Content{digest, bytes, {}});
    }
  }
  // Nor does what this island has made meanwhile: a start of the task before may have made the same, of which nobody knew what it was for.
  const std::set<Digest> own =
      message.task == assignment_.task ? std::set<Digest>{report_.result.digest, report_.checkpoint.digest} : std::set<Digest>{};
  for (const Content& content : named) {
    if (!wanted_.contains(content.digest) && !own.contains(content.digest) && held_.erase(content.digest) > 0) {
      out_->effect(DropContent{message.run, content.digest});
    }
  }
}

// Another task: what the old one has written and is not adopted yet is none of the new one's.
void Tasks::forget_task(const std::string& task) {
  stop("the coordinator gave another task");
  start_ = 0;
  crashes_ = 0;
  report_.task = task;
  report_.state = task.empty() ? "idle" : "fetching";
  report_.result = Content{};
  report_.checkpoint = Content{};
  report_.checkpoint_step = 0;
  report_.step = 0;
  report_.steps = 0;
  report_.loss = std::numeric_limits<double>::quiet_NaN();
  report_.facts.clear();
  report_.error.reset();
}

// True if everything that the task needs is here.
bool Tasks::fetch_missing(TimePoint now) {
  bool here = true;
  const std::vector<Content> contents = contents_of(assignment_);
  for (std::size_t i = 0; i < contents.size(); ++i) {
    const Content& content = contents[i];
    if (held_.contains(content.digest)) {
      continue;
    }
    here = here && i < assignment_.keep.size();  // what is only kept is not waited for
    const auto again = fetching_.find(content.digest);
    if (again == fetching_.end() || now >= again->second) {
      fetching_[content.digest] = now + kFetchUnderWay;
      out_->effect(FetchContent{run(), content});
    }
  }
  return here;
}

void Tasks::drive(TimePoint now, const StoredRuns& stored, Starts& starts) {
  if (!opened_) {
    return;
  }
  if (fetch_missing(now) && report_.state == "fetching") {
    if (assignment_.group.empty() || (assignment_.group_round > Round(0) && saved_by_group(stored))) {
      begin_task(stored, starts);
    } else {
      // Its group's run assigns it its place; or its rounds are over, and others have what the trainer saved after the last.
      report_.state = assignment_.group_round == Round(0) ? "ready" : "without";
      say();
    }
  }
  if (restart_at_ && now >= *restart_at_) {
    restart_at_.reset();
    begin_task(stored, starts);
  }
}

// The round of its group, as the assignment says the last, after which its own trainer saved its state, if that lies here.
std::optional<Round> Tasks::saved_by_group(const StoredRuns& stored) const {
  std::optional<Round> newest;
  for (const StoredCheckpoint& checkpoint : stored.checkpoints(assignment_.group)) {
    if (checkpoint.trainer_state && (checkpoint.round == assignment_.group_round || ATOLL_PLANTED(other_round))) {
      newest = checkpoint.round;
    }
  }
  return newest;
}

void Tasks::begin_task(const StoredRuns& stored, Starts& starts) {
  StartTask order;
  order.run = run();
  order.start = starts.next();
  order.spec = spec_;
  order.task = assignment_.task;
  order.inputs = assignment_.inputs;
  order.group = assignment_.group;
  order.group_round = saved_by_group(stored).value_or(assignment_.group_round);
  // After a crash its own newest checkpoint is at least as new as what the assignment names.
  order.resume = report_.checkpoint.digest.empty() ? assignment_.resume : report_.checkpoint;
  start_ = order.start;
  running_ = true;
  report_.error.reset();
  compute_before_ = report_.compute_seconds;
  report_.state = "running";
  out_->effect(std::move(order));
  say();
}

void Tasks::stop(const std::string& why) {
  restart_at_.reset();
  if (running_) {
    running_ = false;
    out_->effect(StopTask{run(), why});
  }
}

void Tasks::heed(const Serve& message) {
  readers_.heed(message);
  out_->effect(AllowPeers{run(), Epoch(0), assignment_.members, readers_.all()});
}

void Tasks::on(const TaskProgressed& event) {
  if (event.start != start_ || !running_) {
    return;
  }
  report_.step = event.step;
  report_.steps = event.steps;
  report_.loss = event.loss;
  report_.images_per_second = event.images_per_second;
  report_.compute_seconds = compute_before_ + event.compute_seconds;
}

void Tasks::on(const TaskWrote& event) {
  if (event.start != start_ || !running_) {
    return;
  }
  if (event.done) {
    report_.facts = event.facts;
    stop("the task is done");
  }
  ++adopting_;
  out_->effect(AdoptContent{event.run, event.start, event.path, event.done ? 0 : event.step});
}

void Tasks::on(const TaskDrew& event) {
  if (event.start == start_ && running_ && out_->linked()) {
    out_->send(TaskImages{run(), assignment_.task, event.step, event.png});
  }
}

std::optional<Error> Tasks::on(const TaskEnded& event, TimePoint now) {
  if (event.start != start_ || !running_) {
    return std::nullopt;
  }
  running_ = false;
  // Without images of its own an island can still train: the coordinator has others pack theirs.
  if (event.refused && !assignment_.task.starts_with("images/")) {
    return event.error;
  }
  const bool permanent = event.permanent || event.refused;
  ++crashes_;
  const RestartDecision decision = decide_restart(crashes_, 1, settings_->crashes, permanent, settings_->restart_delay, "a checkpoint");
  if (decision.restart) {
    out_->tell(run(), "warning", "trainer_crashed",
               "task " + assignment_.task + ": " + event.error.why + "; it is started again" +
                   (report_.checkpoint_step > 0 ? " from step " + std::to_string(report_.checkpoint_step) : ""));
    restart_at_ = now + decision.delay;
    return std::nullopt;
  }
  report_.state = "failed";
  report_.error = permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")");
  say();
  return std::nullopt;
}

void Tasks::on(const ContentHeld& event) {
  if (event.start == 0 && opened_ && !fetching_.contains(event.content.digest)) {
    return;  // it came as its fetch was given up, and is gone
  }
  adopting_ -= event.start != 0 && adopting_ > 0 ? 1U : 0U;
  held_[event.content.digest] = event.content.bytes;
  fetching_.erase(event.content.digest);
  if (report_.state == "fetching") {
    report_.error.reset();
  }
  report_.bytes_sent = event.bytes_sent;
  report_.bytes_received = event.bytes_received;
  if (event.start != 0 && event.start == start_) {
    if (event.step == 0) {
      report_.result = event.content;
      report_.state = "done";
    } else if (event.step > report_.checkpoint_step) {
      note_checkpoint(event);
    }
  }
  say();
}

// The one before is dropped when the coordinator's assignment no longer names it; one that it never named goes now.
void Tasks::note_checkpoint(const ContentHeld& event) {
  if (!report_.checkpoint.digest.empty() && !wanted_.contains(report_.checkpoint.digest)) {
    held_.erase(report_.checkpoint.digest);
    out_->effect(DropContent{event.run, report_.checkpoint.digest});
  }
  report_.checkpoint = event.content;
  report_.checkpoint_step = event.step;
  crashes_ = 0;
}

void Tasks::on(const ContentOpened&) {
  opened_ = true;
  say();
}

void Tasks::on(const ContentMissed& event, TimePoint now) {
  if (event.start == 0) {
    // Only what is being fetched: the engine may answer an order of before this island was given the run anew, whose folder is still read.
    if (fetching_.contains(event.digest)) {
      fetching_[event.digest] = now + kFetchAgain;
      if (report_.state == "fetching") {
        report_.error = event.error;
        say();
      }
    }
    return;
  }
  adopting_ -= adopting_ > 0 ? 1U : 0U;
  if (event.start == start_) {
    out_->tell(run(), "warning", "content_not_kept", "task " + assignment_.task + ": " + event.error.why);
    if (!running_ && report_.state == "running") {
      report_.state = "failed";  // it was the result
      report_.error = event.error;
      say();
    }
  }
}

void Tasks::say() {
  if (!out_->linked() || !opened_) {
    return;
  }
  report_.held.clear();
  for (const auto& [digest, bytes] : held_) {
    if (report_.held.size() < kMaxListItems) {
      report_.held.push_back(Content{digest, bytes, {}});
    }
  }
  out_->send(report_);
}

void Tasks::add_group_work(const IslandReport& group) {
  group_work_.compute_seconds += group.compute_seconds;
  group_work_.wait_seconds += group.wait_seconds;
  group_work_.bytes_sent += group.bytes_sent;
  group_work_.bytes_received += group.bytes_received;
}

IslandReport Tasks::island_report(const std::optional<IslandReport>& group) const {
  IslandReport value;
  value.run = run();
  value.state = report_.state == "running" ? "training" : report_.state == "fetching" ? "catching-up" : "waiting";
  value.reason = report_.task.empty() ? "no task at the moment"
                                      : "task " + report_.task +
                                            (report_.state == "failed" ? " failed"
                                             : report_.state == "done" ? " is done"
                                                                       : "");
  value.step = Step(report_.step);
  value.tokens_per_second = report_.images_per_second;
  value.training_loss = report_.loss;
  value.compute_seconds = report_.compute_seconds + group_work_.compute_seconds;
  value.wait_seconds = group_work_.wait_seconds;
  value.bytes_sent = report_.bytes_sent + group_work_.bytes_sent;
  value.bytes_received = report_.bytes_received + group_work_.bytes_received;
  if (group) {
    value.state = group->state;
    value.reason = "task " + report_.task + " with its group" + (group->reason.empty() ? "" : ": " + group->reason);
    value.step = group->step;
    value.tokens_per_second = group->tokens_per_second;
    value.compute_seconds += group->compute_seconds;
    value.wait_seconds += group->wait_seconds;
    value.training_loss = group->training_loss;
    value.bytes_sent += group->bytes_sent;
    value.bytes_received += group->bytes_received;
  }
  return value;
}

std::optional<TimePoint> Tasks::next_deadline() const {
  std::optional<TimePoint> next = restart_at_;
  for (const auto& [digest, again] : fetching_) {
    next = next ? std::min(*next, again) : again;
  }
  return next;
}

}  // namespace atl::agent
