// The pictures that the models of a run's tasks have made: kept as islands tell of them, and shown.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "coordinator/api/requests.hpp"

namespace atl::coordinator {

using nlohmann::json;

Status Requests::note_images(TimePoint now, const IslandId& island, const TaskImages& message) {
  const std::optional<RunView> run = core_.run(now, message.run);
  const std::string name = name_of(island);
  const bool its_own = run && std::ranges::any_of(run->tasks, [&](const TaskView& task) {
                         return task.task == message.task && task.island == name && task.state == TaskState::running;
                       });
  if (!its_own) {
    return {};  // said before it heard that the task is another's
  }
  if (const Status checked = check_picture(message.png); !checked) {
    return with_context(checked.error(), "island " + name + " sent for task " + message.task);
  }
  pictures_.note(message.run, message.task, TaskPicture{message.step, name, now, message.png});
  return {};
}

// Of all tasks without the pictures; of one with it.
Result<json> Requests::images(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_ASSIGN(const std::string wanted, arguments.text("task", ""));
  json list = json::array();
  for (const auto& [task, picture] : pictures_.of(run.id)) {
    if (!wanted.empty() && task != wanted) {
      continue;
    }
    list.push_back({{"task", task}, {"step", picture.step}, {"island", picture.island}, {"time_unix_ms", unix_ms(picture.at)}});
    if (!wanted.empty()) {
      list.back()["png_hex"] = to_hex(picture.png);
    }
  }
  if (!wanted.empty() && list.empty()) {
    return Error{Code::not_found, "no island has told of images of task '" + wanted.substr(0, 64) + "' of run " + run.name};
  }
  return json{{"run", run.id.text}, {"name", run.name}, {"images", std::move(list)}};
}

}  // namespace atl::coordinator
