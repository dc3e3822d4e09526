#include "coordinator/ledger/record_rows.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace atl::coordinator {

using nlohmann::json;

namespace {

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json parse(const std::string& text) { return json::parse(text, nullptr, false); }

Error broken(std::string_view table, std::string_view column) {
  return Error{Code::corrupt, "the ledger's table " + std::string(table) + " has a " + std::string(column) + " that cannot be read"};
}

void bind_time(Statement& statement, const std::optional<TimePoint>& time) {
  if (time) {
    statement.bind(unix_ms(*time));
  } else {
    statement.bind_null();
  }
}

std::optional<TimePoint> time_of(const Statement& row, int column) {
  return row.null(column) ? std::nullopt : std::optional(from_unix_ms(row.integer(column)));
}

// A list of ids or numbers is a JSON array, so that `sqlite3 ledger.db` can take it apart.
std::string ids_text(const std::vector<IslandId>& ids) {
  json list = json::array();
  for (const IslandId& id : ids) {
    list.push_back(id.text);
  }
  return dump(list);
}

std::optional<std::vector<IslandId>> ids_of(const std::string& text) {
  const json list = parse(text);
  if (!list.is_array()) {
    return std::nullopt;
  }
  std::vector<IslandId> ids;
  for (const json& item : list) {
    if (!item.is_string()) {
      return std::nullopt;
    }
    ids.emplace_back(item.get<std::string>());
  }
  return ids;
}

std::optional<std::vector<std::uint64_t>> counts_of(const std::string& text) {
  const json list = parse(text);
  if (!list.is_array()) {
    return std::nullopt;
  }
  std::vector<std::uint64_t> counts;
  for (const json& item : list) {
    if (!item.is_number_unsigned()) {
      return std::nullopt;
    }
    counts.push_back(item.get<std::uint64_t>());
  }
  return counts;
}

std::string ranges_text(const std::vector<DataRange>& ranges) {
  json list = json::array();
  for (const DataRange& range : ranges) {
    list.push_back({range.part, range.from, range.to});
    if (range.held() > range.from) {
      list.back().push_back(range.held());
    }
  }
  return dump(list);
}

std::optional<std::vector<DataRange>> ranges_of(const std::string& text) {
  const json list = parse(text);
  if (!list.is_array()) {
    return std::nullopt;
  }
  std::vector<DataRange> ranges;
  for (const json& item : list) {
    if (!item.is_array() || item.size() < 3 || item.size() > 4 ||
        !std::ranges::all_of(item, [](const json& number) { return number.is_number_unsigned(); })) {
      return std::nullopt;
    }
    ranges.push_back(DataRange{item[0].get<std::uint32_t>(), item[1].get<std::uint64_t>(), item[2].get<std::uint64_t>(),
                               item.size() > 3 ? item[3].get<std::uint64_t>() : 0});
  }
  return ranges;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------------ runs

Status write_row(Database& database, const RunRecord& run) {
  auto statement = database.prepare(
      "INSERT OR REPLACE INTO runs(run, name, file, spec, state, reason, reason_since_ms, reason_until_ms, error_code, error_why, "
      "submitted_ms, started_ms, ended_ms, epoch, lineage, initialised, committed, digest, tokens, pause_after, restored, enough, copied, "
      "decided_restored, decided_starts, decided_life) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  statement.bind(run.id.text).bind(run.name).bind(run.file).bind(run.spec).bind(to_string(run.state)).bind(run.reason.text);
  statement.bind(unix_ms(run.reason.since));
  bind_time(statement, run.reason.until);
  if (run.error) {
    statement.bind(to_string(run.error->code)).bind(run.error->why);
  } else {
    statement.bind_null().bind_null();
  }
  statement.bind(unix_ms(run.submitted));
  bind_time(statement, run.started);
  bind_time(statement, run.ended);
  statement.bind(run.epoch.value).bind(run.lineage).bind(run.initialised).bind(run.committed.value).bind(run.digest).bind(run.tokens);
  if (run.pause_after) {
    statement.bind(run.pause_after->value);
  } else {
    statement.bind_null();
  }
  statement.bind(run.restored).bind(run.enough).bind(run.copied.value);
  statement.bind(run.decided.restored).bind(run.decided.starts).bind(run.decided.life);
  return statement.run();
}

Result<RunRecord> read_run(const Statement& row) {
  RunRecord run;
  run.id = RunId(row.text(0));
  run.name = row.text(1);
  run.file = row.text(2);
  run.spec = row.text(3);
  ATOLL_ASSIGN(run.state, run_state_from_string(row.text(4)));
  run.reason = Reason{row.text(5), from_unix_ms(row.integer(6)), time_of(row, 7)};
  if (!row.null(8)) {
    run.error = Error{code_from_string(row.text(8)), row.text(9)};
  }
  run.submitted = from_unix_ms(row.integer(10));
  run.started = time_of(row, 11);
  run.ended = time_of(row, 12);
  run.epoch = Epoch(row.number(13));
  run.lineage = static_cast<std::uint32_t>(row.number(14));
  run.initialised = row.boolean(15);
  run.committed = Round(row.number(16));
  run.digest = row.digest(17);
  run.tokens = row.number(18);
  if (!row.null(19)) {
    run.pause_after = Round(row.number(19));
  }
  run.restored = row.boolean(20);
  run.enough = row.text(21);
  run.copied = Round(row.number(22));
  run.decided = {row.number(23), row.number(24), row.number(25), {}};
  return run;
}

// ----------------------------------------------------------------------------------------------------------------- memberships

Status write_row(Database& database, const MembershipRecord& membership) {
  json absences = json::array();
  for (const Absence& absence : membership.absences) {
    json to = absence.to ? json(absence.to->value) : json();
    json until = absence.until ? json(unix_ms(*absence.until)) : json();
    absences.push_back({absence.from.value, std::move(to), absence.cause, unix_ms(absence.since), std::move(until)});
  }
  return database
      .prepare(
          "INSERT OR REPLACE INTO memberships(run, island, part, state, cause, absences, offences, left_epoch) VALUES(?,?,?,?,?,?,?,?)")
      .bind(membership.run.text)
      .bind(membership.island.text)
      .bind(membership.part)
      .bind(to_string(membership.state))
      .bind(membership.cause)
      .bind(dump(absences))
      .bind(membership.offences)
      .bind(membership.left.value)
      .run();
}

Result<MembershipRecord> read_membership(const Statement& row) {
  MembershipRecord membership;
  membership.run = RunId(row.text(0));
  membership.island = IslandId(row.text(1));
  membership.part = static_cast<std::uint32_t>(row.number(2));
  ATOLL_ASSIGN(membership.state, membership_state_from_string(row.text(3)));
  membership.cause = row.text(4);
  const json absences = parse(row.text(5));
  if (!absences.is_array()) {
    return broken("memberships", "list of absences");
  }
  for (const json& item : absences) {
    if (!item.is_array() || item.size() != 5 || !item[0].is_number_unsigned() || !item[2].is_string() || !item[3].is_number_integer()) {
      return broken("memberships", "list of absences");
    }
    Absence absence;
    absence.from = Round(item[0].get<std::uint64_t>());
    if (item[1].is_number_unsigned()) {
      absence.to = Round(item[1].get<std::uint64_t>());
    }
    absence.cause = item[2].get<std::string>();
    absence.since = from_unix_ms(item[3].get<std::int64_t>());
    if (item[4].is_number_integer()) {
      absence.until = from_unix_ms(item[4].get<std::int64_t>());
    }
    membership.absences.push_back(std::move(absence));
  }
  membership.offences = static_cast<std::uint32_t>(row.number(6));
  membership.left = Epoch(row.number(7));
  return membership;
}

// ----------------------------------------------------------------------------------------------------------- epochs

Status write_row(Database& database, const EpochRecord& membership) {
  return database.prepare("INSERT OR REPLACE INTO epochs(run, epoch, time_ms, committed, members, why, avoid) VALUES(?,?,?,?,?,?,?)")
      .bind(membership.run.text)
      .bind(membership.epoch.value)
      .bind(unix_ms(membership.time))
      .bind(membership.committed.value)
      .bind(ids_text(membership.members))
      .bind(membership.why)
      .bind(dump(json(membership.avoid)))
      .run();
}

Result<EpochRecord> read_epoch(const Statement& row) {
  EpochRecord membership;
  membership.run = RunId(row.text(0));
  membership.epoch = Epoch(row.number(1));
  membership.time = from_unix_ms(row.integer(2));
  membership.committed = Round(row.number(3));
  auto members = ids_of(row.text(4));
  if (!members) {
    return broken("epochs", "list of members");
  }
  membership.members = *std::move(members);
  membership.why = row.text(5);
  const json avoid = parse(row.text(6));
  const auto is_place = [&](const json& place) { return place.is_number_unsigned() && place < membership.members.size(); };
  for (const json& couple : avoid.is_array() ? avoid : json::array({json()})) {
    if (!couple.is_array() || couple.size() != 2 || !std::ranges::all_of(couple, is_place)) {
      return broken("epochs", "list of paths to avoid");
    }
    membership.avoid.emplace_back(couple[0].get<std::uint32_t>(), couple[1].get<std::uint32_t>());
  }
  return membership;
}

// --------------------------------------------------------------------------------------------------------------- islands

Status write_row(Database& database, const IslandRecord& island) {
  return database
      .prepare(
          "INSERT OR REPLACE INTO islands(island, name, public_key, bulk_address, version, platform, data_sets, boot, last_hello_ms) "
          "VALUES(?,?,?,?,?,?,?,?,?)")
      .bind(island.id.text)
      .bind(island.name)
      .bind(island.public_key)
      .bind(island.bulk_address)
      .bind(island.version)
      .bind(island.platform)
      .bind(dump(json(island.data_sets)))
      .bind(island.boot)
      .bind(unix_ms(island.last_hello))
      .run();
}

Result<IslandRecord> read_island(const Statement& row) {
  IslandRecord island;
  island.id = IslandId(row.text(0));
  island.name = row.text(1);
  island.public_key = row.text(2);
  island.bulk_address = row.text(3);
  island.version = row.text(4);
  island.platform = row.text(5);
  const json sets = parse(row.text(6));
  if (!sets.is_array()) {
    return broken("islands", "list of data sets");
  }
  for (const json& set : sets) {
    if (!set.is_string()) {
      return broken("islands", "list of data sets");
    }
    island.data_sets.push_back(set.get<std::string>());
  }
  island.boot = row.number(7);
  island.last_hello = from_unix_ms(row.integer(8));
  return island;
}

// ----------------------------------------------------------------------------------------------------------------- tasks

Status write_row(Database& database, const TaskRecord& task) {
  auto statement =
      database.prepare(std::string("INSERT OR REPLACE INTO tasks(") + kTaskColumns + ") VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)");
  statement.bind(task.run.text).bind(task.task).bind(to_string(task.state)).bind(task.island.text).bind(task.starts);
  statement.bind(task.result)
      .bind(task.result_bytes)
      .bind(task.facts)
      .bind(task.checkpoint)
      .bind(task.checkpoint_bytes)
      .bind(task.checkpoint_step);
  bind_time(statement, task.started);
  bind_time(statement, task.ended);
  statement.bind(task.group.text).bind(ids_text(task.members));
  return statement.run();
}

Status write_row(Database& database, const Superseded& superseded) {
  Statement statement = database.prepare("UPDATE store SET newer_restored=?, newer_starts=?, newer_island=?, newer_ms=? WHERE id=1");
  statement.bind(superseded.by.restored);
  statement.bind(superseded.by.starts);
  statement.bind(superseded.island);
  statement.bind(unix_ms(superseded.time));
  return statement.run();
}

Result<TaskRecord> read_task(const Statement& row) {
  TaskRecord task;
  task.run = RunId(row.text(0));
  task.task = row.text(1);
  const Result<TaskState> state = task_state_from_string(row.text(2));
  if (!state) {
    return broken("tasks", "state");
  }
  task.state = *state;
  task.island = IslandId(row.text(3));
  task.starts = static_cast<std::uint32_t>(row.number(4));
  task.result = row.digest(5);
  task.result_bytes = row.number(6);
  task.facts = row.text(7);
  task.checkpoint = row.digest(8);
  task.checkpoint_bytes = row.number(9);
  task.checkpoint_step = row.number(10);
  task.started = time_of(row, 11);
  task.ended = time_of(row, 12);
  task.group = RunId(row.text(13));
  auto members = ids_of(row.text(14));
  if (!members) {
    return broken("tasks", "members");
  }
  task.members = std::move(*members);
  return task;
}

// ---------------------------------------------------------------------------------------------------------------- rounds

Status write_row(Database& database, const RoundRecord& round) {
  // A committed round is never replaced, whatever the core thinks.
  auto statement = database.prepare(
      "INSERT INTO rounds(run, lineage, round, epoch, attempt, committed, checkpoint, members, tokens, digest, planned_ms, committed_ms, "
      "data, "
      "parts, fragment, steps, norms, staleness, overwritten) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT(run, lineage, "
      "round) DO UPDATE SET "
      "epoch=excluded.epoch, "
      "attempt=excluded.attempt, "
      "committed=excluded.committed, checkpoint=excluded.checkpoint, members=excluded.members, tokens=excluded.tokens, "
      "digest=excluded.digest, planned_ms=excluded.planned_ms, committed_ms=excluded.committed_ms, data=excluded.data, "
      "parts=excluded.parts, fragment=excluded.fragment, steps=excluded.steps, norms=excluded.norms, "
      "staleness=excluded.staleness, overwritten=excluded.overwritten WHERE committed=0");
  statement.bind(round.run.text).bind(round.lineage).bind(round.round.value).bind(round.epoch.value).bind(round.attempt.value);
  const auto each = [&](auto field) { return dump(json(each_of(round.contributions, field))); };
  statement.bind(round.committed).bind(round.checkpoint).bind(ids_text(round.members)).bind(each(&ContributionFacts::tokens));
  statement.bind(round.digest);
  statement.bind(unix_ms(round.planned));
  bind_time(statement, round.committed_at);
  statement.bind(ranges_text(round.unnoted ? std::vector<DataRange>() : each_of(round.contributions, &ContributionFacts::data)));
  statement.bind(ranges_text(round.parts)).bind(std::uint64_t{round.fragment}).bind(each(&ContributionFacts::steps));
  statement.bind(each(&ContributionFacts::norm)).bind(each(&ContributionFacts::staleness)).bind(each(&ContributionFacts::overwritten));
  return statement.run();
}

Result<std::map<std::uint32_t, Round>> read_bases(Database& database, const RunId& run) {
  std::map<std::uint32_t, Round> bases;
  auto rows = database.prepare("SELECT lineage, min(round) FROM rounds WHERE run=? AND committed=1 AND lineage>0 GROUP BY lineage");
  rows.bind(run.text);
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return bases;
    }
    bases[static_cast<std::uint32_t>(rows.number(0))] = Round(rows.number(1));
  }
}

Result<RoundRecord> read_round(const Statement& row) {
  RoundRecord round;
  round.run = RunId(row.text(0));
  round.lineage = static_cast<std::uint32_t>(row.number(1));
  round.round = Round(row.number(2));
  round.epoch = Epoch(row.number(3));
  round.attempt = Attempt(static_cast<std::uint32_t>(row.number(4)));
  round.committed = row.boolean(5);
  round.checkpoint = row.boolean(6);
  auto members = ids_of(row.text(7));
  auto tokens = counts_of(row.text(8));
  auto steps = counts_of(row.text(15));
  const json norms = parse(row.text(16));
  auto staleness = counts_of(row.text(17));
  auto overwritten = counts_of(row.text(18));
  if (!members || !tokens || !steps || !norms.is_array() || !staleness || !overwritten) {
    return broken("rounds", "list of members, tokens, steps, norms, staleness or overwritten tokens");
  }
  round.members = *std::move(members);
  round.digest = row.digest(9);
  round.planned = from_unix_ms(row.integer(10));
  round.committed_at = time_of(row, 11);
  auto data = ranges_of(row.text(12));
  auto parts = ranges_of(row.text(13));
  if (!data || !parts) {
    return broken("rounds", "list of samples");
  }
  round.unnoted = data->empty() && !round.members.empty();
  round.parts = *std::move(parts);
  round.fragment = static_cast<std::uint32_t>(row.number(14));
  // Rows of an older atoll have shorter lists.
  const auto at = [](const auto& list, std::size_t i) { return i < list->size() ? (*list)[i] : std::uint64_t{0}; };
  for (std::size_t i = 0; i < round.members.size(); ++i) {
    ContributionFacts& facts = round.contributions.emplace_back();
    facts.tokens = at(tokens, i);
    facts.steps = at(steps, i);
    facts.norm = i < norms.size() && norms[i].is_number() ? norms[i].get<double>() : 0.0;  // what is no finite number is null
    facts.fragment = round.fragment;
    facts.data = i < data->size() ? (*data)[i] : DataRange{};
    facts.staleness = static_cast<std::uint32_t>(at(staleness, i));
    facts.overwritten = at(overwritten, i);
  }
  return round;
}

// ------------------------------------------------------------------------------------- contributions that count in no round

Status write_row(Database& database, const DroppedRecord& dropped) {
  const ContributionFacts& facts = dropped.facts;
  auto statement = database.prepare(
      "INSERT OR IGNORE INTO dropped(run, lineage, island, fragment, round, fate, part, from_sequence, to_sequence, tokens, overwritten, "
      "held_from) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)");
  statement.bind(dropped.run.text).bind(dropped.lineage).bind(dropped.island.text).bind(std::uint64_t{facts.fragment});
  statement.bind(dropped.round.value).bind(std::string(to_string(dropped.fate))).bind(std::uint64_t{facts.data.part});
  statement.bind(facts.data.from).bind(facts.data.to).bind(facts.tokens).bind(facts.overwritten).bind(facts.data.held_from);
  return statement.run();
}

Result<DroppedRecord> read_dropped(const Statement& row) {
  DroppedRecord dropped;
  dropped.run = RunId(row.text(0));
  dropped.lineage = static_cast<std::uint32_t>(row.number(1));
  dropped.island = IslandId(row.text(2));
  dropped.facts.fragment = static_cast<std::uint32_t>(row.number(3));
  dropped.round = Round(row.number(4));
  ATOLL_ASSIGN(dropped.fate, fate_from_string(row.text(5)));
  dropped.facts.data = DataRange{static_cast<std::uint32_t>(row.number(6)), row.number(7), row.number(8), row.number(11)};
  dropped.facts.tokens = row.number(9);
  dropped.facts.overwritten = row.number(10);
  return dropped;
}

// ------------------------------------------------------------------------------------------------------- parts of the data

Status write_row(Database& database, const PartRecord& part) {
  return database.prepare("INSERT OR REPLACE INTO parts(run, part, position, sequences, owner) VALUES(?,?,?,?,?)")
      .bind(part.run.text)
      .bind(part.part)
      .bind(part.position)
      .bind(part.sequences)
      .bind(part.owner.text)
      .run();
}

Result<PartRecord> read_part(const Statement& row) {
  PartRecord part;
  part.run = RunId(row.text(0));
  part.part = static_cast<std::uint32_t>(row.number(1));
  part.position = row.number(2);
  part.sequences = row.number(3);
  part.owner = IslandId(row.text(4));
  return part;
}

Status write_row(Database& database, const StretchRecord& stretch) {
  json classes = json::array();
  for (const DataClass& each : stretch.classes) {
    classes.push_back({each.number, each.next});
  }
  ATOLL_TRY(database.prepare("DELETE FROM stretches WHERE run=? AND part=? AND from_sequence>?")
                .bind(stretch.run.text)
                .bind(stretch.part)
                .bind(stretch.from)
                .run());
  return database.prepare("INSERT OR REPLACE INTO stretches(run, part, from_sequence, classes) VALUES(?,?,?,?)")
      .bind(stretch.run.text)
      .bind(stretch.part)
      .bind(stretch.from)
      .bind(classes.dump())
      .run();
}

Result<StretchRecord> read_stretch(const Statement& row) {
  StretchRecord stretch;
  stretch.run = RunId(row.text(0));
  stretch.part = static_cast<std::uint32_t>(row.number(1));
  stretch.from = row.number(2);
  const json classes = json::parse(row.text(3), nullptr, false);
  const auto pair = [](const json& each) {
    return each.is_array() && each.size() == 2 && each[0].is_number_unsigned() && each[1].is_number_unsigned();
  };
  if (!classes.is_array() || !std::ranges::all_of(classes, pair)) {
    return Error{Code::corrupt, "the classes of a part of the data are no list of pairs"};
  }
  for (const json& each : classes) {
    stretch.classes.push_back(DataClass{each[0].get<std::uint32_t>(), each[1].get<std::uint64_t>()});
  }
  return stretch;
}

// ------------------------------------------------------------------------------------------- events, metrics and reports

Status write_row(Database& database, const EventRecord& event) {
  json fields = json::object();
  for (const Field& field : event.fields) {
    std::visit([&](const auto& value) { fields[field.key] = value; }, field.value);
  }
  return database.prepare("INSERT INTO events(time_ms, run, island, level, kind, text, fields) VALUES(?,?,?,?,?,?,?)")
      .bind(unix_ms(event.time))
      .bind(event.run.text)
      .bind(event.island.text)
      .bind(event.level)
      .bind(event.kind)
      .bind(event.text)
      .bind(dump(fields))
      .run();
}

Status write_row(Database& database, const MetricRecord& metric) {
  // A second record of the same round fills in what the first had not measured.
  return database
      .prepare(
          "INSERT INTO metrics(run, island, round, time_ms, step, training_loss, outer_loss, local_loss, norm, "
          "wait_seconds, tokens, bytes_sent, bytes_received) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?) "
          "ON CONFLICT(run, round, island) DO UPDATE SET time_ms=excluded.time_ms, step=max(step, excluded.step), "
          "training_loss=coalesce(excluded.training_loss, training_loss), outer_loss=coalesce(excluded.outer_loss, outer_loss), "
          "local_loss=coalesce(excluded.local_loss, local_loss), norm=coalesce(excluded.norm, norm), "
          "wait_seconds=coalesce(excluded.wait_seconds, wait_seconds), tokens=max(tokens, excluded.tokens), "
          "bytes_sent=max(bytes_sent, excluded.bytes_sent), bytes_received=max(bytes_received, excluded.bytes_received)")
      .bind(metric.run.text)
      .bind(metric.island.text)
      .bind(metric.round.value)
      .bind(unix_ms(metric.time))
      .bind(metric.step.value)
      .bind(metric.facts.training_loss)
      .bind(metric.outer_loss)
      .bind(metric.local_loss)
      .bind(metric.facts.norm)
      .bind(metric.wait_seconds)
      .bind(metric.facts.tokens)
      .bind(metric.bytes_sent)
      .bind(metric.bytes_received)
      .run();
}

Status write_row(Database& database, const IslandId& island, const IslandReport& report, const Counters& carried) {
  json metrics = json::array();
  for (const OwnMetric& metric : report.metrics) {
    metrics.push_back(json::array({metric.name, std::isfinite(metric.value) ? json(metric.value) : json()}));
  }
  return database
      .prepare(
          "INSERT OR REPLACE INTO reports(run, island, state, reason, step, tokens, tokens_per_second, compute_seconds, wait_seconds, "
          "training_loss, bytes_sent, bytes_received, agent_memory_bytes, trainer_memory_bytes, carried_tokens, carried_compute_seconds, "
          "carried_wait_seconds, carried_bytes_sent, carried_bytes_received, parameters, metrics) "
          "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
      .bind(report.run.text)
      .bind(island.text)
      .bind(report.state)
      .bind(report.reason)
      .bind(report.step.value)
      .bind(report.tokens)
      .bind(report.tokens_per_second)
      .bind(report.compute_seconds)
      .bind(report.wait_seconds)
      .bind(report.training_loss)
      .bind(report.bytes_sent)
      .bind(report.bytes_received)
      .bind(report.agent_memory_bytes)
      .bind(report.trainer_memory_bytes)
      .bind(carried.tokens)
      .bind(carried.compute_seconds)
      .bind(carried.wait_seconds)
      .bind(carried.bytes_sent)
      .bind(carried.bytes_received)
      .bind(report.parameters)
      .bind(dump(metrics))
      .run();
}

std::pair<IslandId, IslandReport> read_report(const Statement& row) {
  IslandReport report;
  report.run = RunId(row.text(0));
  report.state = row.text(2);
  report.reason = row.text(3);
  report.step = Step(row.number(4));
  report.tokens = row.number(5);
  report.tokens_per_second = row.real(6);
  report.compute_seconds = row.real(7);
  report.wait_seconds = row.real(8);
  report.training_loss = row.real(9);
  report.bytes_sent = row.number(10);
  report.bytes_received = row.number(11);
  report.agent_memory_bytes = row.number(12);
  report.trainer_memory_bytes = row.number(13);
  report.parameters = row.number(19);
  for (const json& metric : json::parse(row.text(20), nullptr, false)) {
    if (metric.is_array() && metric.size() == 2 && metric[0].is_string()) {
      report.metrics.push_back({metric[0].get<std::string>(), metric[1].is_number() ? metric[1].get<double>() : std::nan("")});
    }
  }
  return {IslandId(row.text(1)), std::move(report)};
}

Counters read_carried(const Statement& row) { return {row.number(14), row.real(15), row.real(16), row.number(17), row.number(18)}; }

}  // namespace atl::coordinator
