// A long run's ledger: what is thinned with age, and that nothing which counts is lost by it.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "coordinator/ledger/thinning.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/unit/ledger_records.hpp"

namespace of_ledger_thinning_test {

using namespace atl_test;

namespace {

const std::vector<IslandId> kIslands = {IslandId("i-a"), IslandId("i-b"), IslandId("i-c")};
constexpr std::uint64_t kMiB = 1ULL << 20U;

// A small run of three islands, with a checkpoint every ten rounds: what a coordinator writes for one of its rounds.
struct SmallRun {
  std::vector<RoundRecord> rounds;  // all that were committed
  std::vector<DroppedRecord> dropped;

  std::vector<Record> round(std::uint64_t number, std::uint32_t lineage = 0) {
    RoundRecord round = round_record(number, true, number % 10 == 0);
    round.lineage = lineage;
    round.members = kIslands;
    round.contributions = {
        {.tokens = 32, .steps = 1, .norm = 0.10516489368471128},
        {.tokens = number % 7 == 0 ? 0U : 32U, .steps = 1, .norm = 0.09104555192695206},
        {.tokens = 32, .steps = 1, .norm = 0.13386122205897744, .staleness = number % 5 == 0 ? 1U : 0U, .overwritten = 3}};
    for (std::uint32_t part = 0; part < 3; ++part) {
      round.contributions[part].data = DataRange{part, 2 * (number - 1), 2 * number};
      round.parts.push_back(DataRange{part, 0, 2 * number});
    }
    // Each third contribution of the first island is too stale: its samples are passed over with the next one that counts. Of the last
    // island's each fifth a result overwrote a part.
    if (number % 3 == 0) {
      round.contributions[0].data.to = round.contributions[0].data.from;
    } else if (number % 3 == 1 && number > 1) {
      round.contributions[0].data.held_from = std::exchange(round.contributions[0].data.from, 2 * (number - 2));
    }
    round.contributions[2].data.held_from = number % 5 == 0 ? 2 * number - 1 : 0;
    rounds.push_back(round);
    std::vector<Record> records = {round};
    EventRecord planned{kStart, RunId("r-1"), {}, "debug", "round_planned", "round " + std::to_string(number) + " of run text, attempt 1",
                        {}};
    planned.fields = {{"round", static_cast<std::int64_t>(number)}, {"members", std::vector<std::string>{"a", "b", "c"}}};
    EventRecord committed{kStart, RunId("r-1"), {}, "info", "round_committed", "round " + std::to_string(number) + " is committed", {}};
    committed.fields = {{"round", static_cast<std::int64_t>(number)},
                        {"digest", to_hex(round.digest)},
                        {"members", std::vector<std::string>{"a", "b", "c"}},
                        {"member_tokens", each_of(round.contributions, &ContributionFacts::tokens)}};
    records.emplace_back(planned);
    records.emplace_back(committed);
    for (const IslandId& island : kIslands) {
      MetricRecord metric;
      metric.time = kStart;
      metric.run = RunId("r-1");
      metric.island = island;
      metric.round = Round(number);
      metric.facts.tokens = 32;
      records.emplace_back(metric);
    }
    if (number % 3 == 0) {
      DroppedRecord drop{RunId("r-1"), lineage, kIslands[0], Round(number), Fate::too_stale, {.tokens = 7, .overwritten = 1}};
      drop.facts.data = DataRange{0, 2 * (number - 1), 2 * number};
      dropped.push_back(drop);
      records.emplace_back(drop);
    }
    return records;
  }
};

std::vector<IslandSpan> spans_of(std::uint64_t number) {
  std::vector<IslandSpan> spans;
  for (const IslandId& island : kIslands) {
    std::int64_t at = static_cast<std::int64_t>(number) * 10'000'000;
    for (const SpanKind kind :
         {SpanKind::steps, SpanKind::wait, SpanKind::encode, SpanKind::send, SpanKind::reduce, SpanKind::outer_step}) {
      spans.push_back({RunId("r-1"), island, {kind, Round(number), 0, {}, TimePoint(Duration(at)), Duration(900'000), 4096}, ""});
      at += 1'000'000;
    }
    for (const IslandId& peer : kIslands) {
      if (peer != island) {
        spans.push_back(
            {RunId("r-1"), island, {SpanKind::receive, Round(number), 0, peer, TimePoint(Duration(at)), Duration(900'000), 4096}, ""});
      }
    }
  }
  return spans;
}

std::uint64_t bytes_of(const atl_test::TemporaryFolder& folder) {
  std::uint64_t bytes = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    bytes += file.file_size();
  }
  return bytes;
}

std::uint64_t count(Ledger& ledger, const std::string& of) {
  auto row = ledger.database().prepare("SELECT count(*) FROM " + of);
  REQUIRE(row.row().value());
  return row.number(0);
}

DataAudit audit_of(const SmallRun& run, std::map<std::uint32_t, Round> bases = {}) {
  DataAudit audit(std::move(bases));
  for (const DroppedRecord& dropped : run.dropped) {
    audit.take(dropped);
  }
  for (const RoundRecord& round : run.rounds) {
    audit.take(round);
  }
  return audit;
}

void check_same(const DataAudit& audit, const DataAudit& expected) {
  CHECK(audit.rounds() == expected.rounds());
  CHECK(audit.unnoted() == expected.unnoted());
  CHECK(audit.fragments() == expected.fragments());
  CHECK(audit.fates() == expected.fates());
  REQUIRE(audit.parts().size() == expected.parts().size());
  for (const auto& [number, part] : expected.parts()) {
    const PartAudit& other = audit.parts().at(number);
    CHECK(other.position == part.position);
    CHECK(other.committed == part.committed);
    CHECK(other.passed_over == part.passed_over);
    CHECK(other.refused == part.refused);
    CHECK(other.overwritten == part.overwritten);
    CHECK(other.taken_over == part.taken_over);
    CHECK(other.islands == part.islands);
    CHECK(other.fault.empty() == part.fault.empty());
  }
}

// Several rounds in one transaction, so that the test is no test of the disk.
void write_rounds(Ledger& ledger, SmallRun& run, std::uint64_t from, std::uint64_t to, bool with_spans = true) {
  std::vector<Record> records;
  std::vector<IslandSpan> spans;
  for (std::uint64_t number = from; number <= to; ++number) {
    std::ranges::move(run.round(number), std::back_inserter(records));
    if (with_spans) {
      std::ranges::move(spans_of(number), std::back_inserter(spans));
    }
    if (number % 128 == 0 || number == to) {
      REQUIRE(ledger.write(records).ok());
      REQUIRE(ledger.write_spans(spans).ok());
      records.clear();
      spans.clear();
    }
  }
}

}  // namespace

TEST_CASE("a ledger of a hundred thousand rounds takes less than 48 MiB, and its newest rounds cost what its first ones did") {
  const atl_test::TemporaryFolder folder;
  SmallRun run;
  Ledger ledger = Ledger::open(folder.path()).value();
  REQUIRE(write(ledger, {run_record()}).ok());
  const auto time_of = [&](std::uint64_t from, std::uint64_t to) {
    const auto start = std::chrono::steady_clock::now();
    write_rounds(ledger, run, from, to);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double first = time_of(1, 10'000);
  write_rounds(ledger, run, 10'001, 90'000);
  const double last = time_of(90'001, 100'000);
  WARN("seconds for 10,000 rounds: the first " << first << ", the last " << last << "; " << bytes_of(folder) / kMiB << " MiB");
  CHECK(bytes_of(folder) < 48 * kMiB);
  CHECK(count(ledger, "rounds") < 4'000);
  CHECK(count(ledger, "events") < 30'000);
  CHECK(count(ledger, "spans") <= Ledger::kSpansKept);
  CHECK(count(ledger, "metrics") < 6'000);
  check_same(ledger.audit_data(RunId("r-1")).value(), audit_of(run));
  const auto metrics = ledger.metrics(RunId("r-1"), {}, -1, 10'000).value();
  CHECK(metrics.front().round == Round(1));
  CHECK(metrics.back().round == Round(100'000));
}

TEST_CASE("a core recovers from a thinned ledger what it recovers from a whole one") {
  const atl_test::TemporaryFolder folder;
  SmallRun run;
  Recovered recovered;
  {
    Ledger ledger = Ledger::open(folder.path()).value();
    REQUIRE(write(ledger, {run_record("r-1", 20'000)}).ok());
    write_rounds(ledger, run, 1, 20'000, false);
    recovered = ledger.recover().value();
    CHECK(ledger.checkpoint_round(RunId("r-1")).value() == Round(20'000));
  }
  std::vector<RoundRecord> expected;
  std::uint64_t checkpoints = 0;
  for (std::size_t i = run.rounds.size(); i > 0; --i) {
    const RoundRecord& round = run.rounds[i - 1];
    const bool among_checkpoints = round.checkpoint && checkpoints < Ledger::kRecoveredCheckpoints;
    checkpoints += round.checkpoint ? 1 : 0;
    if (among_checkpoints || run.rounds.size() - i < Ledger::kRecoveredRounds) {
      expected.insert(expected.begin(), round);
    }
  }
  CHECK(recovered.rounds == expected);
  CHECK(Ledger::open(folder.path()).value().recover().value().rounds == expected);
}

TEST_CASE("rounds that are lost with every copy count no more, also where those before them are counted in one row") {
  const atl_test::TemporaryFolder folder;
  SmallRun run;
  Ledger ledger = Ledger::open(folder.path()).value();
  REQUIRE(write(ledger, {run_record()}).ok());
  write_rounds(ledger, run, 1, 13'000, false);
  // Back to round 4,000, which is older than any round that is kept for its age.
  RoundRecord base = round_record(4'000, true, true);
  base.lineage = 1;
  base.members.clear();
  base.contributions.clear();
  base.parts = {{0, 0, 8'000}, {1, 0, 8'000}, {2, 0, 8'000}};
  run.rounds.push_back(base);
  REQUIRE(write(ledger, {base}).ok());
  for (std::uint64_t number = 4'001; number <= 9'001; ++number) {
    REQUIRE(ledger.write(run.round(number, 1)).ok());
  }
  CHECK(count(ledger, "counted WHERE lineage=0") > 0);
  CHECK(count(ledger, "counted WHERE lineage=1") > 0);
  const DataAudit audit = ledger.audit_data(RunId("r-1")).value();
  check_same(audit, audit_of(run, {{1, Round(4'000)}}));
  CHECK(audit.parts().at(0).fault.empty());
  CHECK(audit.parts().at(0).position == 18'002);
}

TEST_CASE("a range that is missing, or counted twice, is named in a thinned ledger, too") {
  for (const std::uint64_t from : {1'999, 2'001}) {  // round 1001 trains on 2000 and 2001
    INFO(from);
    const atl_test::TemporaryFolder folder;
    SmallRun run;
    Ledger ledger = Ledger::open(folder.path()).value();
    REQUIRE(write(ledger, {run_record()}).ok());
    write_rounds(ledger, run, 1, 1'000, false);
    std::vector<Record> wrong = run.round(1'001);
    std::get<RoundRecord>(wrong.front()).contributions[1].data.from = from;
    REQUIRE(ledger.write(wrong).ok());
    write_rounds(ledger, run, 1'002, 20'000, false);
    CHECK(count(ledger, "rounds WHERE round=1001") == 0);
    const DataAudit audit = ledger.audit_data(RunId("r-1")).value();
    CHECK(audit.parts().at(0).fault.empty());
    CHECK(audit.parts().at(1).fault == (from == 1'999 ? "sequences 1999 to 1999 are committed twice, again in rounds 1001 to 1009"
                                                      : "sequences 2000 to 2000 are missing before rounds 1001 to 1009"));
  }
}

TEST_CASE("of old rounds' events some stay, the same in every run, and warnings all do") {
  const atl_test::TemporaryFolder folder;
  SmallRun run;
  Ledger ledger = Ledger::open(folder.path()).value();
  EventRecord warning = event_record(1, "warning");
  warning.run = RunId("r-1");
  REQUIRE(write(ledger, {run_record(), warning}).ok());
  write_rounds(ledger, run, 1, 10'240, false);
  CHECK(ledger.warnings(RunId("r-1"), 10).value().size() == 1);
  const std::string commits = "events WHERE kind='round_committed' AND level='info' AND json_extract(fields, '$.round')";
  CHECK(count(ledger, commits + ">8192") == 2'048);
  CHECK(count(ledger, commits + "=8190") == 1);
  CHECK(count(ledger, commits + "=8191") == 0);
  CHECK(count(ledger, commits + " BETWEEN 1 AND 2048") == 2'048 / 8);
}

TEST_CASE("a removed run leaves no row but that which says so, and comes back only by a copy") {
  const atl_test::TemporaryFolder folder;
  SmallRun run;
  RemovedRecord removed{RunId("r-1"), "text", kStart, Epoch(3), Round(3'000)};
  {
    Ledger ledger = Ledger::open(folder.path()).value();
    REQUIRE(write(ledger, {run_record(), run_record("r-2"),
                           MembershipRecord{RunId("r-1"), kIslands[0], 0, MembershipState::ended, "", {}, 0, Epoch(0)}})
                .ok());
    write_rounds(ledger, run, 1, 3'000);
    REQUIRE(write(ledger, {removed}).ok());
    for (const std::string table : {"runs", "memberships", "rounds", "counted", "dropped", "events", "metrics", "spans"}) {
      INFO(table);
      CHECK(count(ledger, table + " WHERE run='r-1'") == 0);
    }
    CHECK(count(ledger, "runs") == 1);
  }
  Ledger ledger = Ledger::open(folder.path()).value();
  CHECK(ledger.recover().value().removed == std::vector<RemovedRecord>{removed});
  removed.lifted = true;
  REQUIRE(write(ledger, {removed, run_record()}).ok());
  CHECK(ledger.recover().value().removed.empty());
}

}  // namespace of_ledger_thinning_test
