// An island's part in a run of phases: its duty is carried out, and how that stands is said.
//
// A Duty is all that the island has to do, and a DutyReport all that it has done, so either may be lost or repeated. Content (results, and what
// tasks are continued from) is fetched by its digest from any island that has it; a task starts when its inputs are here.
#include <algorithm>
#include <limits>

#include "agent/core_state.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {
namespace {

constexpr Duration kFetchAgain = std::chrono::seconds(2);
constexpr Duration kFetchUnderWay = std::chrono::hours(24);  // the engine answers in the end

std::vector<Content> contents_of(const Duty& duty) {
  std::vector<Content> all = duty.keep;
  for (const TaskInput& input : duty.inputs) {
    all.push_back(input.content);
  }
  if (!duty.resume.digest.empty()) {
    all.push_back(duty.resume);
  }
  return all;
}

}  // namespace

void Core::State::on_duty(const Duty& message) {
  if (leaving) {
    say_leave();
    return;
  }
  if (duty && duty->duty.run == message.run && message.number <= duty->duty.number) {
    if (message.number == duty->duty.number) {
      say_duty();
    }
    return;
  }
  if (!duty || duty->duty.run != message.run) {
    Result<RunSpec> spec = run_spec_from_json(message.spec);
    if (!spec) {
      send(RunEnded{message.run, Round(0), Digest{}, with_context(spec.error(), "the run's settings")});
      return;
    }
    if (!(run && run->spec.work.run == message.run.text)) {
      close_run("the coordinator gave another run's duty");
    }
    close_duty("the coordinator gave another run's duty");
    duty.emplace();
    duty->spec = std::move(*spec);
    duty->report.run = message.run;
    duty->report.state = "idle";
    duty->report.loss = std::numeric_limits<double>::quiet_NaN();
    effect(OpenContent{message.run});
  }
  const std::string before = duty->duty.task;
  const bool same = message.task == before && message.group == duty->duty.group && message.group_round == duty->duty.group_round;
  duty->duty = message;
  duty->report.number = message.number;
  duty->wanted.clear();
  for (const Content& content : contents_of(message)) {
    duty->wanted.insert(content.digest);
  }
  effect(AllowPeers{message.run, Epoch(0), message.members, duty->readers});
  for (auto next = duty->fetching.begin(); next != duty->fetching.end();) {
    const auto here = next++;
    if (!duty->wanted.contains(here->first)) {
      effect(DropContent{message.run, here->first});
      duty->fetching.erase(here);
    }
  }
  // What is held goes only by its name: a coordinator that was started anew does not know what lies here, and it may be the last copy.
  std::vector<Content> drop = message.drop;
  if (ATOLL_PLANTED(drops_unnamed)) {
    for (const auto& [digest, bytes] : duty->held) {
      drop.push_back(Content{digest, bytes, {}});
    }
  }
  // Nor does what this island has made meanwhile: a start of the task before may have made the same, of which nobody knew what it was for.
  const std::set<Digest> own = message.task == before ? std::set<Digest>{duty->report.result.digest, duty->report.checkpoint.digest} : std::set<Digest>{};
  for (const Content& content : drop) {
    if (!duty->wanted.contains(content.digest) && !own.contains(content.digest) && duty->held.erase(content.digest) > 0) {
      effect(DropContent{message.run, content.digest});
    }
  }
  if (!same) {
    end_task("the coordinator gave another task");
    duty->start = 0;  // what the old one has written and is not adopted yet is none of the new one's
    duty->crashes = 0;
    duty->report.task = message.task;
    duty->report.state = message.task.empty() ? "idle" : "fetching";
    duty->report.result = Content{};
    duty->report.checkpoint = Content{};
    duty->report.checkpoint_step = 0;
    duty->report.step = 0;
    duty->report.steps = 0;
    duty->report.loss = std::numeric_limits<double>::quiet_NaN();
    duty->report.facts.clear();
    duty->report.error.reset();
  }
  say_duty();
}

void Core::State::drive_duty() {
  if (!duty || !duty->opened) {
    return;
  }
  bool here = true;
  const std::vector<Content> wanted = contents_of(duty->duty);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Content& content = wanted[i];
    if (duty->held.contains(content.digest)) {
      continue;
    }
    here = here && i < duty->duty.keep.size();  // what is only kept is not waited for
    const auto again = duty->fetching.find(content.digest);
    if (again == duty->fetching.end() || now >= again->second) {
      duty->fetching[content.digest] = now + kFetchUnderWay;
      effect(FetchContent{duty->duty.run, content});
    }
  }
  if (here && duty->report.state == "fetching") {
    if (duty->duty.group.empty() || (duty->duty.group_round > Round(0) && saved_by_group())) {
      begin_task();
    } else {
      // Its group's run assigns it its place; or its rounds are over, and others have what the trainer saved after the last.
      duty->report.state = duty->duty.group_round == Round(0) ? "ready" : "without";
      say_duty();
    }
  }
  if (duty->restart_at && now >= *duty->restart_at) {
    duty->restart_at.reset();
    begin_task();
  }
}

// The round of its group, as the duty says the last, after which its own trainer saved its state, if that lies here.
std::optional<Round> Core::State::saved_by_group() const {
  const auto held = stored.find(duty->duty.group);
  std::optional<Round> newest;
  for (const StoredCheckpoint& checkpoint : held == stored.end() ? std::vector<StoredCheckpoint>{} : held->second.checkpoints) {
    if (checkpoint.trainer_state && (checkpoint.round == duty->duty.group_round || ATOLL_PLANTED(other_round))) {
      newest = checkpoint.round;
    }
  }
  return newest;
}

// This island trains an expert with others at the moment.
bool Core::State::in_group() const { return run && duty && run->spec.work.run == duty->duty.run.text; }

void Core::State::begin_task() {
  StartTask order;
  order.run = duty->duty.run;
  order.start = ++incarnations;
  order.spec = duty->spec;
  order.task = duty->duty.task;
  order.inputs = duty->duty.inputs;
  order.group = duty->duty.group;
  order.group_round = saved_by_group().value_or(duty->duty.group_round);
  // After a crash its own newest checkpoint is at least as new as what the duty names.
  order.resume = duty->report.checkpoint.digest.empty() ? duty->duty.resume : duty->report.checkpoint;
  duty->start = order.start;
  duty->running = true;
  duty->compute_before = duty->report.compute_seconds;
  duty->report.state = "running";
  effect(std::move(order));
  say_duty();
}

void Core::State::end_task(const std::string& why) {
  duty->restart_at.reset();
  if (duty->running) {
    duty->running = false;
    effect(StopTask{duty->duty.run, why});
  }
}

void Core::State::on_task(const TaskProgressed& event) {
  if (event.start != duty->start || !duty->running) {
    return;
  }
  DutyReport& report = duty->report;
  report.step = event.step;
  report.steps = event.steps;
  report.loss = event.loss;
  report.images_per_second = event.images_per_second;
  report.compute_seconds = duty->compute_before + event.compute_seconds;
}

void Core::State::on_task(const TaskWrote& event) {
  if (event.start != duty->start || !duty->running) {
    return;
  }
  if (event.done) {
    duty->report.facts = event.facts;
    end_task("the task is done");
  }
  effect(AdoptContent{event.run, event.start, event.path, event.done ? 0 : event.step});
}

void Core::State::on_task(const TaskEnded& event) {
  if (event.start != duty->start || !duty->running) {
    return;
  }
  duty->running = false;
  // Without images of its own an island can still train: the coordinator has others pack theirs.
  if (event.refused && !duty->duty.task.starts_with("images/")) {
    const RunId id = duty->duty.run;
    close_duty(event.error.why);
    send(RunEnded{id, Round(0), Digest{}, event.error});
    return;
  }
  const bool permanent = event.permanent || event.refused;
  ++duty->crashes;
  const RestartDecision decision = decide_restart(duty->crashes, settings.crashes, permanent, settings.restart_delay, "a checkpoint");
  if (decision.restart) {
    tell("warning", "trainer_crashed", "task " + duty->duty.task + ": " + event.error.why + "; it is started again" +
         (duty->report.checkpoint_step > 0 ? " from step " + std::to_string(duty->report.checkpoint_step) : ""));
    duty->restart_at = now + decision.delay;
    return;
  }
  duty->report.state = "failed";
  duty->report.error = permanent ? event.error : with_context(event.error, "the trainer keeps failing (" + decision.why + ")");
  say_duty();
}

void Core::State::on_task(const ContentHeld& event) {
  DutyReport& report = duty->report;
  if (event.start == 0 && duty->opened && !duty->fetching.contains(event.content.digest)) {
    return;  // it came as its fetch was given up, and is gone
  }
  duty->held[event.content.digest] = event.content.bytes;
  duty->fetching.erase(event.content.digest);
  report.bytes_sent = event.bytes_sent;
  report.bytes_received = event.bytes_received;
  if (event.start != 0 && event.start == duty->start) {
    if (event.step == 0) {
      report.result = event.content;
      report.state = "done";
    } else if (event.step > report.checkpoint_step) {
      // The one before is dropped when the coordinator's duty no longer names it; one that it never named goes now.
      if (!report.checkpoint.digest.empty() && !duty->wanted.contains(report.checkpoint.digest)) {
        duty->held.erase(report.checkpoint.digest);
        effect(DropContent{event.run, report.checkpoint.digest});
      }
      report.checkpoint = event.content;
      report.checkpoint_step = event.step;
      duty->crashes = 0;
    }
  }
  say_duty();
}

void Core::State::on_task(const ContentOpened&) {
  duty->opened = true;
  say_duty();
}

void Core::State::on_task(const ContentMissed& event) {
  if (event.start == 0) {
    if (duty->wanted.contains(event.digest) && !duty->held.contains(event.digest)) {
      duty->fetching[event.digest] = now + kFetchAgain;
    }
    return;
  }
  if (event.start == duty->start) {
    tell("warning", "content_not_kept", "task " + duty->duty.task + ": " + event.error.why);
    if (!duty->running && duty->report.state == "running") {
      duty->report.state = "failed";  // it was the result
      duty->report.error = event.error;
      say_duty();
    }
  }
}

void Core::State::say_duty() {
  if (!welcomed || !duty || !duty->opened) {
    return;
  }
  duty->report.held.clear();
  for (const auto& [digest, bytes] : duty->held) {
    if (duty->report.held.size() < kMaxListItems) {
      duty->report.held.push_back(Content{digest, bytes, {}});
    }
  }
  send(duty->report);
}

void Core::State::close_duty(const std::string& why) {
  if (duty) {
    end_task(why);
    stored[duty->duty.run].run = duty->duty.run;  // what lies on the disk stays, and may be served
    stored_readers[duty->duty.run] = std::move(duty->readers);
    duty.reset();
  }
}

IslandReport Core::State::duty_report() const {
  const DutyReport& report = duty->report;
  IslandReport value;
  value.run = report.run;
  value.state = report.state == "running" ? "training" : report.state == "fetching" ? "catching-up" : "waiting";
  value.reason = report.task.empty() ? "no task at the moment" : "task " + report.task + (report.state == "failed" ? " failed" : report.state == "done" ? " is done" : "");
  value.step = Step(report.step);
  value.tokens_per_second = report.images_per_second;
  value.compute_seconds = report.compute_seconds;
  value.training_loss = report.loss;
  value.bytes_sent = report.bytes_sent;
  value.bytes_received = report.bytes_received;
  value.agent_memory_bytes = gauges.agent_memory_bytes;
  value.trainer_memory_bytes = gauges.trainer_memory_bytes;
  value.compute_seconds += duty->group_compute_seconds;
  value.wait_seconds += duty->group_wait_seconds;
  value.bytes_sent += duty->group_bytes_sent;
  value.bytes_received += duty->group_bytes_received;
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
    duty->group_compute_seconds += group.compute_seconds;
    duty->group_wait_seconds += group.wait_seconds;
    duty->group_bytes_sent += group.bytes_sent;
    duty->group_bytes_received += group.bytes_received;
  }
}

}  // namespace atl::agent
