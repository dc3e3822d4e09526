// Runs of phases on a simulated island: a shelf of content by digest, and tasks whose result is the chain of all their steps, so that a
// checker can tell from a digest whether a task was continued from what it should be, with each step made once.
#include <algorithm>

#include "tests/sim/cluster.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::sim {
namespace {

using std::chrono::milliseconds;
constexpr std::uint64_t kBytes = 100;

Error full_disk() { return Error{Code::io, "no space left on device"}; }

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

Digest task_after_rounds(const Digest& before_steps, const Digest& digest, const Vector& trainer) {
  Sha256 hash;
  hash.update(before_steps.bytes);
  hash.update(digest.bytes);
  hash.update(std::as_bytes(std::span(trainer)));
  return hash.finish();
}

template <typename F>
void IslandHost::on_shelf(Duration delay, F what) {
  cluster_.timeline().after(delay, [this, boot = process_->boot, what] {
    if (process_ && process_->boot == boot) {
      what();
    }
  });
}

void IslandHost::open_content(const agent::OpenContent& effect) {
  on_shelf(cluster_.draw(milliseconds(1), milliseconds(200)), [this, effect, boot = process_->boot] {
    const std::map<Digest, ShelfItem> held = shelf_[effect.run];
    for (const auto& [digest, item] : held) {
      feed(agent::ContentHeld{effect.run, Content{digest, kBytes, {}}});
      if (!process_ || process_->boot != boot) {
        return;
      }
    }
    feed(agent::ContentOpened{effect.run});
  });
}

void IslandHost::fetch_content(const agent::FetchContent& effect) {
  process_->fetches.insert(effect.content.digest);
  on_shelf(cluster_.draw(milliseconds(50), milliseconds(2000)), [this, effect] {
    const Digest& digest = effect.content.digest;
    if (process_->fetches.erase(digest) == 0) {
      return;
    }
    for (const IslandId& peer : effect.content.sources) {
      IslandHost* source = cluster_.find(peer);
      const bool there = source != nullptr && source != this && source->process_ && source->shelf_[effect.run].contains(digest) &&
                         cluster_.reachable(id_.text, peer.text) && cluster_.reachable(peer.text, id_.text);
      if (there && cluster_.timeline().now() >= disk_full_until_) {
        shelf_[effect.run][digest] = source->shelf_[effect.run].at(digest);
      }
    }
    if (shelf_[effect.run].contains(digest)) {
      feed(agent::ContentHeld{effect.run, Content{digest, kBytes, {}}});
    } else {
      feed(agent::ContentMissed{effect.run, digest, 0, Error{Code::unavailable, "no source has it"}});
    }
  });
}

void IslandHost::adopt_content(const agent::AdoptContent& effect) {
  on_shelf(cluster_.draw(milliseconds(10), milliseconds(300)), [this, effect] {
    const auto written = process_->written.find(effect.path);
    if (written == process_->written.end() || cluster_.timeline().now() < disk_full_until_) {
      feed(agent::ContentMissed{effect.run, {}, effect.start, full_disk()});
      return;
    }
    const ShelfItem item = written->second;
    shelf_[effect.run][item.history] = item;
    process_->written.erase(written);
    feed(agent::ContentHeld{effect.run, Content{item.history, kBytes, {}}, effect.start, effect.step});
  });
}

void IslandHost::drop_content(const agent::DropContent& effect) {
  process_->fetches.erase(effect.digest);
  if (shelf_[effect.run].erase(effect.digest) == 0) {
    return;
  }
  for (std::size_t i = 0; i < cluster_.islands(); ++i) {
    if (cluster_.host(i).shelf_[effect.run].contains(effect.digest)) {
      return;
    }
  }
  cluster_.checkers().last_copy_dropped(id_, effect.digest);
}

void IslandHost::start_task(const agent::StartTask& effect) {
  ++trainer_starts_;
  TaskInHand task{effect.run, effect.start, effect.task, 0, steps_of_task(effect.spec, effect.task), effect.spec.diffusion.save_every, {}};
  std::vector<Digest> inputs;
  for (const TaskInput& input : effect.inputs) {
    inputs.push_back(input.content.digest);
    if (!shelf_[effect.run].contains(input.content.digest)) {
      cluster_.checkers().fail(id_.text + " was asked to begin " + effect.task + " without the result of " + input.task);
    }
  }
  if (effect.task.starts_with("images/") && index_ < cluster_.scenario().without_images) {
    on_shelf(milliseconds(100), [this, effect] {
      feed(agent::TaskEnded{effect.run, effect.start, true, false,
                            Error{Code::unauthorized, "the run asks for a data set that the owner of this island has not mapped"}});
    });
    return;
  }
  task.history = task_before_steps(effect.task, inputs, id_);
  if (effect.group_round > Round(0)) {
    const std::vector<DiskCheckpoint>& saved = disk_[effect.group];
    const auto last = std::ranges::find_if(saved, [&](const DiskCheckpoint& c) { return c.meta.round == effect.group_round && c.trainer; });
    if (last == saved.end()) {
      cluster_.checkers().fail(id_.text + " was asked to go on with " + effect.task + " from rounds of which it does not hold the last");
      return;
    }
    task.step = last->trainer->step.value;
    task.history = task_after_rounds(task.history, last->meta.digest, last->trainer->parameters);
  } else if (!effect.resume.digest.empty()) {
    const auto held = shelf_[effect.run].find(effect.resume.digest);
    if (held == shelf_[effect.run].end() || held->second.task != effect.task) {
      cluster_.checkers().fail(id_.text + " was asked to go on with " + effect.task + " from what it does not hold");
      return;
    }
    task.step = held->second.step;
    task.history = held->second.history;
  }
  process_->task = task;
  task_step();
}

void IslandHost::stop_task() { process_->task.reset(); }

// The next step, in a while; the first after the trainer has started.
void IslandHost::task_step() {
  const Duration step_time = cluster_.scenario().step_time + cluster_.scenario().step_lag * static_cast<Duration::rep>(index_) +
                             cluster_.draw(Duration(0), milliseconds(40));
  on_shelf(step_time, [this, start = process_->task->start] {
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
    const std::string path = task.task + "." + std::to_string(task.start) + "." + std::to_string(task.step);
    const bool save = !done && task.save_every > 0 && task.step % task.save_every == 0;
    if (done || save) {
      process_->written[path] = ShelfItem{task.task, task.step, task.history};
    }
    const auto same = [this, start, boot = process_->boot] {
      return process_ && process_->boot == boot && process_->task && process_->task->start == start;
    };
    feed(agent::TaskProgressed{as_it_is.run, start, as_it_is.step, as_it_is.steps, 0.5, 8.0 / atl::seconds(cluster_.scenario().step_time),
                               1.0});
    if ((done || save) && same()) {
      const std::string facts = as_it_is.task == "clustering" ? R"({"sizes": [40, 30, 20, 10, 10, 10]})" : "{}";
      feed(agent::TaskWrote{as_it_is.run, start, path, as_it_is.step, done, facts});
    }
    if (!done && same()) {
      task_step();
    }
  });
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
