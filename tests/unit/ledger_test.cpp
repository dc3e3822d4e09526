// The ledger: what is written is read back, in pages and thinned where it is long. What it survives is in ledger_damage_test.cpp.
#include "coordinator/ledger/ledger.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/unit/ledger_records.hpp"

namespace of_ledger_test {

using namespace atl_test;

namespace {

MetricRecord metric_record(std::uint64_t round, double outer) {
  MetricRecord metric;
  metric.time = kStart;
  metric.run = RunId("r-1");
  metric.island = IslandId("i-a");
  metric.round = Round(round);
  metric.outer_loss = outer;
  metric.local_loss = outer + 0.5;
  metric.facts.training_loss = std::numeric_limits<double>::quiet_NaN();
  return metric;
}

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
  EpochRecord epoch{RunId("r-1"), Epoch(2), kStart, Round(4), {IslandId("i-a"), IslandId("i-b")}, "i-b joined", {{0, 1}}};
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

TEST_CASE("recovery reads the checkpoints of earlier lineages that the run's history goes through") {
  const atl_test::TemporaryFolder directory;
  Ledger ledger = Ledger::open(directory.path()).value();
  RunRecord run = run_record("r-1", 9);
  run.lineage = 2;
  std::vector<Record> records = {run};
  const auto add = [&](std::uint32_t lineage, std::uint64_t number, bool checkpoint, bool base = false) {
    RoundRecord round = round_record(number, true, checkpoint);
    round.lineage = lineage;
    round.digest = digest(100 * lineage + number);
    if (base) {
      round.members.clear();
      round.contributions.clear();
    }
    records.emplace_back(round);
  };
  add(0, 2, true);
  add(0, 3, false);  // nobody has a checkpoint of it
  add(0, 4, true);   // the base of the next lineage: known as that lineage's
  add(0, 6, true);   // lost
  add(1, 4, true, true);
  add(1, 5, true);
  add(1, 8, true, false);  // lost
  add(2, 5, true, true);
  add(2, 9, true);
  REQUIRE(ledger.write(records).ok());
  std::vector<std::pair<std::uint64_t, Digest>> found;
  for (const RoundRecord& round : ledger.recover().value().rounds) {
    found.emplace_back(round.round.value, round.digest);
  }
  CHECK(found == std::vector<std::pair<std::uint64_t, Digest>>{{2, digest(2)}, {4, digest(104)}, {5, digest(205)}, {9, digest(209)}});

  // It starts over: no round of before is of any use.
  run.lineage = 3;
  run.initialised = false;
  REQUIRE(ledger.write(std::vector<Record>{run}).ok());
  CHECK(ledger.recover().value().rounds.empty());
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
    const Round round(number / 3 % 400);  // so young that age thins none
    return Span{static_cast<SpanKind>(number % 9), round, 2, IslandId("i-b"), from_unix_ms(1'000) + Duration(number), Duration(40), number};
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

}  // namespace of_ledger_test
