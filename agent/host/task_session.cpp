#include "agent/host/task_session.hpp"

#include <algorithm>
#include <limits>
#include <system_error>

#include "agent/engine/built_in_model.hpp"
#include "agent/host/trainer_command.hpp"
#include "agent/storage/checkpoint.hpp"
#include "agent/storage/content_shelf.hpp"
#include "agent/storage/durable_file.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace fs = std::filesystem;
namespace {

// From the `stop` message to SIGTERM.

island_link::Task message_of(const StartTask& order, const std::vector<fs::path>& files, const SessionSettings& settings,
                             const DiskPath& work) {
  const DiskPath folder = settings.runs / order.run.text;
  island_link::Task task;
  task.run = order.run.text;
  task.island = settings.island;
  task.task = order.task;
  task.seed = order.spec.seed;
  task.model = order.spec.model;
  task.data.format = order.spec.data.format;
  task.data.validation_fraction = order.spec.data.validation_fraction;
  task.data.parts = std::max(order.spec.data.spread, 1U);
  for (const fs::path& file : files) {
    task.data.files.push_back(file.string());
  }
  task.training = order.spec.training;
  task.diffusion = order.spec.diffusion;
  for (const TaskInput& input : order.inputs) {
    task.inputs.push_back(
        {input.task, content_path(folder, input.content.digest).text(), to_hex(input.content.digest), input.content.bytes});
  }
  task.output = (work / "result").text();
  task.checkpoint = (work / "checkpoint").text();
  if (!order.resume.digest.empty()) {
    task.resume = content_path(folder, order.resume.digest).text();
  }
  if (order.group_round > Round(0)) {
    task.resume = (settings.runs / order.group.text / "checkpoints" / std::to_string(order.group_round.value) / kTrainerFolder /
                   "trainer.safetensors")
                      .text();
  }
  return task;
}

}  // namespace

TaskSession::TaskSession(StartTask order, island_link::Task task, island_link::AgentEnd link, TrainerHost host)
    : order_(std::move(order)), task_(std::move(task)), link_(std::move(link)), host_(std::move(host)) {}

Result<std::unique_ptr<TaskSession>> TaskSession::start(const StartTask& order, const std::vector<fs::path>& files,
                                                        const SessionSettings& settings, TimePoint now) {
  const std::string path = (settings.link_folder / ("task-" + std::to_string(order.start))).string();
  const DiskPath work = settings.runs / order.run.text / "work";
  std::error_code ignored;
  fs::remove(path, ignored);
  ATOLL_TRY(work.remove());  // of an earlier task
  ATOLL_TRY(work.make_folders());
  ATOLL_ASSIGN(island_link::AgentEnd link, island_link::AgentEnd::bind(path));
  ATOLL_ASSIGN(TrainerCommand command, trainer_command(settings, order.run, order.spec, path));
  ATOLL_ASSIGN(TrainerHost host, TrainerHost::start(std::move(command), now));
  host.expect_progress(true, now);
  std::unique_ptr<TaskSession> session(new TaskSession(order, message_of(order, files, settings, work), std::move(link), std::move(host)));
  session->island_ = settings.island;
  session->picture_ = work / "checkpoint.png";
  return session;
}

std::vector<int> TaskSession::watch_fds() const {
  std::vector<int> fds = host_.watch_fds();
  fds.push_back(link_.fd());
  return fds;
}

TimePoint TaskSession::next_check() const {
  return stopping_ ? std::min(host_.next_check(), *stopping_ + kStopPatience) : host_.next_check();
}

std::vector<Event> TaskSession::pump(TimePoint now) {
  std::vector<Event> out;
  if (ended_) {
    return out;
  }
  read_link(now, out);
  if (stopping_ && now >= *stopping_ + kStopPatience) {
    host_.stop(now);
  }
  if (const std::optional<TrainerExit> exit = host_.pump(now)) {
    read_link(now, out);  // what it said last
    ended_ = true;
    if (!stopping_) {
      const std::string why = failure_ ? *failure_ : "the trainer " + exit->why + (exit->clean ? " though nobody asked it to" : "");
      out.push_back(TaskEnded{order_.run, order_.start, false, failure_.has_value(), Error{Code::unavailable, why}});
    }
  }
  return out;
}

void TaskSession::read_link(TimePoint now, std::vector<Event>& out) {
  while (true) {
    const Result<std::optional<island_link::TrainerMessage>> message = link_.receive();
    if (!message) {
      host_.kill("broke the island link's protocol: " + message.error().why);
      return;
    }
    if (!*message) {
      return;
    }
    host_.note_progress(now);
    if (!stopping_) {
      hear(**message, now, out);
    }
  }
}

void TaskSession::hear(const island_link::TrainerMessage& message, TimePoint now, std::vector<Event>& out) {
  if (const auto* hello = std::get_if<island_link::Hello>(&message)) {
    if (hello->protocol != island_link::kProtocol) {
      failure_ = "the trainer speaks version " + std::to_string(hello->protocol) + " of the island link, this agent version " +
                 std::to_string(island_link::kProtocol);
      host_.kill("speaks another version of the island link");
    } else if (const Status sent = link_.send(task_); !sent) {
      host_.kill(sent.error().why);
    } else {
      log_kernels(island_, order_.run, *hello);
    }
  } else if (const auto* progress = std::get_if<island_link::TaskProgress>(&message)) {
    out.push_back(TaskProgressed{order_.run, order_.start, progress->step, progress->steps,
                                 progress->loss.value_or(std::numeric_limits<double>::quiet_NaN()), progress->images_per_second,
                                 progress->compute_seconds});
  } else if (const auto* saved = std::get_if<island_link::TaskSaved>(&message)) {
    out.push_back(TaskWrote{order_.run, order_.start, saved->path, saved->step, false, {}});
  } else if (const auto* drew = std::get_if<island_link::TaskDrew>(&message)) {
    if (Result<Bytes> png = read_file(picture_, kMaxPictureBytes)) {
      out.push_back(TaskDrew{order_.run, order_.start, drew->step, *std::move(png)});
    }
  } else if (const auto* done = std::get_if<island_link::TaskDone>(&message)) {
    out.push_back(TaskWrote{order_.run, order_.start, task_.output, 0, true, done->facts});
    host_.expect_progress(false, now);
  } else if (const auto* failed = std::get_if<island_link::Failed>(&message)) {
    failure_ = failed->why;
  }
}

void TaskSession::stop(const std::string& why, TimePoint now) {
  if (stopping_ || ended_) {
    return;
  }
  stopping_ = now;
  if (!link_.send(island_link::Stop{why})) {
    host_.stop(now);
  }
}

}  // namespace atl::agent
