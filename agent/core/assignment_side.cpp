// An island's part in a run of phases: its assignment is carried out, and how that stands is said.
//
// A Assignment is all that the island has to do, and an AssignmentReport all that it has done, so either may be lost or repeated. Content
// (results, and what tasks are continued from) is fetched by its digest from any island that has it; a task starts when its inputs are
// here.
#include <algorithm>
#include <limits>

#include "agent/core/core_state.hpp"
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

void Core::State::on_assignment(const Assignment& message) {
  if (leaving) {
    say_leave();
    return;
  }
  if (assignment && assignment->assignment.run == message.run && message.number <= assignment->assignment.number) {
    if (message.number == assignment->assignment.number) {
      say_assignment();
    }
    return;
  }
  if (!assignment || assignment->assignment.run != message.run) {
    Result<RunSpec> spec = run_spec_from_json(message.spec);
    if (!spec) {
      send(RunEnded{message.run, Round(0), Digest{}, with_context(spec.error(), "the run's settings")});
      return;
    }
    if (!(run && run->spec.work.run == message.run.text)) {
      close_run("the coordinator gave another run's assignment");
    }
    close_assignment("the coordinator gave another run's assignment");
    assignment.emplace();
    assignment->spec = std::move(*spec);
    assignment->report.run = message.run;
    assignment->report.state = "idle";
    assignment->report.loss = std::numeric_limits<double>::quiet_NaN();
    effect(OpenContent{message.run});
  }
  const std::string before = assignment->assignment.task;
  const bool same =
      message.task == before && message.group == assignment->assignment.group && message.group_round == assignment->assignment.group_round;
  assignment->assignment = message;
  assignment->report.number = message.number;
  assignment->wanted.clear();
  for (const Content& content : contents_of(message)) {
    assignment->wanted.insert(content.digest);
  }
  effect(AllowPeers{message.run, Epoch(0), message.members, assignment->readers});
  for (auto next = assignment->fetching.begin(); next != assignment->fetching.end();) {
    const auto here = next++;
    if (!assignment->wanted.contains(here->first)) {
      effect(DropContent{message.run, here->first});
      assignment->fetching.erase(here);
    }
  }
  // What is held goes only by its name: a coordinator that was started anew does not know what lies here, and it may be the last copy.
  std::vector<Content> drop = message.drop;
  if (ATOLL_PLANTED(drops_unnamed)) {
    for (const auto& [digest, bytes] : assignment->held) {
      drop.push_back(Content{digest, bytes, {}});
    }
  }
  // Nor does what this island has made meanwhile: a start of the task before may have made the same, of which nobody knew what it was for.
  const std::set<Digest> own = message.task == before
                                   ? std::set<Digest>{assignment->report.result.digest, assignment->report.checkpoint.digest}
                                   : std::set<Digest>{};
  for (const Content& content : drop) {
    if (!assignment->wanted.contains(content.digest) && !own.contains(content.digest) && assignment->held.erase(content.digest) > 0) {
      effect(DropContent{message.run, content.digest});
    }
  }
  if (!same) {
    end_task("the coordinator gave another task");
    assignment->start = 0;  // what the old one has written and is not adopted yet is none of the new one's
    assignment->crashes = 0;
    assignment->report.task = message.task;
    assignment->report.state = message.task.empty() ? "idle" : "fetching";
    assignment->report.result = Content{};
    assignment->report.checkpoint = Content{};
    assignment->report.checkpoint_step = 0;
    assignment->report.step = 0;
    assignment->report.steps = 0;
    assignment->report.loss = std::numeric_limits<double>::quiet_NaN();
    assignment->report.facts.clear();
    assignment->report.error.reset();
  }
  say_assignment();
}

void Core::State::drive_assignment() {
  if (!assignment || !assignment->opened) {
    return;
  }
  bool here = true;
  const std::vector<Content> wanted = contents_of(assignment->assignment);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Content& content = wanted[i];
    if (assignment->held.contains(content.digest)) {
      continue;
    }
    here = here && i < assignment->assignment.keep.size();  // what is only kept is not waited for
    const auto again = assignment->fetching.find(content.digest);
    if (again == assignment->fetching.end() || now >= again->second) {
      assignment->fetching[content.digest] = now + kFetchUnderWay;
      effect(FetchContent{assignment->assignment.run, content});
    }
  }
  if (here && assignment->report.state == "fetching") {
    if (assignment->assignment.group.empty() || (assignment->assignment.group_round > Round(0) && saved_by_group())) {
      begin_task();
    } else {
      // Its group's run assigns it its place; or its rounds are over, and others have what the trainer saved after the last.
      assignment->report.state = assignment->assignment.group_round == Round(0) ? "ready" : "without";
      say_assignment();
    }
  }
  if (assignment->restart_at && now >= *assignment->restart_at) {
    assignment->restart_at.reset();
    begin_task();
  }
}

// The round of its group, as the assignment says the last, after which its own trainer saved its state, if that lies here.
std::optional<Round> Core::State::saved_by_group() const {
  const auto held = stored.find(assignment->assignment.group);
  std::optional<Round> newest;
  for (const StoredCheckpoint& checkpoint : held == stored.end() ? std::vector<StoredCheckpoint>{} : held->second.checkpoints) {
    if (checkpoint.trainer_state && (checkpoint.round == assignment->assignment.group_round || ATOLL_PLANTED(other_round))) {
      newest = checkpoint.round;
    }
  }
  return newest;
}

// This island trains an expert with others at the moment.
bool Core::State::in_group() const { return run && assignment && run->spec.work.run == assignment->assignment.run.text; }

void Core::State::begin_task() {
  StartTask order;
  order.run = assignment->assignment.run;
  order.start = ++incarnations;
  order.spec = assignment->spec;
  order.task = assignment->assignment.task;
  order.inputs = assignment->assignment.inputs;
  order.group = assignment->assignment.group;
  order.group_round = saved_by_group().value_or(assignment->assignment.group_round);
  // After a crash its own newest checkpoint is at least as new as what the assignment names.
  order.resume = assignment->report.checkpoint.digest.empty() ? assignment->assignment.resume : assignment->report.checkpoint;
  assignment->start = order.start;
  assignment->running = true;
  assignment->compute_before = assignment->report.compute_seconds;
  assignment->report.state = "running";
  effect(std::move(order));
  say_assignment();
}

void Core::State::end_task(const std::string& why) {
  assignment->restart_at.reset();
  if (assignment->running) {
    assignment->running = false;
    effect(StopTask{assignment->assignment.run, why});
  }
}

void Core::State::on_task(const TaskProgressed& event) {
  if (event.start != assignment->start || !assignment->running) {
    return;
  }
  AssignmentReport& report = assignment->report;
  report.step = event.step;
  report.steps = event.steps;
  report.loss = event.loss;
  report.images_per_second = event.images_per_second;
  report.compute_seconds = assignment->compute_before + event.compute_seconds;
}

void Core::State::on_task(const TaskWrote& event) {
  if (event.start != assignment->start || !assignment->running) {
    return;
  }
  if (event.done) {
    assignment->report.facts = event.facts;
    end_task("the task is done");
  }
  effect(AdoptContent{event.run, event.start, event.path, event.done ? 0 : event.step});
}

void Core::State::on_task(const TaskEnded& event) {
  if (event.start != assignment->start || !assignment->running) {
    return;
  }
  assignment->running = false;
  // Without images of its own an island can still train: the coordinator has others pack theirs.
  if (event.refused && !assignment->assignment.task.starts_with("images/")) {
    const RunId id = assignment->assignment.run;
    close_assignment(event.error.why);
    send(RunEnded{id, Round(0), Digest{}, event.error});
    return;
  }
  const bool permanent = event.permanent || event.refused;
  ++assignment->crashes;
  const RestartDecision decision = decide_restart(assignment->crashes, settings.crashes, permanent, settings.restart_delay, "a checkpoint");
  if (decision.restart) {
    tell("warning", "trainer_crashed",
         "task " + assignment->assignment.task + ": " + event.error.why + "; it is started again" +
             (assignment->report.checkpoint_step > 0 ? " from step " + std::to_string(assignment->report.checkpoint_step) : ""));
    assignment->restart_at = now + decision.delay;
    return;
  }
  assignment->report.state = "failed";
  assignment->report.error = permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")");
  say_assignment();
}

void Core::State::on_task(const ContentHeld& event) {
  AssignmentReport& report = assignment->report;
  if (event.start == 0 && assignment->opened && !assignment->fetching.contains(event.content.digest)) {
    return;  // it came as its fetch was given up, and is gone
  }
  assignment->held[event.content.digest] = event.content.bytes;
  assignment->fetching.erase(event.content.digest);
  report.bytes_sent = event.bytes_sent;
  report.bytes_received = event.bytes_received;
  if (event.start != 0 && event.start == assignment->start) {
    if (event.step == 0) {
      report.result = event.content;
      report.state = "done";
    } else if (event.step > report.checkpoint_step) {
      // The one before is dropped when the coordinator's assignment no longer names it; one that it never named goes now.
      if (!report.checkpoint.digest.empty() && !assignment->wanted.contains(report.checkpoint.digest)) {
        assignment->held.erase(report.checkpoint.digest);
        effect(DropContent{event.run, report.checkpoint.digest});
      }
      report.checkpoint = event.content;
      report.checkpoint_step = event.step;
      assignment->crashes = 0;
    }
  }
  say_assignment();
}

void Core::State::on_task(const ContentOpened&) {
  assignment->opened = true;
  say_assignment();
}

void Core::State::on_task(const ContentMissed& event) {
  if (event.start == 0) {
    if (assignment->wanted.contains(event.digest) && !assignment->held.contains(event.digest)) {
      assignment->fetching[event.digest] = now + kFetchAgain;
    }
    return;
  }
  if (event.start == assignment->start) {
    tell("warning", "content_not_kept", "task " + assignment->assignment.task + ": " + event.error.why);
    if (!assignment->running && assignment->report.state == "running") {
      assignment->report.state = "failed";  // it was the result
      assignment->report.error = event.error;
      say_assignment();
    }
  }
}

void Core::State::say_assignment() {
  if (!welcomed || !assignment || !assignment->opened) {
    return;
  }
  assignment->report.held.clear();
  for (const auto& [digest, bytes] : assignment->held) {
    if (assignment->report.held.size() < kMaxListItems) {
      assignment->report.held.push_back(Content{digest, bytes, {}});
    }
  }
  send(assignment->report);
}

void Core::State::close_assignment(const std::string& why) {
  if (assignment) {
    end_task(why);
    stored[assignment->assignment.run].run = assignment->assignment.run;  // what lies on the disk stays, and may be served
    stored_readers[assignment->assignment.run] = std::move(assignment->readers);
    assignment.reset();
  }
}

IslandReport Core::State::assignment_report() const {
  const AssignmentReport& report = assignment->report;
  IslandReport value;
  value.run = report.run;
  value.state = report.state == "running" ? "training" : report.state == "fetching" ? "catching-up" : "waiting";
  value.reason = report.task.empty() ? "no task at the moment"
                                     : "task " + report.task +
                                           (report.state == "failed" ? " failed"
                                            : report.state == "done" ? " is done"
                                                                     : "");
  value.step = Step(report.step);
  value.tokens_per_second = report.images_per_second;
  value.compute_seconds = report.compute_seconds;
  value.training_loss = report.loss;
  value.bytes_sent = report.bytes_sent;
  value.bytes_received = report.bytes_received;
  value.agent_memory_bytes = gauges.agent_memory_bytes;
  value.trainer_memory_bytes = gauges.trainer_memory_bytes;
  value.compute_seconds += assignment->group_compute_seconds;
  value.wait_seconds += assignment->group_wait_seconds;
  value.bytes_sent += assignment->group_bytes_sent;
  value.bytes_received += assignment->group_bytes_received;
  if (in_group()) {
    const IslandReport group = this->report();
    value.state = group.state;
    value.reason = "task " + report.task + " with its group" + (group.reason.empty() ? "" : ": " + group.reason);
    value.step = group.step;
    value.tokens_per_second = group.tokens_per_second;
    value.compute_seconds += group.compute_seconds;
    value.wait_seconds += group.wait_seconds;
    value.training_loss = group.training_loss;
    value.bytes_sent += group.bytes_sent;
    value.bytes_received += group.bytes_received;
  }
  return value;
}

// What it did with its group counts in the run that it did it for.
void Core::State::note_group_work() {
  if (in_group()) {
    const IslandReport group = report();
    assignment->group_compute_seconds += group.compute_seconds;
    assignment->group_wait_seconds += group.wait_seconds;
    assignment->group_bytes_sent += group.bytes_sent;
    assignment->group_bytes_received += group.bytes_received;
  }
}

}  // namespace atl::agent
