// The ledger: what is written is read back, batches are whole, a kill or a full disk loses nothing that was acknowledged.
#include "coordinator/ledger/ledger.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>

#include "coordinator/ledger/schema.hpp"
#include "tests/catch.hpp"
#include "tests/full_disk.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/rng.hpp"

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'767'225'600'123);

Digest digest(std::uint64_t number) {
  Digest digest;
  std::memcpy(digest.bytes.data(), &number, sizeof number);
  return digest;
}

RunRecord run_record(const std::string& id = "r-1", std::uint64_t committed = 0) {
  RunRecord run;
  run.id = RunId(id);
  run.name = "text";
  run.file = "[run]\nname = \"text\"\n";
  run.spec = "{\"name\":\"text\"}";
  run.state = RunState::running;
  run.reason = {"round 8: waits for b", kStart, kStart + 10min};
  run.submitted = kStart;
  run.started = kStart + 1s;
  run.epoch = Epoch(2);
  run.initialised = true;
  run.committed = Round(committed);
  run.digest = digest(committed);
  run.tokens = 1234;
  return run;
}

RoundRecord round_record(std::uint64_t number, bool committed, bool checkpoint = false) {
  RoundRecord round;
  round.run = RunId("r-1");
  round.round = Round(number);
  round.epoch = Epoch(2);
  round.attempt = Attempt(1);
  round.committed = committed;
  round.checkpoint = checkpoint;
  round.members = {IslandId("i-a"), IslandId("i-b")};
  round.tokens = {100, 18'446'744'073'709'551'615ULL};
  round.planned = kStart;
  if (committed) {
    round.digest = digest(number);
    round.committed_at = kStart + 1s;
  }
  return round;
}

EventRecord event_record(std::uint64_t number, std::string level = "info") {
  return {kStart + std::chrono::seconds(number),
          RunId("r-1"),
          IslandId(number % 2 == 0 ? "i-a" : "i-b"),
          std::move(level),
          "round_committed",
          "round " + std::to_string(number),
          {{"round", static_cast<std::int64_t>(number)}, {"seconds", 0.5}, {"why", std::string("\"q\"")}}};
}

MetricRecord metric_record(std::uint64_t round, double outer) {
  MetricRecord metric;
  metric.time = kStart;
  metric.run = RunId("r-1");
  metric.island = IslandId("i-a");
  metric.round = Round(round);
  metric.outer_loss = outer;
  metric.local_loss = outer + 0.5;
  metric.training_loss = std::numeric_limits<double>::quiet_NaN();
  return metric;
}

Status write(Ledger& ledger, std::vector<Record> records) { return ledger.write(records); }

}  // namespace

TEST_CASE("a task comes back with the group that works on it") {
  const atl_test::TemporaryFolder directory;
  TaskRecord alone;
  alone.run = RunId("r-1");
  alone.task = "experts/0";
  alone.facts = "{}";
  TaskRecord grouped = alone;
  grouped.task = "experts/1";
  grouped.state = TaskState::running;
  grouped.island = IslandId("i-b");
  grouped.starts = 2;
  grouped.checkpoint = digest(5);
  grouped.started = kStart;
  grouped.group = RunId("g-1");
  grouped.members = {IslandId("i-a"), IslandId("i-b")};
  {
    Ledger ledger = Ledger::open(directory.path()).value();
    REQUIRE(write(ledger, {run_record(), alone, grouped}).ok());
  }
  const Recovered back = Ledger::open(directory.path()).value().recover().value();
  CHECK(back.tasks == std::vector<TaskRecord>{alone, grouped});
}

TEST_CASE("every kind of record comes back as it was written, the newest of each key") {
  const atl_test::TemporaryFolder directory;
  RunRecord run = run_record();
  MembershipRecord membership{
      RunId("r-1"),
      IslandId("i-a"),
      3,
      MembershipState::absent,
      "lost: no heartbeat for 5.0 s",
      {{Round(3), Round(5), "a\tb\n\"c\"", kStart, kStart + 1s}, {Round(9), std::nullopt, "", kStart, std::nullopt}},
      2,
      Epoch(7)};
  EpochRecord old_epoch{RunId("r-1"), Epoch(1), kStart, Round(0), {IslandId("i-a")}, "first"};
  EpochRecord epoch{RunId("r-1"), Epoch(2), kStart, Round(4), {IslandId("i-a"), IslandId("i-b")}, "i-b joined"};
  IslandRecord island{IslandId("i-a"), "a", "key", "tcp://1.2.3.4:5", "0.1.0", "Linux", {"corpus", "x y"}, ~0ULL, kStart};
  {
    Ledger ledger = Ledger::open(directory.path()).value();
    RunRecord first = run;
    first.state = RunState::queued;
    REQUIRE(write(ledger, {first, membership, epoch, old_epoch, island, round_record(1, false), event_record(1)}).ok());
    run.error = Error{Code::corrupt, "why"};
    run.ended = kStart + 2s;
    run.pause_after = Round(9);
    run.restored = true;
    REQUIRE(write(ledger, {run, round_record(1, true, true), round_record(2, false)}).ok());
    // A committed round is never replaced.
    REQUIRE(write(ledger, {round_record(1, false)}).ok());
  }
  Ledger ledger = Ledger::open(directory.path()).value();
  const Recovered recovered = ledger.recover().value();
  const auto to_ms = [](RunRecord record) { return record; };
  REQUIRE(recovered.runs.size() == 1);
  CHECK(recovered.runs[0] == to_ms(run));
  CHECK(recovered.memberships == std::vector{membership});
  CHECK(recovered.epochs == std::vector{epoch});
  CHECK(recovered.islands == std::vector{island});
  CHECK(recovered.rounds == std::vector{round_record(1, true, true), round_record(2, false)});
  CHECK(ledger.checkpoint_round(RunId("r-1")).value() == Round(1));
}

TEST_CASE("recovery reads the newest rounds and the newest checkpointed ones of the present lineage only") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  std::vector<Record> records;
  RunRecord run = run_record("r-1", 1000);
  run.lineage = 1;
  records.emplace_back(run);
  for (std::uint64_t number = 1; number <= 1000; ++number) {
    RoundRecord round = round_record(number, true, number % 10 == 0);
    round.lineage = number <= 5 ? 0 : 1;
    records.emplace_back(round);
  }
  REQUIRE(ledger.write(records).ok());
  const Recovered recovered = ledger.recover().value();
  CHECK(recovered.rounds.size() == 64 + 100 - 7);
  CHECK(recovered.rounds.front().round == Round(10));
  CHECK(recovered.rounds.back().round == Round(1000));
}

TEST_CASE("events have a cursor, filters and keep their order, warnings are the newest") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  std::vector<Record> records;
  for (std::uint64_t number = 1; number <= 50; ++number) {
    records.emplace_back(event_record(number, number % 10 == 0 ? "warning" : "info"));
  }
  REQUIRE(ledger.write(records).ok());
  EventQuery query{RunId("r-1"), 0, 20, {}, {}};
  std::uint64_t seen = 0;
  for (;;) {
    const auto events = ledger.events(query).value();
    if (events.empty()) {
      break;
    }
    for (const StoredEvent& stored : events) {
      CHECK(stored.event.text == "round " + std::to_string(++seen));
      query.after = stored.sequence;
    }
  }
  CHECK(seen == 50);
  CHECK(ledger.events({RunId("r-1"), 0, 1000, IslandId("i-a"), {}})->size() == 25);
  CHECK(ledger.events({RunId("r-1"), 0, 1000, {}, kStart + 41s})->size() == 10);
  CHECK(ledger.events({RunId("r-2"), 0, 1000, {}, {}})->empty());
  const auto warnings = ledger.warnings(RunId("r-1"), 3).value();
  REQUIRE(warnings.size() == 3);
  CHECK(warnings[0].event.text == "round 30");
  CHECK(warnings[2].event.text == "round 50");
  CHECK(warnings[2].fields == R"({"round":50,"seconds":0.5,"why":"\"q\""})");
}

TEST_CASE("long series are thinned evenly and keep their ends") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Record> records;
  for (std::uint64_t round = 0; round <= 20'000; ++round) {
    records.emplace_back(metric_record(round, round % 10 == 0 ? 5.0 - static_cast<double>(round) * 1e-4 : nan));
    if (round % 100 == 0) {
      REQUIRE(ledger.write(records).ok());
      records.clear();
    }
  }
  const auto losses = ledger.losses(RunId("r-1")).value();
  CHECK(losses.size() >= 256);
  CHECK(losses.size() <= 600);
  CHECK(losses.front().round == Round(0));
  CHECK(losses.back().round == Round(20'000));
  CHECK(losses.back().local_loss == Approx(losses.back().outer_loss + 0.5));
  std::uint64_t widest = 0;
  for (std::size_t i = 1; i < losses.size(); ++i) {
    widest = std::max(widest, losses[i].round.value - losses[i - 1].round.value);
  }
  CHECK(widest <= 4 * 20'000 / 512);
  CHECK(ledger.newest_loss(RunId("r-1")).value()->round == Round(20'000));
  CHECK_FALSE(ledger.newest_loss(RunId("r-9")).value().has_value());
}

TEST_CASE("the newest loss of each island's own parameters, of rounds before all were merged") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  std::vector<Record> records;
  const auto measured = [&](const char* island, std::uint64_t round, double loss) {
    MetricRecord metric = metric_record(round, loss);
    metric.island = IslandId(island);
    records.emplace_back(metric);
  };
  measured("i-a", 0, 5.5);
  measured("i-b", 0, 5.5);
  measured("i-c", 0, 5.5);
  measured("i-a", 10, 2.0);
  measured("i-b", 10, 2.2);
  measured("i-a", 20, 1.8);
  measured("i-b", 20, std::numeric_limits<double>::quiet_NaN());
  measured("i-a", 21, 1.7);  // merged
  measured("i-b", 21, 1.7);
  REQUIRE(ledger.write(records).ok());
  const std::map<IslandId, OwnLoss> losses = ledger.own_losses(RunId("r-1"), Round(20)).value();
  REQUIRE(losses.size() == 2);
  CHECK(losses.at(IslandId("i-a")).loss == 1.8);
  CHECK(losses.at(IslandId("i-a")).round == Round(20));
  CHECK(losses.at(IslandId("i-b")).loss == 2.2);
  CHECK(losses.at(IslandId("i-b")).round == Round(10));
}

TEST_CASE("the files of an island's newest checkpoints are remembered") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  for (std::uint64_t round = 1; round <= 20; ++round) {
    REQUIRE(
        ledger
            .write_checkpoint(IslandId("i-a"), Checkpointed{RunId("r-1"), Round(round), digest(round), digest(100 + round), 7 * round, {}})
            .ok());
  }
  const auto file = ledger.checkpoint_file(RunId("r-1"), IslandId("i-a"), Round(20), digest(20)).value();
  REQUIRE(file.has_value());
  CHECK(file->file == digest(120));
  CHECK(file->bytes == 140);
  CHECK_FALSE(ledger.checkpoint_file(RunId("r-1"), IslandId("i-a"), Round(20), digest(19))->has_value());
  CHECK_FALSE(ledger.checkpoint_file(RunId("r-1"), IslandId("i-a"), Round(12), digest(12))->has_value());
  CHECK_FALSE(ledger.checkpoint_file(RunId("r-1"), IslandId("i-b"), Round(20), digest(20))->has_value());
}

TEST_CASE("reports replace older ones") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  IslandReport report;
  report.run = RunId("r-1");
  report.state = "training";
  report.tokens = 5;
  report.training_loss = std::numeric_limits<double>::quiet_NaN();
  RunningTotals totals;
  const auto put = [&] {
    const std::vector<std::pair<IslandId, IslandReport>> reports = {{IslandId("i-a"), totals.add(IslandId("i-a"), report)}};
    return ledger.write_reports(reports, totals);
  };
  REQUIRE(put().ok());
  report.tokens = 9;
  report.bytes_sent = 7;
  REQUIRE(put().ok());
  const auto reports = ledger.reports(RunId("r-1")).value();
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].first == IslandId("i-a"));
  CHECK(reports[0].second.tokens == 9);
  CHECK(reports[0].second.bytes_sent == 7);
  CHECK(std::isnan(reports[0].second.training_loss));
}

TEST_CASE("what islands counted before they began again is in the ledger") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  RunRecord run = run_record();
  REQUIRE(ledger.write(std::vector<Record>{run}).ok());
  const IslandId island("i-a");
  IslandReport report;
  report.run = run.id;
  RunningTotals totals;
  std::vector<std::pair<IslandId, IslandReport>> reports;
  for (const std::uint64_t tokens : {100U, 30U}) {
    report.tokens = tokens;
    reports = {{island, totals.add(island, report)}};
    REQUIRE(ledger.write_reports(reports, totals).ok());
  }
  CHECK(ledger.reports(run.id).value().at(0).second.tokens == 130);
  RunningTotals again = ledger.totals().value();
  CHECK(again.carried(run.id, island).tokens == 100);
  report.tokens = 40;
  CHECK(again.add(island, report).tokens == 140);
}

TEST_CASE("spans are kept once however often they are told, in pages, the newest of each run") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  const auto span = [](std::uint64_t number) {
    return Span{static_cast<SpanKind>(number % 9),      Round(number / 3), 2,     IslandId("i-b"),
                from_unix_ms(1'000) + Duration(number), Duration(40),      number};
  };
  const auto put = [&](const char* run, std::uint64_t from, std::uint64_t to) {
    std::vector<IslandSpan> spans;
    for (std::uint64_t number = from; number < to; ++number) {
      spans.push_back({RunId(run), IslandId("i-a"), span(number), "the link b → a"});
    }
    REQUIRE(ledger.write_spans(spans).ok());
  };
  put("r-1", 0, 10);
  put("r-1", 5, 12);
  put("r-2", 0, 3);
  const auto first = ledger.spans(RunId("r-1"), 0, 8).value();
  REQUIRE(first.size() == 8);
  const auto rest = ledger.spans(RunId("r-1"), first.back().id, 8).value();
  REQUIRE(rest.size() == 4);
  CHECK(rest.back().span.island == IslandId("i-a"));
  CHECK(rest.back().span.span == span(11));
  CHECK(rest.back().span.cause == "the link b → a");
  put("r-1", 12, Ledger::kSpansKept + 8'000);
  CHECK(ledger.spans(RunId("r-1"), 0, 1).value().front().span.span.amount >= 3'000);
  CHECK(ledger.spans(RunId("r-1"), 0, 2 * Ledger::kSpansKept).value().size() <= Ledger::kSpansKept + 5'000);
  CHECK(ledger.spans(RunId("r-2"), 0, 10).value().size() == 3);
}

TEST_CASE("a full disk fails the batch as a whole, and the next one succeeds when there is room") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  REQUIRE(write(ledger, {run_record("r-1", 1), round_record(1, true)}).ok());
  const auto largest =
      std::max(std::filesystem::file_size(directory.path() / "ledger.db"), std::filesystem::file_size(directory.path() / "ledger.db-wal"));
  std::vector<Record> batch = {run_record("r-1", 2), round_record(2, true)};
  for (std::uint64_t number = 0; number < 1000; ++number) {
    batch.emplace_back(event_record(number));
  }
  {
    const atl_test::FullDisk full(largest + 20'000);
    const Status refused = ledger.write(batch);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Code::io);
    CHECK(ledger.recover()->runs.at(0).committed == Round(1));
    CHECK(ledger.events({RunId("r-1"), 0, 1000, {}, {}})->empty());
  }
  REQUIRE(ledger.write(batch).ok());
  CHECK(ledger.recover()->runs.at(0).committed == Round(2));
  CHECK(ledger.events({RunId("r-1"), 0, 1000, {}, {}})->size() == 1000);
}

TEST_CASE("a ledger whose newest write was torn at any byte holds all of it or nothing") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  const std::filesystem::path log = directory.path() / "ledger.db-wal";
  const auto batch_of = [](std::uint64_t number) {
    return std::vector<Record>{run_record("r-1", number), round_record(number, true), event_record(2 * number),
                               event_record(2 * number + 1)};
  };
  REQUIRE(ledger.write(batch_of(1)).ok());
  const std::uintmax_t before = std::filesystem::file_size(log);
  REQUIRE(ledger.write(batch_of(2)).ok());
  const std::uintmax_t after = std::filesystem::file_size(log);
  REQUIRE(after > before);
  for (std::uintmax_t cut = before; cut <= after;
       cut += std::max<std::uintmax_t>(1, std::min<std::uintmax_t>((after - before) / 40, after - cut))) {
    for (const bool garbage : {false, true}) {  // what a disk writes of the rest
      const atl_test::TemporaryFolder torn;
      std::filesystem::copy(directory.path() / "ledger.db", torn.path() / "ledger.db");
      std::filesystem::copy(log, torn.path() / "ledger.db-wal");
      std::filesystem::resize_file(torn.path() / "ledger.db-wal", cut);
      if (garbage) {
        std::ofstream(torn.path() / "ledger.db-wal", std::ios::app | std::ios::binary) << std::string(after - cut, '\x5a');
      }
      INFO("cut at byte " << cut << " of " << before << " to " << after << (garbage ? ", then garbage" : ""));
      Ledger found = Ledger::open(torn.path()).value();
      const std::uint64_t committed = found.recover()->runs.at(0).committed.value;
      CHECK(committed == (cut == after ? 2 : 1));
      CHECK(found.events({RunId("r-1"), 0, 1000, {}, {}})->size() == 2 * committed);
    }
  }
}

TEST_CASE("a writer killed at any instant leaves a prefix of its batches, with every acknowledged one") {
  Rng random(20'260'101);
  for (int attempt = 0; attempt < 30; ++attempt) {
    const atl_test::TemporaryFolder directory;
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const pid_t writer = ::fork();
    if (writer == 0) {
      auto ledger = Ledger::open(directory.path());
      for (std::uint64_t round = 1; ledger; ++round) {
        const std::vector<Record> batch = {run_record("r-1", round), round_record(round, true), event_record(round), event_record(round)};
        if (!ledger->write(batch).ok() || ::write(pipe_ends[1], "x", 1) != 1) {
          break;
        }
      }
      ::_exit(1);
    }
    ::close(pipe_ends[1]);
    std::uint64_t acknowledged = 0;
    const std::uint64_t wanted = 1 + random.below(60);
    char byte = 0;
    while (acknowledged < wanted && ::read(pipe_ends[0], &byte, 1) == 1) {
      ++acknowledged;
    }
    for (std::uint64_t spin = random.below(400'000); spin > 0; --spin) {
      byte = static_cast<char>(byte + static_cast<char>(spin & 1));  // somewhere within the next batch
    }
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    while (::read(pipe_ends[0], &byte, 1) == 1) {
      ++acknowledged;
    }
    ::close(pipe_ends[0]);
    REQUIRE(acknowledged >= wanted);

    Ledger ledger = Ledger::open(directory.path()).value();
    const std::uint64_t committed = ledger.recover()->runs.at(0).committed.value;
    CHECK(committed >= acknowledged);
    CHECK(committed <= acknowledged + 1);
    CHECK(ledger.events({RunId("r-1"), 0, 100'000, {}, {}})->size() == 2 * committed);
    std::uint64_t rounds = 0;
    const Recovered recovered = ledger.recover().value();
    for (const RoundRecord& round : recovered.rounds) {
      rounds += round.committed && round.round.value <= committed ? 1 : 0;
    }
    CHECK(rounds == std::min<std::uint64_t>(committed, Ledger::kRecoveredRounds));
  }
}

TEST_CASE("a damaged, foreign or newer ledger is refused with a reason") {
  const atl_test::TemporaryFolder directory;
  const auto path = directory.path() / "ledger.db";
  const auto refusal = [&] {
    auto ledger = Ledger::open(directory.path());
    REQUIRE_FALSE(ledger.has_value());
    CHECK(ledger.error().why.find("ledger.db") != std::string::npos);
    return ledger.error().code;
  };
  {
    std::ofstream(path) << std::string(8192, 'x');
    CHECK(refusal() == Code::corrupt);
    std::filesystem::remove(path);
  }
  {
    std::vector<Record> batch;
    for (std::uint64_t number = 0; number < 2000; ++number) {
      batch.emplace_back(event_record(number));
    }
    REQUIRE(Ledger::open(directory.path())->write(batch).ok());
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(5 * 4096);
    file << std::string(3 * 4096, '\x5a');
    file.close();
    CHECK(refusal() == Code::corrupt);
    std::filesystem::remove(path);
  }
  {
    REQUIRE(Ledger::open(directory.path())->database().execute("PRAGMA user_version=99").ok());
    CHECK(refusal() == Code::conflict);
  }
}

TEST_CASE("a ledger from before the first release is refused, with what to do") {
  const atl_test::TemporaryFolder directory;
  REQUIRE(Ledger::open(directory.path())->database().execute("PRAGMA user_version=8").ok());
  const auto ledger = Ledger::open(directory.path());
  REQUIRE_FALSE(ledger);
  CHECK(ledger.error().code == Code::conflict);
  CHECK(ledger.error().why.find("before its first release (schema 8)") != std::string::npos);
}

namespace {

// A row for a table with a mark of its own in every text.
std::string marked_row(const Table& table) {
  std::string names;
  std::string values;
  for (std::size_t at = 0; at < table.columns.size();) {
    const std::size_t end = std::min(table.columns.find(", ", at), table.columns.size());
    const std::string column(table.columns.substr(at, end - at));
    const std::string name = column.substr(0, column.find(' '));
    names += (names.empty() ? "" : ", ") + name;
    const auto is = [&](const char* type) { return column.find(type) != std::string::npos; };
    values += (values.empty() ? "" : ", ") + (is(" TEXT")   ? "'mark-" + std::string(table.name) + "-" + name + "'"
                                              : is(" BLOB") ? "x'" + std::string(64, '5') + "'"
                                              : is(" REAL") ? "0.625"
                                                            : "7");
    at = end + 2;
  }
  return "INSERT INTO " + std::string(table.name) + "(" + names + ") VALUES(" + values + ")";
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("one bit that flips in any row of any table or index is noticed when the ledger is opened, and the table is named") {
  const atl_test::TemporaryFolder directory;
  const auto path = directory.path() / "ledger.db";
  {
    Ledger ledger = Ledger::open(directory.path()).value();
    for (const Table& table : ledger_tables()) {
      INFO(table.name);
      REQUIRE(ledger.database().execute(marked_row(table)).ok());
    }
  }
  REQUIRE(Ledger::open(directory.path()));
  const std::string sound = bytes_of(path);
  std::size_t flipped = 0;
  for (const Table& table : ledger_tables()) {
    const std::string mark = "mark-" + std::string(table.name) + "-";
    std::size_t here = 0;
    for (std::size_t at = sound.find(mark); at != std::string::npos; at = sound.find(mark, at + 1)) {
      std::string damaged = sound;
      damaged[at + mark.size()] = static_cast<char>(damaged[at + mark.size()] ^ 2);
      std::ofstream(path, std::ios::binary) << damaged;
      const auto ledger = Ledger::open(directory.path());
      INFO(table.name << " at " << at);
      REQUIRE_FALSE(ledger);
      CHECK(ledger.error().code == Code::corrupt);
      CHECK(ledger.error().why.find("restore a backup") != std::string::npos);
      ++here;
    }
    INFO(table.name);
    CHECK(here > 0);
    flipped += here;
  }
  CHECK(flipped > 60);
}

TEST_CASE("a store knows whose it is and counts its lives, and one that is missing or empty is not begun anew") {
  const atl_test::TemporaryFolder directory;
  const auto path = directory.path() / "ledger.db";
  CHECK(Ledger::check_presence(directory.path()).error().code == Code::not_found);
  {
    Ledger ledger = Ledger::open(directory.path()).value();
    CHECK(ledger.begin_generation("key").error().code == Code::corrupt);  // nobody has set it up
    REQUIRE(ledger.found("key").ok());
    CHECK(ledger.begin_generation("key").value().starts == 1);
  }
  REQUIRE(Ledger::check_presence(directory.path()).ok());
  {
    Ledger ledger = Ledger::open(directory.path()).value();
    CHECK(ledger.begin_generation("key").value().starts == 2);
    CHECK(ledger.begin_generation("another").error().code == Code::conflict);
    REQUIRE(ledger.found("another").ok());  // it has an owner
    CHECK(ledger.begin_generation("key").value().starts == 3);
  }
  {
    Ledger ledger = Ledger::open(directory.path()).value();
    const Generation before = ledger.generation().value();
    REQUIRE(ledger.note_restore().ok());
    const Generation after = ledger.begin_generation("key").value();
    CHECK(before < after);
    CHECK(after.starts == 1);
    CHECK(after.text().find("start 1 after the restore of 20") == 0);
    // An island has met a newer one: this store starts no coordinator any more, until it is restored as the newest.
    Generation newer = after;
    newer.restored += 1'000'000'000;
    REQUIRE(write(ledger, {Superseded{newer, "porto", now()}}).ok());
    const Error old = ledger.begin_generation("key").error();
    CHECK(old.code == Code::conflict);
    CHECK(old.why.find("island porto has met start 1 after the restore of") != std::string::npos);
    CHECK(old.why.find("coordinator init --from") != std::string::npos);
    REQUIRE(ledger.note_restore().ok());
    CHECK(newer < ledger.begin_generation("key").value());
  }
  std::filesystem::resize_file(path, 0);
  const Error lost = Ledger::check_presence(directory.path()).error();
  CHECK(lost.why.find("is empty") != std::string::npos);
  CHECK(lost.why.find("coordinator init --from") != std::string::npos);
}

TEST_CASE("nothing is committed to a ledger that was removed or replaced under the coordinator, until it is back") {
  const atl_test::TemporaryFolder folder;
  const auto state = folder.path() / "state";
  const auto away = folder.path() / "away";
  std::filesystem::create_directories(state);
  Ledger ledger = Ledger::open(state).value();
  REQUIRE(write(ledger, {run_record("r-1", 1)}).ok());
  std::filesystem::rename(state, away);
  const Status lost = write(ledger, {run_record("r-1", 2)});
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == Code::io);
  CHECK(lost.error().why.find("removed or replaced") != std::string::npos);
  std::filesystem::create_directories(state);
  std::ofstream(state / "ledger.db") << "another";
  std::ofstream(state / "lock") << "another";
  CHECK_FALSE(write(ledger, {run_record("r-1", 2)}));
  std::filesystem::remove_all(state);
  std::filesystem::rename(away, state);
  REQUIRE(write(ledger, {run_record("r-1", 3)}).ok());
  CHECK(ledger.recover()->runs.at(0).committed == Round(3));
}
