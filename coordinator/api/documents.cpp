// The documents of how things stand: runs, status, islands, tokens. What happened in a run is in history_documents.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/api/data_shares.hpp"
#include "coordinator/api/document_values.hpp"
#include "coordinator/api/requests.hpp"
#include "coordinator/api/run_facts.hpp"
#include "coordinator/core/bounded_sum.hpp"
#include "strategies/specification/model_kind.hpp"
#include "strategies/specification/run_notes.hpp"
#include "strategies/specification/run_spec.hpp"
#include "transport/base/address.hpp"
#include "transport/base/bytes.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxRuns = 1000;
constexpr std::size_t kWarnings = 20;
constexpr std::size_t kLossPoints = 120;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// At most kLossPoints, evenly by index; the first and the last stay.
json thinned(const std::vector<RoundLoss>& losses) {
  json points = json::array();
  const std::size_t count = losses.size();
  const std::size_t kept = std::min(count, kLossPoints);
  for (std::size_t i = 0; i < kept; ++i) {
    const RoundLoss& loss = losses[kept == 1 ? 0 : i * (count - 1) / (kept - 1)];
    points.push_back({loss.round.value, number(loss.outer_loss)});
  }
  return points;
}

// True if `name` stands in `text` as a word of its own: reasons name islands.
bool names(std::string_view text, std::string_view name) {
  const auto inside = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.'; };
  for (std::size_t at = text.find(name); at != std::string_view::npos && !name.empty(); at = text.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if ((at == 0 || !inside(text[at - 1])) && (end == text.size() || !inside(text[end]))) {
      return true;
    }
  }
  return false;
}

std::string_view state_of(const MembershipView& membership, RunState run) {
  if (membership.state == MembershipState::absent || membership.state == MembershipState::refused) {
    return "absent";
  }
  if (membership.state == MembershipState::ended || run == RunState::completed) {
    return "finished";
  }
  if (!membership.connected || is_idle(run)) {
    return "absent";
  }
  if (membership.state == MembershipState::joining) {
    return "catching-up";
  }
  return membership.report.state.empty() ? "starting" : std::string_view(membership.report.state);
}

json waits_document(const MembershipView& membership) {
  json waits = json::array();
  for (const WaitView& wait : membership.waits) {
    waits.push_back({{"what", wait.what}, {"island", wait.island}, {"from", wait.from}, {"text", wait.text}, {"seconds", wait.seconds}});
  }
  return waits;
}

// Numbers of a trainer's own, by name.
json metrics_document(const IslandReport& report) {
  json metrics = json::object();
  for (const OwnMetric& metric : report.metrics) {
    metrics[metric.name] = number(metric.value);
  }
  return metrics;
}

json island_document(const MembershipView& membership, const IslandReport& report, RunState run, const std::optional<OwnLoss>& own) {
  const bool active = membership.state == MembershipState::active;
  const std::string& reason = membership.reason.text.empty() ? report.reason : membership.reason.text;
  const bool reported = !report.run.empty();
  return {{"id", membership.island.text},
          {"name", membership.name},
          {"active", active},
          {"state", state_of(membership, run)},
          {"reason", reason},
          {"share", active && membership.share > 0 ? json(membership.share) : json()},
          {"step", reported ? json(report.step.value) : json()},
          {"tokens", reported ? json(report.tokens) : json()},
          {"tokens_per_second", reported && active && !has_ended(run) ? number(report.tokens_per_second) : json()},
          {"training_loss", reported ? number(report.training_loss) : json()},
          {"metrics", metrics_document(report)},
          {"own_loss", own ? number(own->loss) : json()},
          {"own_loss_round", own ? json(own->round.value) : json()},
          {"compute_seconds", reported ? number(report.compute_seconds) : json()},
          {"wait_seconds", reported ? number(report.wait_seconds) : json()},
          {"waits", waits_document(membership)},
          {"bytes_sent", reported ? json(report.bytes_sent) : json()},
          {"bytes_received", reported ? json(report.bytes_received) : json()},
          {"agent_memory_bytes", reported ? json(report.agent_memory_bytes) : json()},
          {"trainer_memory_bytes", reported ? json(report.trainer_memory_bytes) : json()},
          {"kernels", text_or_null(membership.kernels)},
          {"connected", membership.connected},
          {"last_seen_unix_ms", time(membership.last_seen)}};
}

struct Totals {
  std::uint64_t tokens = 0;
  std::uint64_t bytes_sent = 0;
  double tokens_per_second = 0;
  double compute_seconds = 0;
  double wait_seconds = 0;
};

Totals totals_of(const RunView& run, const std::map<IslandId, IslandReport>& reports) {
  Totals totals;
  for (const MembershipView& membership : run.memberships) {
    const auto found = reports.find(membership.island);
    if (found == reports.end()) {
      continue;
    }
    const IslandReport& report = found->second;
    totals.tokens = bounded_sum(totals.tokens, report.tokens, kMaxCount);
    totals.bytes_sent = bounded_sum(totals.bytes_sent, report.bytes_sent, kMaxCount);
    totals.compute_seconds += std::isfinite(report.compute_seconds) ? report.compute_seconds : 0;
    totals.wait_seconds += std::isfinite(report.wait_seconds) ? report.wait_seconds : 0;
    if (membership.state == MembershipState::active && membership.connected && !has_ended(run.state) &&
        std::isfinite(report.tokens_per_second)) {
      totals.tokens_per_second += report.tokens_per_second;
    }
  }
  return totals;
}

// Each number of the trainers' own: its mean over the islands that have said it, weighted by the tokens that they have trained on.
json mean_metrics(const RunView& run, const std::map<IslandId, IslandReport>& reports) {
  struct Sum {
    double weighted = 0;
    double weight = 0;
  };
  std::map<std::string, Sum> sums;
  for (const MembershipView& membership : run.memberships) {
    const auto found = reports.find(membership.island);
    for (const OwnMetric& metric : found == reports.end() ? std::vector<OwnMetric>() : found->second.metrics) {
      if (std::isfinite(metric.value)) {
        const auto weight = static_cast<double>(std::max<std::uint64_t>(found->second.tokens, 1));
        sums[metric.name].weighted += weight * metric.value;
        sums[metric.name].weight += weight;
      }
    }
  }
  json metrics = json::object();
  for (const auto& [name, sum] : sums) {
    metrics[name] = sum.weighted / sum.weight;
  }
  return metrics;
}

// Of the model: what a trainer of one's own has declared, else what the run file says.
json parameters_of(std::uint64_t specified, bool own_trainer, const std::map<IslandId, IslandReport>& reports) {
  std::uint64_t declared = 0;
  for (const auto& [island, report] : reports) {
    declared = std::max(declared, report.parameters);
  }
  const std::uint64_t parameters = own_trainer && declared > 0 ? declared : specified;
  return parameters == 0 ? json() : json(parameters);
}

std::uint32_t active_members(const RunView& run) {
  return static_cast<std::uint32_t>(std::count_if(run.memberships.begin(), run.memberships.end(), [](const MembershipView& membership) {
    return membership.state == MembershipState::active;
  }));
}

// The trainer of a run that has not the built-in one, with the settings that its run file gave it.
json trainer_document(const std::string& name, const std::string& settings) {
  return name.empty() ? json()
                      : json{{"name", name}, {"settings", settings.empty() ? json::object() : json::parse(settings, nullptr, false)}};
}

json way_text(const std::optional<Way>& way) { return way ? json(to_string(*way)) : json(); }

json paths_document(const std::vector<PathView>& paths) {
  json list = json::array();
  for (const PathView& path : paths) {
    json row = {{"from", path.from},
                {"passes", path.passes},
                {"why", path.why},
                {"way", way_text(path.way)},
                {"address", path.way ? text_or_null(path.way->address) : json()},
                {"why_indirect", text_or_null(path.why_indirect)},
                {"measured", nullptr}};
    if (path.measured) {
      row["measured"] = {
          {"measurement", path.measured->measurement},
          {"at_unix_ms", unix_ms(path.measured->at)},
          {"round_trip_ms", path.measured->round_trip > Duration::zero() ? number(1e3 * seconds(path.measured->round_trip)) : json()},
          {"bits_per_second", path.measured->bytes_per_second > 0 ? number(8 * path.measured->bytes_per_second) : json()}};
    }
    list.push_back(std::move(row));
  }
  return list;
}

// The pairs that exchange over a relay, or those that punched. The rate: measured, or of the last exchange where two islands alone
// exchange.
json indirect_document(const std::vector<IndirectView>& pairs, bool punched, std::size_t islands,
                       const std::map<IslandId, LinkRate>& rates) {
  json list = json::array();
  for (const IndirectView& pair : pairs) {
    if (pair.way.punched != punched) {
      continue;
    }
    double rate = 8 * pair.bytes_per_second;
    if (const auto one = rates.find(pair.a); rate == 0 && islands == 2 && one != rates.end()) {
      rate = std::min(one->second.up_bits_per_second, one->second.down_bits_per_second);
    }
    json row = {{"islands", {pair.name_of_a, pair.name_of_b}},
                {"bits_per_second", rate > 0 ? number(rate) : json()},
                {"why_indirect", text_or_null(pair.why)}};
    if (!punched) {
      row["relay"] = pair.way.relay;
    }
    list.push_back(std::move(row));
  }
  return list;
}

json unsteady_document(const std::vector<UnsteadyView>& unsteady) {
  json list = json::array();
  for (const UnsteadyView& path : unsteady) {
    const bool watched = path.available.watched > Duration();
    list.push_back(
        {{"from", text_or_null(path.from)},
         {"to", path.to},
         {"there_share", watched ? json(path.available.share()) : json()},
         {"changes", watched ? json(path.available.changes) : json()},
         {"within_ms", watched ? json(std::chrono::duration_cast<std::chrono::milliseconds>(path.available.watched).count()) : json()},
         {"until_unix_ms", time(path.until)},
         {"text", path.text}});
  }
  return list;
}

// [training].tokens, or null where the run ends by its steps alone.
json limit_or_null(std::uint64_t limit) { return limit > 0 ? json(limit) : json(); }

}  // namespace

const Requests::Facts& Requests::facts(const RunView& run) {
  const auto found = facts_.find(run.id);
  if (found != facts_.end()) {
    return found->second;
  }
  Facts facts;
  if (const auto spec = run_spec_from_json(run.spec)) {
    facts = {spec->strategy.name,
             spec->training.steps,
             spec->training.tokens,
             spec->strategy.inner_steps,
             spec->strategy.group == Group::expert ? 0 : static_cast<std::uint64_t>(model_parameter_bytes(*spec) / sizeof(float)),
             model_kind(*spec) == ModelKind::diffusion,
             notes_on(*spec),
             spec->trainer.name,
             spec->trainer.settings};
  }
  return facts_.emplace(run.id, std::move(facts)).first->second;
}

std::string Requests::reason_of(const RunView& run) const {
  if (ledger_failure_ && !has_ended(run.state)) {
    return "the coordinator cannot write its ledger (" + ledger_failure_->why + "): decisions wait until it can";
  }
  return run.reason.text;
}

// ------------------------------------------------------------------------------------------------------------------- runs

Result<json> Requests::runs(TimePoint now) {
  ATOLL_ASSIGN(std::vector<RunView> views, shown_runs(now));
  std::reverse(views.begin(), views.end());
  views.resize(std::min(views.size(), kMaxRuns));
  json list = json::array();
  for (const RunView& run : views) {
    ATOLL_ASSIGN(const std::optional<RoundLoss> loss, ledger_.newest_loss(run.id));
    list.push_back({{"id", run.id.text},
                    {"name", run.name},
                    {"strategy", facts(run).strategy},
                    {"part_of", text_or_null(run.part_of.text)},
                    {"state", to_string(run.state)},
                    {"pause_after", run.pause_after ? json(run.pause_after->value) : json()},
                    {"reason", reason_of(run)},
                    {"round", run.committed.value},
                    {"rounds", run.rounds},
                    {"tokens_committed", run.tokens},
                    {"token_limit", limit_or_null(facts(run).token_limit)},
                    {"outer_loss", loss ? number(loss->outer_loss) : json()},
                    {"islands", active_members(run)},
                    {"min", run.min},
                    {"max", run.max},
                    {"created_unix_ms", unix_ms(run.submitted)},
                    {"ended_unix_ms", time(run.ended)}});
  }
  return json{{"runs", std::move(list)}};
}

namespace {

json passes_or_null(const std::vector<PartRecord>& parts) {
  const std::optional<double> passes = passes_of(parts);
  return passes ? json(*passes) : json();
}

}  // namespace

Result<json> Requests::run_document(const RunView& run, const std::map<IslandId, IslandReport>& reports) {
  ATOLL_ASSIGN(const std::vector<RoundLoss> losses, ledger_.losses(run.id));
  ATOLL_ASSIGN(const std::optional<Round> checkpoint, ledger_.checkpoint_round(run.id));
  ATOLL_ASSIGN(const std::vector<PartRecord> parts, ledger_.parts(run.id));
  const Totals totals = totals_of(run, reports);
  const std::string reason = reason_of(run);
  json waiting_for = json::array();
  for (const MembershipView& membership : run.memberships) {
    if (!has_ended(run.state) && names(reason, membership.name)) {
      waiting_for.push_back(membership.name);
    }
  }
  const RoundLoss last = losses.empty() ? RoundLoss{Round(0), kNaN, kNaN} : losses.back();
  const bool from_start = !losses.empty() && losses.front().round == Round(0);
  const bool since_known = !reason.empty() && !ledger_failure_;
  const Facts& known = facts(run);
  return json{{"id", run.id.text},
              {"name", run.name},
              {"strategy", known.strategy},
              {"trainer", trainer_document(known.trainer, known.settings)},
              {"images", known.images},
              {"notes", known.notes},
              {"part_of", text_or_null(run.part_of.text)},
              {"state", to_string(run.state)},
              {"pause_after", run.pause_after ? json(run.pause_after->value) : json()},
              {"reason", reason},
              {"waiting_for", std::move(waiting_for)},
              {"unsteady", unsteady_document(run.unsteady)},
              {"relayed", indirect_document(run.indirect, false, run.memberships.size(), rates_)},
              {"punched", indirect_document(run.indirect, true, run.memberships.size(), rates_)},
              {"reason_since_unix_ms", since_known ? json(unix_ms(run.reason.since)) : json()},
              {"reason_until_unix_ms", since_known ? time(run.reason.until) : json()},
              {"round", run.committed.value},
              {"rounds", run.rounds},
              {"tokens_committed", run.tokens},
              {"token_limit", limit_or_null(known.token_limit)},
              {"epoch", run.epoch.value},
              {"attempt", run.attempt ? run.attempt->value : 0},
              {"digest", run.digest.empty() ? "" : to_hex(run.digest)},
              {"consensus_distance", run.spread_round.value > 0 ? json(run.spread) : json()},
              {"consensus_round", run.spread_round.value > 0 ? json(run.spread_round.value) : json()},
              {"tokens", std::max(totals.tokens, run.tokens)},
              {"tokens_per_second", totals.tokens_per_second},
              {"steps", known.steps},
              {"inner_steps", known.inner_steps},
              {"initial_loss", from_start ? number(losses.front().outer_loss) : json()},
              {"outer_loss", number(last.outer_loss)},
              {"local_loss", number(last.local_loss)},
              {"losses", thinned(losses)},
              {"min", run.min},
              {"max", run.max},
              {"members", active_members(run)},
              {"data_passes", passes_or_null(parts)},
              {"parameters", parameters_of(known.parameters, !known.trainer.empty(), reports)},
              {"metrics", mean_metrics(run, reports)},
              {"bytes_sent", totals.bytes_sent},
              {"bytes_per_round", run.committed.value == 0 ? json() : json(totals.bytes_sent / run.committed.value)},
              {"compute_seconds", totals.compute_seconds},
              {"wait_seconds", totals.wait_seconds},
              {"checkpoint_round", checkpoint ? json(checkpoint->value) : json()},
              {"copied_round", run.copied > Round(0) ? json(run.copied.value) : json()},
              {"created_unix_ms", unix_ms(run.submitted)},
              {"started_unix_ms", time(run.started)},
              {"ended_unix_ms", time(run.ended)}};
}

// The phases in order, each with its tasks; of a run of rounds the one phase that it has.
json Requests::phases_document(const RunView& run) {
  json phases = json::array();
  for (const std::string& name : run.phases) {
    json tasks = json::array();
    std::size_t done = 0;
    bool begun = false;
    bool failed = false;
    for (const TaskView& task : run.tasks) {
      if (task.phase != name) {
        continue;
      }
      done += task.state == TaskState::done ? 1U : 0U;
      begun = begun || task.state != TaskState::waiting;
      failed = failed || task.state == TaskState::failed;
      json facts = json::parse(task.facts, nullptr, false);
      tasks.push_back({{"task", task.task},
                       {"state", to_string(task.state)},
                       {"island", text_or_null(task.island)},
                       {"step", task.step},
                       {"steps", task.steps},
                       {"loss", number(task.loss)},
                       {"checkpoint_step", task.checkpoint_step},
                       {"copies", task.copies},
                       {"starts", task.starts},
                       {"group", task.group.run.empty() ? json()
                                                        : json{{"run", task.group.run.text},
                                                               {"name", task.group.name},
                                                               {"islands", task.group.members},
                                                               {"round", task.group.round.value},
                                                               {"rounds", task.group.rounds}}},
                       {"result_sha256", task.result.empty() ? json() : json(to_hex(task.result))},
                       {"result_bytes", task.result_bytes},
                       {"facts", facts.is_object() ? std::move(facts) : json::object()},
                       {"started_unix_ms", time(task.started)},
                       {"ended_unix_ms", time(task.ended)}});
    }
    const bool of_rounds = run.tasks.empty() && run.phases.size() == 1;
    const std::string_view state = of_rounds             ? run.state == RunState::completed ? "done"
                                                           : run.started                    ? "running"
                                                                                            : "waiting"
                                   : failed              ? "failed"
                                   : !begun              ? "waiting"
                                   : done < tasks.size() ? "running"
                                                         : "done";
    phases.push_back({{"name", name}, {"state", state}, {"done", done}, {"tasks", std::move(tasks)}});
  }
  return phases;
}

json Requests::absences_document(const RunView& run) {
  json absences = json::array();
  for (const MembershipView& membership : run.memberships) {
    for (const Absence& absence : membership.absences) {
      absences.push_back({{"island", membership.name},
                          {"from_round", absence.from.value},
                          {"to_round", absence.to ? json(absence.to->value) : json()},
                          {"since_unix_ms", unix_ms(absence.since)},
                          {"until_unix_ms", time(absence.until)},
                          {"cause", absence.cause}});
    }
  }
  std::stable_sort(absences.begin(), absences.end(), [](const json& a, const json& b) { return a["since_unix_ms"] < b["since_unix_ms"]; });
  return absences;
}

Result<std::map<IslandId, IslandReport>> Requests::newest_reports(const RunView& run) {
  ATOLL_ASSIGN(const auto stored, ledger_.reports(run.id));
  std::map<IslandId, IslandReport> reports(stored.begin(), stored.end());
  for (const MembershipView& membership : run.memberships) {
    if (!membership.report.run.empty()) {
      reports.insert_or_assign(membership.island, membership.report);
    }
  }
  return reports;
}

Result<json> Requests::status(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::string which, arguments.text("run", ""));
  ATOLL_ASSIGN(const RunView run, find_run(now, which, true));
  ATOLL_ASSIGN(auto reports, newest_reports(run));
  std::vector<const MembershipView*> memberships;
  for (const MembershipView& membership : run.memberships) {
    memberships.push_back(&membership);
  }
  std::sort(memberships.begin(), memberships.end(), [](const MembershipView* a, const MembershipView* b) {
    const bool a_active = a->state == MembershipState::active;
    const bool b_active = b->state == MembershipState::active;
    return a_active != b_active ? a_active : a->name < b->name;
  });
  std::map<IslandId, OwnLoss> own_losses;
  if (run.last_own.value > 0) {
    ATOLL_ASSIGN(own_losses, ledger_.own_losses(run.id, run.last_own));
  }
  json islands = json::array();
  for (const MembershipView* membership : memberships) {
    const auto own = own_losses.find(membership->island);
    islands.push_back(island_document(*membership, reports[membership->island], run.state,
                                      own == own_losses.end() ? std::nullopt : std::optional(own->second)));
  }
  ATOLL_ASSIGN(const std::vector<StoredEvent> newest, ledger_.warnings(run.id, kWarnings));
  json warnings = json::array();
  for (const StoredEvent& stored_event : newest) {
    const EventRecord& event = stored_event.event;
    const json fields = json::parse(stored_event.fields, nullptr, false);
    warnings.push_back({{"time_unix_ms", unix_ms(event.time)},
                        {"island", event.island.empty() ? json() : json(name_of(event.island))},
                        {"round", fields.is_object() && fields.contains("round") ? fields["round"] : json()},
                        {"kind", event.kind},
                        {"text", event.text}});
  }
  ATOLL_ASSIGN(json document, run_document(run, reports));
  json absences = absences_document(run);
  return json{{"run", std::move(document)},
              {"phases", phases_document(run)},
              {"islands", std::move(islands)},
              {"absences", std::move(absences)},
              {"warnings", std::move(warnings)}};
}

// ---------------------------------------------------------------------------------------------------------------- islands

std::string Requests::reach(const IslandId& island, const std::string& seen_host, const Relays& relays) const {
  const ReachView view = core_.reach(island);
  json document = {{"schema", 1},
                   {"seen_host", text_or_null(seen_host)},
                   {"addresses", addresses_in(view.bulk_address)},
                   {"dialled_at", view.dialled},
                   {"relays", json::array()}};
  for (const RelayOffer& relay : relays.relays) {
    document["relays"].push_back({{"name", relay.name}, {"address", relay.address}, {"pass", relay.pass}, {"carries", relay.carries}});
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<json> Requests::islands(TimePoint now) {
  const std::vector<IslandView> views = core_.islands(now);
  std::map<IslandId, const IslandView*> by_id;
  for (const IslandView& view : views) {
    by_id.emplace(view.id, &view);
  }
  std::map<RunId, RunView> runs;
  std::vector<std::pair<bool, json>> rows;
  for (const auto& [text, key] : admission_.keys()) {
    const auto found = by_id.find(key.island);
    if (key.role != Role::island) {
      continue;
    }
    static const IslandView kUnseen;
    const IslandView& view = found == by_id.end() ? kUnseen : *found->second;
    const bool connected = !key.revoked && view.state == "connected";
    std::string state = connected ? "free" : "absent";
    std::string reason = view.reason.text;
    json run_id;
    json run_name;
    if (!view.run.empty() && connected) {
      if (!runs.contains(view.run)) {
        ATOLL_ASSIGN(const std::optional<RunView> shown, shown_run(now, view.run));
        runs.emplace(view.run, shown.value_or(RunView{}));
      }
      const RunView& run = runs.at(view.run);
      const auto member = std::ranges::find(run.memberships, key.island, &MembershipView::island);
      if (member != run.memberships.end()) {
        run_id = run.id.text;
        run_name = run.name;
        state = state_of(*member, run.state);
      }
      if (ledger_failure_) {  // the core's words are of what it has decided since
        reason = member == run.memberships.end() ? "free: waits for a run" : std::string(to_string(member->state)) + " in run " + run.name;
      }
    }
    const auto rate = rates_.find(key.island);
    const bool rated = rate != rates_.end();
    rows.emplace_back(connected, json{{"id", key.island.text},
                                      {"name", key.name},
                                      {"state", state},
                                      {"reason", std::move(reason)},
                                      {"run", std::move(run_id)},
                                      {"run_name", run_name},
                                      {"address", text_or_null(first_address(view.bulk_address))},
                                      {"addresses", addresses_in(view.bulk_address)},
                                      {"seen_host", text_or_null(view.seen_host)},
                                      {"platform", view.platform},
                                      {"version", view.version},
                                      {"data_sets", view.data_sets},
                                      {"link", key.revoked ? "revoked"
                                               : connected ? "up"
                                                           : "lost"},
                                      {"connected", connected},
                                      {"last_seen_unix_ms", time(view.last_seen)},
                                      {"enrolled_unix_ms", unix_ms(key.enrolled)},
                                      {"paths", paths_document(view.paths)},
                                      {"uplink_budget_bits_per_second",
                                       view.uplink_budget_bits_per_second > 0 ? number(view.uplink_budget_bits_per_second) : json()},
                                      {"link_memory_bytes", view.link_memory_bytes > 0 ? json(view.link_memory_bytes) : json()},
                                      {"uplink_bits_per_second", rated ? number(rate->second.up_bits_per_second) : json()},
                                      {"downlink_bits_per_second", rated ? number(rate->second.down_bits_per_second) : json()}});
  }
  std::sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.first != b.first
               ? a.first
               : a.second["name"].template get_ref<const std::string&>() < b.second["name"].template get_ref<const std::string&>();
  });
  json list = json::array();
  for (auto& [connected, row] : rows) {
    list.push_back(std::move(row));
  }
  return json{{"islands", std::move(list)}};
}

// ----------------------------------------------------------------------------------------------------------------- tokens

Result<json> Requests::tokens(TimePoint now) {
  ATOLL_ASSIGN(const std::vector<Token> tokens, admission_.tokens());
  json list = json::array();
  for (const Token& token : tokens) {
    list.push_back({{"id", token.id},
                    {"role", to_string(token.role)},
                    {"name", token.name},
                    {"state", token.state(now)},
                    {"created_unix_ms", unix_ms(token.created)},
                    {"expires_unix_ms", unix_ms(token.expires)},
                    {"used_by", text_or_null(token.used_by)},
                    {"used_unix_ms", token.used_by.empty() ? json() : json(unix_ms(token.used))}});
  }
  return json{{"tokens", std::move(list)}};
}

}  // namespace atl::coordinator
