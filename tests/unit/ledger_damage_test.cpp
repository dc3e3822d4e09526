// What a ledger survives: batches are whole, and a kill or a full disk loses nothing that was acknowledged. What it refuses: a ledger that
// is damaged, foreign, newer, someone else's, or gone.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/schema.hpp"
#include "tests/catch.hpp"
#include "tests/full_disk.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/unit/ledger_records.hpp"
#include "transport/base/rng.hpp"

namespace of_ledger_damage_test {

using namespace atl_test;

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

}  // namespace of_ledger_damage_test
