#include "coordinator/service/backup.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <system_error>

#include "coordinator/ledger/database.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "transport/base/time.hpp"
#include "transport/identity/identity.hpp"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;

Status sync_file(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  if (descriptor >= 0) {
    ::close(descriptor);
  }
  return synced ? Status() : Status(Error{Code::io, path.string() + " cannot be brought to the disk"});
}

Result<std::uint64_t> count_of(Database& database, std::string_view query) {
  Statement row = database.prepare(query);
  ATOLL_ASSIGN(const bool there, row.row());
  return there ? row.number(0) : 0;
}

// The copy is opened once more, to put the key in and to leave one file instead of a database with its journal.
Result<BackupFacts> complete(const fs::path& copy, const KeyPair& keys) {
  ATOLL_ASSIGN(Database database, Database::open(copy));
  ATOLL_TRY(database.execute("CREATE TABLE backup(public_key TEXT NOT NULL, secret_key TEXT NOT NULL, taken_ms INTEGER NOT NULL)"));
  ATOLL_TRY(database.prepare("INSERT INTO backup(public_key, secret_key, taken_ms) VALUES(?,?,?)")
                .bind(keys.public_key)
                .bind(keys.secret_key)
                .bind(unix_ms(now()))
                .run());
  BackupFacts facts;
  ATOLL_ASSIGN(facts.runs, count_of(database, "SELECT count(*) FROM runs"));
  ATOLL_ASSIGN(facts.islands, count_of(database, "SELECT count(*) FROM keys WHERE role='island' AND revoked=0"));
  ATOLL_TRY(database.execute("PRAGMA journal_mode=DELETE"));
  return facts;
}

void remove_database(const fs::path& file) {
  std::error_code ignored;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    fs::remove(file.string() + suffix, ignored);
  }
}

// Copies a backup and reads the key out of the copy.
Result<KeyPair> key_of_copy(const fs::path& file, const fs::path& copy) {
  const Error none{Code::invalid_argument, file.string() + " is no backup of a coordinator (`atoll coordinator backup FILE` writes one)"};
  std::error_code failure;
  remove_database(copy);
  fs::copy_file(file, copy, failure);
  if (failure) {
    return Error{Code::io, copy.string() + " cannot be written: " + failure.message()};
  }
  Result<Database> database = Database::open(copy);
  if (!database) {
    return database.error().code == Code::corrupt ? none : database.error();
  }
  Statement row = database->prepare("SELECT public_key, secret_key FROM backup");
  const Result<bool> there = row.row();
  if (!there || !*there || !is_key(row.text(0)) || !is_key(row.text(1))) {
    return none;
  }
  KeyPair keys{row.text(0), row.text(1)};
  return keys;
}

}  // namespace

Result<BackupFacts> write_backup(const fs::path& state, const fs::path& file) {
  std::error_code failure;
  if (!fs::exists(settings_file(state), failure) || !fs::exists(state / "ledger.db", failure)) {
    return Error{Code::not_found, "there is no coordinator in " + state.string() + "; give its state directory with --state"};
  }
  if (fs::exists(fs::symlink_status(file, failure))) {
    return Error{Code::conflict, file.string() + " exists already; a backup overwrites nothing: choose another name"};
  }
  ATOLL_ASSIGN(const KeyPair keys, read_key_file(coordinator_key_file(state)));
  const fs::path partial = file.string() + ".partial";
  fs::remove(partial, failure);
  // Private before anything is in it.
  const int descriptor = ::open(partial.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    return Error{Code::io, partial.string() + " cannot be written: " + std::system_category().message(errno)};
  }
  ::close(descriptor);
  const auto copy = [&]() -> Result<BackupFacts> {
    ATOLL_ASSIGN(Database ledger, Database::open(state / "ledger.db"));
    ATOLL_TRY(ledger.copy_to(partial));
    ATOLL_ASSIGN(BackupFacts facts, complete(partial, keys));
    ATOLL_TRY(sync_file(partial));
    facts.bytes = fs::file_size(partial, failure);
    fs::rename(partial, file, failure);
    if (failure) {
      return Error{Code::io, file.string() + " cannot be written: " + failure.message()};
    }
    ATOLL_TRY(sync_file(fs::absolute(file, failure).parent_path()));
    return facts;
  };
  Result<BackupFacts> facts = copy();
  if (!facts) {
    remove_database(partial);
  }
  return facts;
}

Status init_from_backup(const fs::path& file, const fs::path& state, const CoordinatorSettings& settings) {
  ATOLL_TRY(check_settings(settings));
  std::error_code failure;
  if (!fs::is_regular_file(file, failure)) {
    return Error{Code::not_found, "there is no file " + file.string()};
  }
  if (fs::exists(settings_file(state), failure)) {
    return Error{Code::conflict, state.string() + " is a coordinator's state already; choose another --state"};
  }
  const bool was_there = fs::exists(state, failure);
  fs::create_directories(state, failure);
  if (failure || ::chmod(state.c_str(), 0700) != 0) {
    return Error{Code::io, "cannot make " + state.string() + " private to its owner; choose another --state"};
  }
  // A copy is read, so that the backup itself is not touched.
  const fs::path ledger = state / "ledger.db";
  const fs::path copy = state / "ledger.db.new";
  const Result<KeyPair> found = key_of_copy(file, copy);
  if (!found) {
    remove_database(copy);
    if (!was_there) {
      fs::remove(state, failure);
    }
    return found.error();
  }
  const KeyPair& keys = *found;
  remove_database(ledger);
  fs::rename(copy, ledger, failure);
  if (failure) {
    return Error{Code::io, ledger.string() + " cannot be written: " + failure.message()};
  }
  ATOLL_TRY(write_key_file(coordinator_key_file(state), keys));
  {
    ATOLL_ASSIGN(Ledger opened, Ledger::open(state));  // brings an older schema up to date
    ATOLL_TRY(opened.database().execute("UPDATE runs SET restored=1 WHERE state NOT IN ('completed', 'failed', 'cancelled')"));
    ATOLL_TRY(opened.database().execute("DROP TABLE backup"));
    ATOLL_TRY(opened.note_restore());
  }
  return init_coordinator(state, settings);
}

}  // namespace atl::coordinator
