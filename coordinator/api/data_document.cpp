// The document of `atoll data`: how far each part of a run's data is, who has it, and whether what all rounds counted adds up.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "coordinator/api/data_shares.hpp"
#include "coordinator/api/document_values.hpp"
#include "coordinator/api/requests.hpp"
#include "coordinator/core/phases.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "strategies/specification/model_kind.hpp"
#include "strategies/specification/run_spec.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

json passes(std::uint64_t position, std::uint64_t of_a_pass) {
  return of_a_pass == 0 ? json() : json(static_cast<double>(position) / static_cast<double>(of_a_pass));
}

// Why sequences were passed over, and how many for each reason: no reason without one.
json reasons_of(const PartAudit& part) {
  json reasons = json::object();
  for (const auto& [fate, sequences] : part.refused) {
    reasons[std::string(to_string(fate))] = sequences;
  }
  if (part.overwritten > 0) {
    reasons["overwritten"] = part.overwritten;
  }
  return reasons;
}

// Whether the sums of all parts are what the parts say. Empty: they are.
std::string fault_of(const DataAudit& audit, const std::vector<PartRecord>& parts) {
  if (audit.unnoted() > 0) {
    return std::to_string(audit.unnoted()) + " of its rounds were committed by an older atoll, which did not note their samples";
  }
  std::uint64_t positions = 0;
  std::uint64_t accounted = 0;
  for (const PartRecord& part : parts) {
    const auto found = audit.parts().find(part.part);
    const PartAudit sum = found == audit.parts().end() ? PartAudit{} : found->second;
    const std::string where = "part " + std::to_string(part.part) + ": ";
    if (!sum.fault.empty()) {
      return where + sum.fault;
    }
    if (sum.position != part.position) {
      return where + "its position is " + std::to_string(part.position) + ", the rounds come to " + std::to_string(sum.position);
    }
    positions += part.position;
    accounted += sum.committed + sum.passed_over + sum.taken_over;
  }
  return accounted == positions
             ? ""
             : "the rounds account for " + std::to_string(accounted) + " sequences, the parts for " + std::to_string(positions);
}

// Of a run of phases a part is the cluster of one expert. Which images a step takes follows from its number, so an expert's step is its
// place in its data: whoever takes the task over goes on from the step of the copy, and its model holds the images of every step up to
// there once.
json cluster_parts(const RunView& run, const RunSpec& spec) {
  const auto clustering = std::ranges::find(run.tasks, "clustering", &TaskView::task);
  const std::vector<std::uint64_t> sizes = clustering == run.tasks.end() ? std::vector<std::uint64_t>{} : cluster_sizes(clustering->facts);
  json parts = json::array();
  for (std::size_t cluster = 0; cluster < sizes.size(); ++cluster) {
    const auto task = std::ranges::find(run.tasks, "experts/" + std::to_string(cluster), &TaskView::task);
    if (task == run.tasks.end()) {
      continue;
    }
    const bool done = task->state == TaskState::done;
    const bool grouped = !task->group.run.empty();
    const std::uint64_t images =
        grouped ? task->group.images : (done ? spec.training.steps : std::max(task->step, task->checkpoint_step)) * spec.training.batch;
    json islands = json::object();
    for (const std::string& member : task->group.members) {
      islands[member] = nullptr;  // the data of the group's run say how many each
    }
    parts.push_back({{"part", cluster},
                     {"owner", text_or_null(task->island)},
                     {"in_use", task->state == TaskState::running},
                     {"position", images},
                     {"pass_sequences", sizes[cluster]},
                     {"passes", passes(images, sizes[cluster])},
                     {"committed", done || grouped ? json(images) : json(task->checkpoint_step * spec.training.batch)},
                     {"passed_over", 0},
                     {"reasons", json::object()},
                     {"taken_over", 0},
                     {"islands", std::move(islands)},
                     {"fault", nullptr}});
  }
  return parts;
}

// Of each island, what became of the tokens that it trained on: they sum to `trained`. What is in no contribution yet, or was lost with a
// trainer, is `rest`. Each fragment has fates of its own: these are their means.
json token_fates(const RunView& run, const DataAudit& audit, const std::map<IslandId, IslandReport>& reports) {
  json list = json::array();
  for (const MembershipView& membership : run.memberships) {
    const auto found = audit.fates().find(membership.island);
    const TokenFates sums = found == audit.fates().end() ? TokenFates{} : found->second;
    const auto mean = [&](std::uint64_t tokens) { return tokens / audit.fragments(); };
    const auto dropped = [&](Fate fate) {
      const auto of = sums.dropped.find(fate);
      return of == sums.dropped.end() ? 0 : mean(of->second);
    };
    std::uint64_t told = mean(sums.merged) + mean(sums.late) + mean(sums.overwritten);
    json fates = {
        {"island", membership.name}, {"merged", mean(sums.merged)}, {"late", mean(sums.late)}, {"overwritten", mean(sums.overwritten)}};
    for (const Fate fate : {Fate::rejected, Fate::too_stale, Fate::overrun, Fate::not_finite, Fate::dropped}) {
      const std::uint64_t tokens = dropped(fate) + (fate == Fate::dropped ? mean(sums.lost) : 0);
      fates[std::string(to_string(fate))] = tokens;
      told += tokens;
    }
    const auto report = reports.find(membership.island);
    const std::uint64_t trained = std::max(report == reports.end() ? 0 : report->second.tokens, told);  // reports come a moment later
    fates["trained"] = trained;
    fates["rest"] = trained - told;
    list.push_back(std::move(fates));
  }
  return list;
}

}  // namespace

// What each island's trainer said that it reads: files, how much each holds, and as what. Programs of one's own do not say it.
Result<json> Requests::reads_document(const RunView& run) {
  ATOLL_ASSIGN(const auto told, ledger_.newest_of_kind(run.id, "data_read"));
  json reads = json::array();
  for (const auto& [island, event] : told) {
    reads.push_back({{"island", name_of(island)}, {"text", event.event.text}, {"time_unix_ms", unix_ms(event.event.time)}});
  }
  return reads;
}

Result<json> Requests::data(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_ASSIGN(const RunSpec spec, run_spec_from_json(run.spec));
  ATOLL_ASSIGN(json reads, reads_document(run));
  json document = {{"run", run.id.text}, {"name", run.name}, {"state", to_string(run.state)}, {"reads", std::move(reads)}};
  if (!run.tasks.empty()) {
    document.update({{"counted_in", "images"}, {"passes", nullptr}, {"parts", cluster_parts(run, spec)}, {"proof", nullptr}});
    return document;
  }
  ATOLL_ASSIGN(const std::vector<PartRecord> parts, ledger_.parts(run.id));
  ATOLL_ASSIGN(const DataAudit audit, ledger_.audit_data(run.id));
  ATOLL_ASSIGN(const auto reports, newest_reports(run));
  const bool in_common = spec.strategy.group == Group::all;
  json list = json::array();
  std::uint64_t positions = 0;
  std::uint64_t committed = 0;
  for (const PartRecord& part : parts) {
    const auto found = audit.parts().find(part.part);
    const PartAudit sum = found == audit.parts().end() ? PartAudit{} : found->second;
    json islands = json::object();
    for (const auto& [island, sequences] : sum.islands) {
      islands[name_of(island)] = sequences;
    }
    const bool here = std::ranges::any_of(
        run.memberships, [&](const MembershipView& membership) { return membership.island == part.owner && has_part(membership); });
    list.push_back({{"part", part.part},
                    {"owner", text_or_null(part.owner.empty() ? "" : name_of(part.owner))},
                    {"in_use", here && !has_ended(run.state)},
                    {"position", part.position},
                    {"pass_sequences", part.sequences == 0 ? json() : json(part.sequences)},
                    {"passes", passes(part.position, part.sequences)},
                    {"committed", in_common ? json(sum.committed) : json()},
                    {"passed_over", sum.passed_over},
                    {"reasons", reasons_of(sum)},
                    {"taken_over", sum.taken_over},
                    {"islands", std::move(islands)},
                    {"fault", text_or_null(sum.fault)}});
    positions += part.position;
    committed += sum.committed;
  }
  json proof;  // where every island keeps a state of its own there is none
  if (in_common) {
    const std::string fault = fault_of(audit, parts);
    proof = {{"holds", fault.empty()}, {"fault", text_or_null(fault)}, {"rounds", audit.rounds()},
             {"positions", positions}, {"committed", committed},       {"committed_tokens", committed * tokens_per_sequence(spec)}};
  }
  const std::optional<double> total = passes_of(parts);
  document.update({{"counted_in", "sequences"},
                   {"passes", total ? json(*total) : json()},
                   {"parts", std::move(list)},
                   {"proof", std::move(proof)},
                   {"tokens", in_common ? token_fates(run, audit, reports) : json()}});
  return document;
}

}  // namespace atl::coordinator
