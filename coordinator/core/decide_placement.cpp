#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "coordinator/core/phases.hpp"

namespace atl::coordinator {

std::vector<TaskPlan> tasks_of(const RunSpec& spec) {
  std::vector<TaskPlan> tasks;
  if (spec.strategy.group != Group::expert) {
    return tasks;
  }
  const bool several = spec.diffusion.experts > 1;
  const bool by_features = several && spec.diffusion.clusters_by == "features";
  std::vector<std::string> images;  // none where every island has the whole data set
  for (std::uint32_t p = 0; p < spec.data.spread; ++p) {
    images.push_back("images/" + std::to_string(p));
    tasks.push_back({images.back(), "images", {}});
  }
  std::vector<std::string> features;
  for (std::uint32_t p = 0; by_features && p < std::max(spec.data.spread, 1U); ++p) {
    features.push_back(images.empty() ? "features" : "features/" + std::to_string(p));
    tasks.push_back({features.back(), "features", images.empty() ? images : std::vector<std::string>{images[p]}});
  }
  tasks.push_back({"clustering", "clustering", by_features ? features : images});
  std::vector<std::string> material = {"clustering"};  // of all that trains or measures
  material.insert(material.end(), images.begin(), images.end());
  TaskPlan last{"assemble", "assemble", material};
  TaskPlan dense{"distill", "distillation", material};
  for (std::uint32_t k = 0; k < spec.diffusion.experts; ++k) {
    tasks.push_back({"experts/" + std::to_string(k), "experts", material});
    last.needs.push_back(tasks.back().task);
    dense.needs.push_back(tasks.back().task);
  }
  if (several) {
    tasks.push_back({"router", "router", material});
    last.needs.emplace_back("router");
  }
  if (several && spec.diffusion.distill_steps > 0) {
    last.needs.push_back(dense.task);
    tasks.push_back(std::move(dense));
  }
  tasks.push_back(std::move(last));
  return tasks;
}

std::vector<std::string> phases_of(const RunSpec& spec) {
  std::vector<std::string> phases;
  for (const TaskPlan& task : tasks_of(spec)) {
    if (phases.empty() || phases.back() != task.phase) {
      phases.push_back(task.phase);
    }
  }
  return phases.empty() ? std::vector<std::string>{"train"} : phases;
}

std::vector<Placement> decide_placement(const std::vector<WaitingTask>& tasks, const std::vector<FreeIsland>& islands) {
  std::vector<std::size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return tasks[a].size > tasks[b].size; });
  std::vector<FreeIsland> free = islands;
  std::ranges::stable_sort(free, [](const FreeIsland& a, const FreeIsland& b) { return a.speed > b.speed; });
  std::vector<Placement> placements;
  for (const std::size_t i : order) {
    const auto is_among = [](const std::vector<IslandId>& islands_of, const FreeIsland& island) {
      return std::ranges::find(islands_of, island.island) != islands_of.end();
    };
    const auto can = [&](const FreeIsland& island) { return !is_among(tasks[i].not_on, island); };
    auto chosen = std::ranges::find_if(free, [&](const FreeIsland& island) { return can(island) && is_among(tasks[i].has_state, island); });
    if (chosen == free.end()) {
      chosen = std::ranges::find_if(free, can);
    }
    if (chosen != free.end()) {
      placements.push_back({tasks[i].task, chosen->island});
      free.erase(chosen);
    }
  }
  return placements;
}

std::vector<std::vector<IslandId>> decide_groups(const std::vector<BeginningExpert>& experts, const std::vector<FreeIsland>& left,
                                                 std::uint32_t batch) {
  std::vector<FreeIsland> free = left;
  std::ranges::stable_sort(free, [](const FreeIsland& a, const FreeIsland& b) { return a.speed > b.speed; });
  std::vector<std::size_t> order(experts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return experts[a].size > experts[b].size; });
  std::vector<std::vector<IslandId>> groups(experts.size());
  const auto has_room = [&](std::size_t i) {
    return experts[i].size == 0 || experts[i].size / std::max(batch, 1U) >= groups[i].size() + 2;
  };
  for (std::size_t next = 0; next < free.size();) {
    const std::size_t before = next;
    for (const std::size_t i : order) {
      if (next < free.size() && has_room(i)) {
        groups[i].push_back(free[next++].island);
      }
    }
    if (next == before) {
      break;
    }
  }
  return groups;
}

std::vector<std::uint64_t> cluster_sizes(const std::string& facts) {
  const nlohmann::json object = nlohmann::json::parse(facts, nullptr, false);
  std::vector<std::uint64_t> sizes;
  if (const auto found = object.is_object() ? object.find("sizes") : object.end();
      object.is_object() && found != object.end() && found->is_array()) {
    for (const nlohmann::json& size : *found) {
      sizes.push_back(size.is_number_unsigned() ? size.get<std::uint64_t>() : 0);
    }
  }
  return sizes;
}

Wait decide_phases_wait(const PhasesInput& input) {
  Wait wait = input.lacks;
  if (!input.working.empty()) {
    const std::string text =
        std::to_string(input.done) + " of " + std::to_string(input.tasks) + " tasks are done; " + list_of(input.working);
    wait.text = wait.text.empty() ? text : text + "; " + wait.text;
  } else if (wait.text.empty()) {
    wait.text = "waits for islands: " + std::to_string(input.members) + " of at least " + std::to_string(input.min);
  }
  return wait;
}

}  // namespace atl::coordinator
