// Runs of phases on a simulated island: tasks whose result is the chain of all their steps, so that a checker can tell from a digest
// whether a task was continued from what it should be, with each step made once. The results lie on the real engine's shelf.
#include <algorithm>

#include "agent/storage/content_shelf.hpp"
#include "tests/sim/cluster.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;

// What a task writes: the history of its steps, and, where it can be gone on from, how many they are and of which task.
Bytes file_of(const Digest& history, const std::string& task, std::uint64_t step) {
  Bytes bytes(std::as_bytes(std::span(history.bytes)).begin(), std::as_bytes(std::span(history.bytes)).end());
  if (step > 0) {
    append_le(bytes, step);
    const auto name = as_bytes(task);
    bytes.insert(bytes.end(), name.begin(), name.end());
  }
  return bytes;
}

Bytes bytes_at(const DiskPath& path) {
  const Result<std::unique_ptr<DiskFile>> file = path.open(OpenFor::reading);
  Bytes bytes(file ? static_cast<std::size_t>((*file)->size().value_or(0)) : 0);
  if (file) {
    bytes.resize((*file)->read(0, bytes).value_or(0));
  }
  return bytes;
}

}  // namespace

std::uint64_t steps_of_task(const RunSpec& spec, const std::string& task) {
  return task.starts_with("experts/") ? spec.training.steps
         : task == "router"           ? spec.diffusion.router_steps
         : task == "distill"          ? spec.diffusion.distill_steps
                                      : 2;
}

Digest task_before_steps(const std::string& task, const std::vector<Digest>& inputs, const IslandId& island) {
  Sha256 hash;
  // The images of an island are the same whichever part it is told to pack.
  const std::string what = task.starts_with("images/") ? "images of " + island.text : task;
  hash.update(std::as_bytes(std::span(what)));
  for (const Digest& input : inputs) {
    hash.update(input.bytes);
  }
  return hash.finish();
}

Digest task_after_step(const Digest& before, std::uint64_t step) {
  Sha256 hash;
  hash.update(before.bytes);
  hash.update(std::as_bytes(std::span(&step, 1)));
  return hash.finish();
}

Digest task_result(const Digest& history) { return sha256(file_of(history, "", 0)); }

Digest task_after_rounds(const Digest& before_steps, const Digest& digest, const Vector& trainer) {
  Sha256 hash;
  hash.update(before_steps.bytes);
  hash.update(digest.bytes);
  hash.update(std::as_bytes(std::span(trainer)));
  return hash.finish();
}

void IslandHost::on_task(Duration delay, std::function<void()> what) {
  cluster_.timeline().after(delay, [this, boot = process_->boot, what = std::move(what)] {
    if (process_ && process_->boot == boot) {
      what();
    }
  });
}

void IslandHost::start_task(const agent::StartTask& effect) {
  ++trainer_starts_;
  TaskInHand task{effect.run, effect.start, effect.task, 0, steps_of_task(effect.spec, effect.task), effect.spec.diffusion.save_every, {}};
  std::vector<Digest> inputs;
  for (const TaskInput& input : effect.inputs) {
    inputs.push_back(input.content.digest);
    if (!holds_content(effect.run, input.content.digest)) {
      cluster_.checkers().fail(name_ + " was asked to begin " + effect.task + " without the result of " + input.task);
    }
  }
  if (effect.task.starts_with("images/") && index_ < cluster_.scenario().without_images) {
    on_task(milliseconds(100), [this, effect] {
      feed(agent::TaskEnded{effect.run, effect.start, true, false,
                            Error{Code::unauthorized, "the run asks for a data set that the owner of this island has not mapped"}});
    });
    return;
  }
  task.history = task_before_steps(effect.task, inputs, id_);
  if (find_place(task, effect)) {
    process_->task = task;
    task_step();
  }
}

// Where it goes on: from what its group's trainer saved here last, or from what was saved of the task itself. False: not at all.
bool IslandHost::find_place(TaskInHand& task, const agent::StartTask& effect) const {
  if (effect.group_round > Round(0)) {
    const std::optional<TrainerState> saved = saved_trainer(effect.group, effect.group_round);
    if (!saved) {
      cluster_.checkers().fail(name_ + " was asked to go on with " + effect.task + " from rounds of which it does not hold the last");
      return false;
    }
    for (const agent::StoredCheckpoint& checkpoint : stored(effect.group)) {
      if (checkpoint.round == effect.group_round) {
        task.history = task_after_rounds(task.history, checkpoint.digest, saved->parameters);
      }
    }
    task.step = saved->step.value;
  } else if (!effect.resume.digest.empty()) {
    const Bytes bytes = bytes_at(content_path(runs() / effect.run.text, effect.resume.digest));
    ByteReader reader(bytes);
    const auto history = reader.read_bytes(task.history.bytes.size());
    const Result<std::uint64_t> step = reader.read<std::uint64_t>();
    if (!history || !step || !std::ranges::equal(reader.rest(), as_bytes(effect.task))) {
      cluster_.checkers().fail(name_ + " was asked to go on with " + effect.task + " from what it does not hold");
      return false;
    }
    std::ranges::copy(*history, std::as_writable_bytes(std::span(task.history.bytes)).begin());
    task.step = *step;
  }
  return true;
}

void IslandHost::stop_task() { process_->task.reset(); }

// The next step, in a while; the first after the trainer has started.
void IslandHost::task_step() {
  const Duration step_time = cluster_.scenario().step_time + cluster_.scenario().step_lag * static_cast<Duration::rep>(index_) +
                             cluster_.draw(Duration(0), milliseconds(40));
  on_task(step_time, [this, start = process_->task->start] {
    if (!process_->task || process_->task->start != start) {
      return;
    }
    TaskInHand& task = *process_->task;
    if (task.step < task.steps) {
      task.history = task_after_step(task.history, task.step++);
      ++steps_;
    }
    const bool done = task.step >= task.steps;
    const TaskInHand as_it_is = task;
    const auto same = [this, start, boot = process_->boot] {
      return process_ && process_->boot == boot && process_->task && process_->task->start == start;
    };
    feed(agent::TaskProgressed{as_it_is.run, start, as_it_is.step, as_it_is.steps, 0.5, 8.0 / atl::seconds(cluster_.scenario().step_time),
                               1.0});
    if ((done || (as_it_is.save_every > 0 && as_it_is.step % as_it_is.save_every == 0)) && same()) {
      write_task(as_it_is, done);
    }
    if (!done && same()) {
      task_step();
    }
  });
}

void IslandHost::write_task(const TaskInHand& task, bool done) {
  std::string name = task.task + "." + std::to_string(task.start) + "." + std::to_string(task.step);
  std::ranges::replace(name, '/', '-');
  const DiskPath path = runs() / task.run.text / "work" / name;
  Status written = path.folder().make_folders();
  if (written) {
    const Result<std::unique_ptr<DiskFile>> file = path.open(OpenFor::creating);
    written = file ? (*file)->write(0, file_of(task.history, task.task, done ? 0 : task.step)) : Status(file.error());
  }
  if (!written) {
    process_->task.reset();  // it says why, and ends
    feed(agent::TaskEnded{task.run, task.start, false, true, written.error()});
    return;
  }
  const std::string facts = task.task == "clustering" ? R"({"sizes": [40, 30, 20, 10, 10, 10]})" : "{}";
  feed(agent::TaskWrote{task.run, task.start, path.text(), task.step, done, facts});
}

bool IslandHost::crash_task() {
  if (!process_ || !process_->task) {
    return false;
  }
  const TaskInHand task = *std::exchange(process_->task, std::nullopt);
  feed(agent::TaskEnded{task.run, task.start, false, false, Error{Code::internal, "killed by signal 9"}});
  return true;
}

}  // namespace atl::sim
