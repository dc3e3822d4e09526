#include "tests/sim/ledger.hpp"

#include <type_traits>
#include <variant>

#include "tests/sim/trace.hpp"

namespace atl::sim {

void Ledger::apply(const std::vector<coordinator::Record>& records) {
  for (const coordinator::Record& record : records) {
    std::visit(
        [&](const auto& r) {
          using R = std::decay_t<decltype(r)>;
          if constexpr (std::is_same_v<R, coordinator::RunRecord>) {
            runs[r.id] = r;
          } else if constexpr (std::is_same_v<R, coordinator::MembershipRecord>) {
            memberships[{r.run, r.island}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::EpochRecord>) {
            epochs[r.run] = r;
          } else if constexpr (std::is_same_v<R, coordinator::IslandRecord>) {
            islands[r.id] = r;
          } else if constexpr (std::is_same_v<R, coordinator::RoundRecord>) {
            rounds[{r.run, r.lineage, r.round}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::PartRecord>) {
            parts[{r.run, r.part}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::StretchRecord>) {
            stretches.erase(stretches.lower_bound({r.run, r.part, r.from}), stretches.lower_bound({r.run, r.part + 1, 0}));
            stretches[{r.run, r.part, r.from}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::TaskRecord>) {
            tasks[{r.run, r.task}] = r;
          } else if constexpr (std::is_same_v<R, coordinator::DroppedRecord>) {
            dropped.try_emplace({r.run, r.lineage, r.island, r.round, r.fate}, r);
          } else if constexpr (std::is_same_v<R, coordinator::RemovedRecord>) {
            remove(r);
          } else if constexpr (std::is_same_v<R, coordinator::Superseded>) {
            superseded = r;
          } else if constexpr (std::is_same_v<R, coordinator::EventRecord>) {
            ++events[r.kind];
            if (r.kind == "result_disputed") {
              disputes.push_back(r.text);
            }
            trace(r);
          }
        },
        record);
  }
}

void Ledger::remove(const coordinator::RemovedRecord& run) {
  if (run.lifted) {
    removed.erase(run.run);
    return;
  }
  const auto of_run = [&](const auto& entry) { return entry.second.run == run.run; };
  runs.erase(run.run);
  std::erase_if(memberships, of_run);
  std::erase_if(epochs, of_run);
  std::erase_if(rounds, of_run);
  std::erase_if(parts, of_run);
  std::erase_if(stretches, of_run);
  std::erase_if(tasks, of_run);
  std::erase_if(dropped, of_run);
  removed[run.run] = run;
}

coordinator::Recovered Ledger::recovered() const {
  coordinator::Recovered recovered;
  for (const auto& [key, value] : removed) {
    recovered.removed.push_back(value);
  }
  for (const auto& [key, value] : runs) {
    recovered.runs.push_back(value);
  }
  for (const auto& [key, value] : memberships) {
    recovered.memberships.push_back(value);
  }
  for (const auto& [key, value] : epochs) {
    recovered.epochs.push_back(value);
  }
  for (const auto& [key, value] : islands) {
    recovered.islands.push_back(value);
  }
  for (const auto& [key, value] : parts) {
    recovered.parts.push_back(value);
  }
  for (const auto& [key, value] : stretches) {
    recovered.stretches.push_back(value);
  }
  for (const auto& [key, value] : tasks) {
    recovered.tasks.push_back(value);
  }
  std::map<RunId, std::map<std::uint32_t, Round>> bases;
  std::map<std::pair<RunId, Round>, coordinator::RoundRecord> newest;
  for (const auto& [key, value] : rounds) {
    if (value.committed && value.lineage > 0) {
      bases[value.run].emplace(value.lineage, value.round);
    }
  }
  for (const auto& [key, value] : rounds) {
    const std::uint32_t lineage = runs.at(value.run).lineage;
    const bool earlier = value.lineage < lineage && value.committed && value.checkpoint && runs.at(value.run).initialised &&
                         !coordinator::is_void(value.lineage, value.round, bases[value.run]);
    if (value.lineage == lineage || earlier) {
      newest[{value.run, value.round}] = value;
    }
  }
  for (const auto& [key, value] : newest) {
    recovered.rounds.push_back(value);
  }
  return recovered;
}

}  // namespace atl::sim
