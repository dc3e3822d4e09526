#include "coordinator/ledger/record_rows.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "coordinator/ledger/schema.hpp"

namespace atl::coordinator {

using nlohmann::json;

namespace {

// ------------------------------------------------------------------------------------------------- values within a list

json json_of(const IslandId& id) { return id.text; }
json json_of(const std::string& text) { return text; }
json json_of(std::uint64_t number) { return number; }
json json_of(double number) { return std::isfinite(number) ? json(number) : json(); }
json json_of(const PlaceCouples::value_type& couple) { return {couple.first, couple.second}; }
json json_of(const DataClass& each) { return {each.number, each.next}; }
json json_of(const OwnMetric& metric) { return json::array({metric.name, json_of(metric.value)}); }

json json_of(const DataRange& range) {
  json list = {range.part, range.from, range.to};
  if (range.held() > range.from) {
    list.push_back(range.held());
  }
  return list;
}

json json_of(const Absence& absence) {
  return {absence.from.value, absence.to ? json(absence.to->value) : json(), absence.cause, unix_ms(absence.since),
          absence.until ? json(unix_ms(*absence.until)) : json()};
}

bool are_numbers(const json& list, std::size_t least, std::size_t most) {
  return list.is_array() && list.size() >= least && list.size() <= most &&
         std::ranges::all_of(list, [](const json& number) { return number.is_number_unsigned(); });
}

bool from_json(const json& item, std::string& text) {
  text = item.is_string() ? item.get<std::string>() : "";
  return item.is_string();
}
bool from_json(const json& item, IslandId& id) { return from_json(item, id.text); }
bool from_json(const json& item, std::uint64_t& number) {
  number = item.is_number_unsigned() ? item.get<std::uint64_t>() : 0;
  return item.is_number_unsigned();
}
bool from_json(const json& item, double& number) {
  number = item.is_number() ? item.get<double>() : kNotMeasured;
  return item.is_number() || item.is_null();
}

bool from_json(const json& item, PlaceCouples::value_type& couple) {
  if (!are_numbers(item, 2, 2)) {
    return false;
  }
  couple = {item[0].get<std::uint32_t>(), item[1].get<std::uint32_t>()};
  return true;
}

bool from_json(const json& item, DataClass& each) {
  if (!are_numbers(item, 2, 2)) {
    return false;
  }
  each = DataClass{item[0].get<std::uint32_t>(), item[1].get<std::uint64_t>()};
  return true;
}

bool from_json(const json& item, OwnMetric& metric) {
  return item.is_array() && item.size() == 2 && from_json(item[0], metric.name) && from_json(item[1], metric.value);
}

bool from_json(const json& item, DataRange& range) {
  if (!are_numbers(item, 3, 4)) {
    return false;
  }
  range = DataRange{item[0].get<std::uint32_t>(), item[1].get<std::uint64_t>(), item[2].get<std::uint64_t>(),
                    item.size() > 3 ? item[3].get<std::uint64_t>() : 0};
  return true;
}

bool from_json(const json& item, Absence& absence) {
  if (!item.is_array() || item.size() != 5 || !from_json(item[0], absence.from.value) || !from_json(item[2], absence.cause) ||
      !item[3].is_number_integer()) {
    return false;
  }
  if (item[1].is_number_unsigned()) {
    absence.to = Round(item[1].get<std::uint64_t>());
  }
  absence.since = from_unix_ms(item[3].get<std::int64_t>());
  if (item[4].is_number_integer()) {
    absence.until = from_unix_ms(item[4].get<std::int64_t>());
  }
  return true;
}

// ------------------------------------------------------------------------------------------------------ one value of a row

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

template <typename Value>
concept Plain = std::integral<Value> || std::floating_point<Value> || std::same_as<Value, std::string> || std::same_as<Value, Digest>;

template <Plain Value>
void put(Statement& statement, const Value& value) {
  statement.bind(value);
}
template <typename Tag>
void put(Statement& statement, const TextId<Tag>& id) {
  statement.bind(id.text);
}
template <typename Tag, typename Integer>
void put(Statement& statement, const Number<Tag, Integer>& number) {
  statement.bind(number.value);
}
void put(Statement& statement, const TimePoint& time) { statement.bind(unix_ms(time)); }
template <typename Name>
requires std::is_enum_v<Name>
void put(Statement& statement, Name name) { statement.bind(std::string_view(to_string(name))); }
template <typename Value>
void put(Statement& statement, const std::optional<Value>& value) {
  if (value) {
    put(statement, *value);
  } else {
    statement.bind_null();
  }
}
// A list is a JSON array, so that `sqlite3 ledger.db` can take it apart.
template <typename Value>
void put(Statement& statement, const std::vector<Value>& list) {
  json array = json::array();
  for (const Value& each : list) {
    array.push_back(json_of(each));
  }
  statement.bind(dump(array));
}

Result<RunState> named(std::string_view name, RunState) { return run_state_from_string(name); }
Result<MembershipState> named(std::string_view name, MembershipState) { return membership_state_from_string(name); }
Result<TaskState> named(std::string_view name, TaskState) { return task_state_from_string(name); }
Result<Fate> named(std::string_view name, Fate) { return fate_from_string(name); }

// False: no writer wrote this.
bool get(const Statement& row, int column, std::string& value) {
  value = row.text(column);
  return true;
}
bool get(const Statement& row, int column, Digest& value) {
  value = row.digest(column);
  return true;
}
bool get(const Statement& row, int column, double& value) {
  value = row.real(column);
  return true;
}
bool get(const Statement& row, int column, bool& value) {
  value = row.boolean(column);
  return true;
}
template <std::unsigned_integral Value>
bool get(const Statement& row, int column, Value& value) {
  value = static_cast<Value>(row.number(column));
  return true;
}
template <typename Tag>
bool get(const Statement& row, int column, TextId<Tag>& id) {
  return get(row, column, id.text);
}
template <typename Tag, typename Integer>
bool get(const Statement& row, int column, Number<Tag, Integer>& number) {
  return get(row, column, number.value);
}
bool get(const Statement& row, int column, TimePoint& time) {
  time = from_unix_ms(row.integer(column));
  return true;
}
template <typename Name>
requires std::is_enum_v<Name>
bool get(const Statement& row, int column, Name& name) {
  const Result<Name> known = named(row.text(column), name);
  name = known ? *known : name;
  return known.has_value();
}
template <typename Value>
bool get(const Statement& row, int column, std::optional<Value>& value) {
  if (row.null(column)) {
    value.reset();
    return true;
  }
  return get(row, column, value.emplace());
}
template <typename Value>
bool get(const Statement& row, int column, std::vector<Value>& list) {
  const json array = json::parse(row.text(column), nullptr, false);
  return array.is_array() && std::ranges::all_of(array, [&](const json& item) { return from_json(item, list.emplace_back()); });
}

// ------------------------------------------------------------------------------------------------------------ rows

// A round as a row: facts of its members are lists, each in their order.
struct RoundRow {
  RoundRecord round;
  std::vector<std::uint64_t> tokens, steps, staleness, overwritten;
  std::vector<double> norms;
  std::vector<DataRange> data;
};

template <typename Given, typename Row>
concept Of = std::same_as<std::remove_const_t<Given>, Row>;
template <typename Row>
constexpr std::string_view kTable;

// Each row once: its columns, in their order, and what is in them. `use` names them, binds them or reads them.
template <>
constexpr std::string_view kTable<RunRecord> = "runs";
template <typename Use, Of<RunRecord> Row>
void describe(Use& use, Row& run) {
  use("run", run.id), use("name", run.name), use("file", run.file), use("spec", run.spec), use("state", run.state),
      use("reason", run.reason.text), use("reason_since_ms", run.reason.since), use("reason_until_ms", run.reason.until),
      use.error("error_code", "error_why", run.error), use("submitted_ms", run.submitted), use("started_ms", run.started),
      use("ended_ms", run.ended), use("epoch", run.epoch), use("lineage", run.lineage), use("initialised", run.initialised),
      use("committed", run.committed), use("digest", run.digest), use("tokens", run.tokens), use("pause_after", run.pause_after),
      use("restored", run.restored), use("enough", run.enough), use("copied", run.copied), use("decided_restored", run.decided.restored),
      use("decided_starts", run.decided.starts), use("decided_life", run.decided.life);
}

template <>
constexpr std::string_view kTable<MembershipRecord> = "memberships";
template <typename Use, Of<MembershipRecord> Row>
void describe(Use& use, Row& membership) {
  use("run", membership.run), use("island", membership.island), use("part", membership.part), use("state", membership.state),
      use("cause", membership.cause), use("absences", membership.absences), use("offences", membership.offences),
      use("left_epoch", membership.left);
}

template <>
constexpr std::string_view kTable<EpochRecord> = "epochs";
template <typename Use, Of<EpochRecord> Row>
void describe(Use& use, Row& epoch) {
  use("run", epoch.run), use("epoch", epoch.epoch), use("time_ms", epoch.time), use("committed", epoch.committed),
      use("members", epoch.members), use("why", epoch.why), use("avoid", epoch.avoid);
}

template <>
constexpr std::string_view kTable<IslandRecord> = "islands";
template <typename Use, Of<IslandRecord> Row>
void describe(Use& use, Row& island) {
  use("island", island.id), use("name", island.name), use("public_key", island.public_key), use("bulk_address", island.bulk_address),
      use("version", island.version), use("platform", island.platform), use("data_sets", island.data_sets), use("boot", island.boot),
      use("last_hello_ms", island.last_hello);
}

template <>
constexpr std::string_view kTable<TaskRecord> = "tasks";
template <typename Use, Of<TaskRecord> Row>
void describe(Use& use, Row& task) {
  use("run", task.run), use("task", task.task), use("state", task.state), use("island", task.island), use("starts", task.starts),
      use("result", task.result), use("result_bytes", task.result_bytes), use("facts", task.facts), use("checkpoint", task.checkpoint),
      use("checkpoint_bytes", task.checkpoint_bytes), use("checkpoint_step", task.checkpoint_step), use("started_ms", task.started),
      use("ended_ms", task.ended), use("group_run", task.group), use("members", task.members);
}

template <>
constexpr std::string_view kTable<RoundRow> = "rounds";
template <typename Use, Of<RoundRow> Row>
void describe(Use& use, Row& row) {
  use("run", row.round.run), use("lineage", row.round.lineage), use("round", row.round.round), use("epoch", row.round.epoch),
      use("attempt", row.round.attempt), use("committed", row.round.committed), use("checkpoint", row.round.checkpoint),
      use("members", row.round.members), use("tokens", row.tokens), use("digest", row.round.digest), use("planned_ms", row.round.planned),
      use("committed_ms", row.round.committed_at), use("data", row.data), use("parts", row.round.parts),
      use("fragment", row.round.fragment), use("steps", row.steps), use("norms", row.norms), use("staleness", row.staleness),
      use("overwritten", row.overwritten);
}

template <>
constexpr std::string_view kTable<DroppedRecord> = "dropped";
template <typename Use, Of<DroppedRecord> Row>
void describe(Use& use, Row& dropped) {
  use("run", dropped.run), use("lineage", dropped.lineage), use("island", dropped.island), use("fragment", dropped.facts.fragment),
      use("round", dropped.round), use("fate", dropped.fate), use("part", dropped.facts.data.part),
      use("from_sequence", dropped.facts.data.from), use("to_sequence", dropped.facts.data.to), use("tokens", dropped.facts.tokens),
      use("overwritten", dropped.facts.overwritten), use("held_from", dropped.facts.data.held_from);
}

template <>
constexpr std::string_view kTable<PartRecord> = "parts";
template <typename Use, Of<PartRecord> Row>
void describe(Use& use, Row& part) {
  use("run", part.run), use("part", part.part), use("position", part.position), use("sequences", part.sequences), use("owner", part.owner);
}

template <>
constexpr std::string_view kTable<StretchRecord> = "stretches";
template <typename Use, Of<StretchRecord> Row>
void describe(Use& use, Row& stretch) {
  use("run", stretch.run), use("part", stretch.part), use("from_sequence", stretch.from), use("classes", stretch.classes);
}

template <>
constexpr std::string_view kTable<RemovedRecord> = "removed";
template <typename Use, Of<RemovedRecord> Row>
void describe(Use& use, Row& removed) {
  use("run", removed.run), use("name", removed.name), use("removed_ms", removed.time), use("epoch", removed.epoch),
      use("round", removed.round);
}

template <>
constexpr std::string_view kTable<MetricRecord> = "metrics";
template <typename Use, Of<MetricRecord> Row>
void describe(Use& use, Row& metric) {
  use("run", metric.run), use("island", metric.island), use("round", metric.round), use("time_ms", metric.time), use("step", metric.step),
      use("training_loss", metric.facts.training_loss), use("outer_loss", metric.outer_loss), use("local_loss", metric.local_loss),
      use("norm", metric.facts.norm), use("wait_seconds", metric.wait_seconds), use("tokens", metric.facts.tokens),
      use("bytes_sent", metric.bytes_sent), use("bytes_received", metric.bytes_received);
}

template <>
constexpr std::string_view kTable<ReportRow> = "reports";
template <typename Use, Of<ReportRow> Row>
void describe(Use& use, Row& row) {
  use("run", row.report.run), use("island", row.island), use("state", row.report.state), use("reason", row.report.reason),
      use("step", row.report.step), use("tokens", row.report.tokens), use("tokens_per_second", row.report.tokens_per_second),
      use("compute_seconds", row.report.compute_seconds), use("wait_seconds", row.report.wait_seconds),
      use("training_loss", row.report.training_loss), use("bytes_sent", row.report.bytes_sent),
      use("bytes_received", row.report.bytes_received), use("agent_memory_bytes", row.report.agent_memory_bytes),
      use("trainer_memory_bytes", row.report.trainer_memory_bytes), use("carried_tokens", row.carried.tokens),
      use("carried_compute_seconds", row.carried.compute_seconds), use("carried_wait_seconds", row.carried.wait_seconds),
      use("carried_bytes_sent", row.carried.bytes_sent), use("carried_bytes_received", row.carried.bytes_received),
      use("parameters", row.report.parameters), use("metrics", row.report.metrics);
}

// -------------------------------------------------------------------------------------------------- what is done with columns

struct Names {
  std::vector<std::string> all = {};
  template <typename Value>
  void operator()(const char* name, const Value&) {
    all.emplace_back(name);
  }
  void error(const char* code, const char* why, const std::optional<Error>&) { all.insert(all.end(), {code, why}); }
};

struct Binder {
  Statement& statement;
  template <typename Value>
  void operator()(const char*, const Value& value) {
    put(statement, value);
  }
  void error(const char*, const char*, const std::optional<Error>& error) {
    put(statement, error ? std::optional(std::string(to_string(error->code))) : std::nullopt);
    put(statement, error ? std::optional(error->why) : std::nullopt);
  }
};

struct Reader {
  const Statement& row;
  int at = 0;
  const char* broken = nullptr;  // the first that no writer wrote
  template <typename Value>
  void operator()(const char* name, Value& value) {
    broken = get(row, at++, value) || broken != nullptr ? broken : name;
  }
  void error(const char*, const char*, std::optional<Error>& error) {
    if (!row.null(at)) {
      error = Error{code_from_string(row.text(at)), row.text(at + 1)};
    }
    at += 2;
  }
};

template <typename Row>
const std::vector<std::string>& names_of() {
  static const std::vector<std::string> names = [] {
    Names columns;
    const Row row{};
    describe(columns, row);
    return columns.all;
  }();
  return names;
}

template <typename Row>
std::string listed() {
  std::string list;
  for (const std::string& name : names_of<Row>()) {
    list += (list.empty() ? "" : ", ") + name;
  }
  return list;
}

// `verb` is "INSERT INTO" or one of its kind, `rest` what follows the values.
template <typename Row>
Status insert(Database& database, const Row& row, const std::string& verb, const std::string& rest = "") {
  static const std::string values = std::string(kTable<Row>) + "(" + listed<Row>() + ") VALUES(?" + [] {
    std::string marks;
    for (std::size_t i = 1; i < names_of<Row>().size(); ++i) {
      marks += ",?";
    }
    return marks + ")";
  }();
  Statement statement = database.prepare(verb + " " + values + rest);
  Binder binder{statement};
  describe(binder, row);
  return statement.run();
}

template <typename Row>
Status replace(Database& database, const Row& row) {
  return insert(database, row, "INSERT OR REPLACE INTO");
}

// The row that stands for a record, and the record of a row. What lists say of members that are not there is left out.
template <typename Record>
struct RowOf {
  using Row = Record;
};
template <>
struct RowOf<RoundRecord> {
  using Row = RoundRow;
};

template <typename Row>
Result<Row> record_of(Row row) {
  return row;
}

Result<EpochRecord> record_of(EpochRecord epoch) {
  const std::size_t members = epoch.members.size();
  if (std::ranges::any_of(epoch.avoid, [&](const auto& couple) { return couple.first >= members || couple.second >= members; })) {
    return Error{Code::corrupt, "the ledger's table epochs has a path to avoid between islands that are no members"};
  }
  return epoch;
}

Result<RoundRecord> record_of(RoundRow row) {
  row.round.unnoted = row.data.empty() && !row.round.members.empty();
  // Rows of an older atoll have shorter lists.
  const auto at = [](const auto& list, std::size_t i) {
    return i < list.size() ? list[i] : typename std::remove_cvref_t<decltype(list)>::value_type{};
  };
  for (std::size_t i = 0; i < row.round.members.size(); ++i) {
    ContributionFacts& facts = row.round.contributions.emplace_back();
    facts.tokens = at(row.tokens, i);
    facts.steps = at(row.steps, i);
    const double norm = at(row.norms, i);
    facts.norm = std::isfinite(norm) ? norm : 0.0;  // what is no finite number is null
    facts.fragment = row.round.fragment;
    facts.data = at(row.data, i);
    facts.staleness = static_cast<std::uint32_t>(at(row.staleness, i));
    facts.overwritten = at(row.overwritten, i);
  }
  return std::move(row.round);
}

}  // namespace

template <typename Record>
std::string columns_of() {
  return listed<typename RowOf<Record>::Row>();
}

template <typename Record>
std::string select(const std::string& rest) {
  using Row = typename RowOf<Record>::Row;
  return "SELECT " + listed<Row>() + " FROM " + std::string(kTable<Row>) + " " + rest;
}

template <typename Record>
Result<Record> read_row(const Statement& statement) {
  typename RowOf<Record>::Row row{};
  Reader reader{statement};
  describe(reader, row);
  if (reader.broken != nullptr) {
    return Error{Code::corrupt, "the ledger's table " + std::string(kTable<typename RowOf<Record>::Row>) + " has a value of " +
                                    reader.broken + " that cannot be read"};
  }
  return record_of(std::move(row));
}

template <typename Record>
Result<std::vector<Record>> read_rows(Statement rows) {
  std::vector<Record> all;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return all;
    }
    ATOLL_ASSIGN(Record record, read_row<Record>(rows));
    all.push_back(std::move(record));
  }
}

#define ATOLL_READ(Record)                                    \
  template std::string columns_of<Record>();                  \
  template std::string select<Record>(const std::string&);    \
  template Result<Record> read_row<Record>(const Statement&); \
  template Result<std::vector<Record>> read_rows<Record>(Statement);
ATOLL_READ(RunRecord)
ATOLL_READ(MembershipRecord)
ATOLL_READ(EpochRecord)
ATOLL_READ(IslandRecord)
ATOLL_READ(TaskRecord)
ATOLL_READ(RoundRecord)
ATOLL_READ(DroppedRecord)
ATOLL_READ(PartRecord)
ATOLL_READ(StretchRecord)
ATOLL_READ(RemovedRecord)
ATOLL_READ(ReportRow)
#undef ATOLL_READ

Status write_row(Database& database, const RunRecord& run) { return replace(database, run); }
Status write_row(Database& database, const MembershipRecord& membership) { return replace(database, membership); }
Status write_row(Database& database, const EpochRecord& epoch) { return replace(database, epoch); }
Status write_row(Database& database, const IslandRecord& island) { return replace(database, island); }
Status write_row(Database& database, const TaskRecord& task) { return replace(database, task); }
Status write_row(Database& database, const PartRecord& part) { return replace(database, part); }
Status write_row(Database& database, const ReportRow& row) { return replace(database, row); }
Status write_row(Database& database, const DroppedRecord& dropped) { return insert(database, dropped, "INSERT OR IGNORE INTO"); }

Status write_row(Database& database, const Superseded& superseded) {
  Statement statement = database.prepare("UPDATE store SET newer_restored=?, newer_starts=?, newer_island=?, newer_ms=? WHERE id=1");
  statement.bind(superseded.by.restored);
  statement.bind(superseded.by.starts);
  statement.bind(superseded.island);
  statement.bind(unix_ms(superseded.time));
  return statement.run();
}

Status write_row(Database& database, const RoundRecord& round) {
  const std::vector<ContributionFacts>& facts = round.contributions;
  RoundRow row{.round = round,
               .tokens = each_of(facts, &ContributionFacts::tokens),
               .steps = each_of(facts, &ContributionFacts::steps),
               .staleness = {},
               .overwritten = each_of(facts, &ContributionFacts::overwritten),
               .norms = each_of(facts, &ContributionFacts::norm),
               .data = round.unnoted ? std::vector<DataRange>() : each_of(facts, &ContributionFacts::data)};
  const std::vector<std::uint32_t> staleness = each_of(facts, &ContributionFacts::staleness);
  row.staleness.assign(staleness.begin(), staleness.end());
  // A committed round is never replaced, whatever the core thinks.
  static const std::string unless_committed = [] {
    std::string others;
    for (const std::string& name : names_of<RoundRow>()) {
      others += (others.empty() ? "" : ", ") + name + "=excluded." + name;
    }
    return " ON CONFLICT(run, lineage, round) DO UPDATE SET " + others + " WHERE committed=0";
  }();
  return insert(database, row, "INSERT INTO", unless_committed);
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

Status write_row(Database& database, const StretchRecord& stretch) {
  ATOLL_TRY(database.prepare("DELETE FROM stretches WHERE run=? AND part=? AND from_sequence>?")
                .bind(stretch.run.text)
                .bind(stretch.part)
                .bind(stretch.from)
                .run());
  return replace(database, stretch);
}

Status write_row(Database& database, const MetricRecord& metric) {
  // A second record of the same round fills in what the first had not measured.
  return insert(database, metric, "INSERT INTO",
                " ON CONFLICT(run, round, island) DO UPDATE SET time_ms=excluded.time_ms, step=max(step, excluded.step), "
                "training_loss=coalesce(excluded.training_loss, training_loss), outer_loss=coalesce(excluded.outer_loss, outer_loss), "
                "local_loss=coalesce(excluded.local_loss, local_loss), norm=coalesce(excluded.norm, norm), "
                "wait_seconds=coalesce(excluded.wait_seconds, wait_seconds), tokens=max(tokens, excluded.tokens), "
                "bytes_sent=max(bytes_sent, excluded.bytes_sent), bytes_received=max(bytes_received, excluded.bytes_received)");
}

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

Status write_row(Database& database, const RemovedRecord& removed) {
  if (removed.lifted) {
    return database.prepare("DELETE FROM removed WHERE run=?").bind(removed.run.text).run();
  }
  for (const Table& table : ledger_tables()) {
    if (table.columns.find("run TEXT NOT NULL, ") != std::string_view::npos && table.name != kTable<RemovedRecord>) {
      ATOLL_TRY(database.prepare("DELETE FROM " + std::string(table.name) + " WHERE run=?").bind(removed.run.text).run());
    }
  }
  return replace(database, removed);
}

}  // namespace atl::coordinator
