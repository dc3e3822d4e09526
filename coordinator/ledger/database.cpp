#include "coordinator/ledger/database.hpp"

#include <sqlite3.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "transport/identity/sha256.hpp"

namespace atl::coordinator {
namespace {

Error sqlite_error(sqlite3* database, int result, std::string_view what) {
  Code code = Code::io;
  const int primary = result & 0xff;
  if (primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_SCHEMA) {
    code = Code::corrupt;
  } else if (primary == SQLITE_MISUSE || primary == SQLITE_ERROR || primary == SQLITE_RANGE) {
    code = Code::internal;
  } else if (primary == SQLITE_BUSY || primary == SQLITE_LOCKED || primary == SQLITE_CONSTRAINT) {
    code = Code::conflict;
  }
  const char* text = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(result);
  return Error{code, std::string(what) + ": " + (primary == SQLITE_FULL ? "the disk is full" : text)};
}

void append_number(Bytes& out, std::uint64_t number) { append_le(out, number); }

// row_sum(values…): the first eight bytes of SHA-256 over each value's type, length and bytes.
void row_sum(sqlite3_context* context, int count, sqlite3_value** values) {
  Sha256 hash;
  for (int i = 0; i < count; ++i) {
    const int type = sqlite3_value_type(values[i]);
    Bytes head;
    append_number(head, static_cast<std::uint64_t>(type));
    ByteView body;
    if (type == SQLITE_INTEGER) {
      append_number(head, static_cast<std::uint64_t>(sqlite3_value_int64(values[i])));
    } else if (type == SQLITE_FLOAT) {
      append_number(head, std::bit_cast<std::uint64_t>(sqlite3_value_double(values[i])));
    } else if (type != SQLITE_NULL) {
      const void* bytes = type == SQLITE_TEXT ? static_cast<const void*>(sqlite3_value_text(values[i])) : sqlite3_value_blob(values[i]);
      body = {static_cast<const std::byte*>(bytes), static_cast<std::size_t>(sqlite3_value_bytes(values[i]))};
      append_number(head, body.size());
    }
    hash.update(head);
    hash.update(body);
  }
  const Digest digest = hash.finish();
  std::int64_t sum = 0;
  std::memcpy(&sum, digest.bytes.data(), sizeof sum);
  sqlite3_result_int64(context, sum);
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------- statement

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)), bound_(other.bound_), result_(other.result_) {}

Statement::~Statement() {
  if (statement_ != nullptr) {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
}

void Statement::note(int result) {
  if (result_ == SQLITE_OK) {
    result_ = result;
  }
}

Statement& Statement::bind(std::int64_t value) {
  note(sqlite3_bind_int64(statement_, ++bound_, value));
  return *this;
}

Statement& Statement::bind(double value) {
  ++bound_;
  note(std::isnan(value) ? sqlite3_bind_null(statement_, bound_) : sqlite3_bind_double(statement_, bound_, value));
  return *this;
}

Statement& Statement::bind_null() {
  note(sqlite3_bind_null(statement_, ++bound_));
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  note(sqlite3_bind_text64(statement_, ++bound_, text.empty() ? "" : text.data(), text.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind(ByteView bytes) {
  note(sqlite3_bind_blob64(statement_, ++bound_, bytes.empty() ? "" : static_cast<const void*>(bytes.data()), bytes.size(),
                           SQLITE_TRANSIENT));
  return *this;
}

Result<bool> Statement::row() {
  if (result_ != SQLITE_OK) {
    return sqlite_error(database_, result_, "the ledger could not be used");
  }
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) {
    return true;
  }
  if (result == SQLITE_DONE) {
    return false;
  }
  return sqlite_error(database_, result, "the ledger could not be used");
}

Status Statement::run() {
  auto there = row();
  return there ? Status{} : Status{there.error()};
}

std::int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

double Statement::real(int column) const {
  return null(column) ? std::numeric_limits<double>::quiet_NaN() : sqlite3_column_double(statement_, column);
}

std::string Statement::text(int column) const {
  const unsigned char* data = sqlite3_column_text(statement_, column);
  if (data == nullptr) {
    return {};
  }
  return {reinterpret_cast<const char*>(data), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

Digest Statement::digest(int column) const {
  Digest digest;
  const void* data = sqlite3_column_blob(statement_, column);
  if (data != nullptr && static_cast<std::size_t>(sqlite3_column_bytes(statement_, column)) == digest.bytes.size()) {
    std::memcpy(digest.bytes.data(), data, digest.bytes.size());
  }
  return digest;
}

bool Statement::null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

// -------------------------------------------------------------------------------------------------------------- database

struct Database::Handle {
  sqlite3* sqlite = nullptr;
  std::map<std::string, sqlite3_stmt*, std::less<>> statements;
  std::string path;
  struct stat file {};  // as it was opened

  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    for (auto& [text, statement] : statements) {
      sqlite3_finalize(statement);
    }
    sqlite3_close(sqlite);
  }
};

Database::Database(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;
Database::~Database() = default;

Result<Database> Database::open(const std::filesystem::path& path) {
  auto handle = std::make_unique<Handle>();
  const int opened =
      sqlite3_open_v2(path.c_str(), &handle->sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  const std::string what = "cannot open " + path.string();
  if (opened != SQLITE_OK) {
    return sqlite_error(handle->sqlite, opened, what);
  }
  sqlite3_extended_result_codes(handle->sqlite, 1);
  if (const int added = sqlite3_create_function_v2(handle->sqlite, "row_sum", -1, SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS,
                                                   nullptr, row_sum, nullptr, nullptr, nullptr);
      added != SQLITE_OK) {
    return sqlite_error(handle->sqlite, added, what);
  }
  handle->path = path.string();
  Database database(std::move(handle));
  // 2 MiB of pages is plenty for what the coordinator reads; the default grows with nothing to show for it.
  if (auto status = database.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON; PRAGMA cache_size=-512;"
                                     "PRAGMA temp_store=MEMORY; PRAGMA busy_timeout=2000");
      !status) {
    return with_context(status.error(), what);
  }
  auto check = database.prepare("PRAGMA quick_check(1)");
  auto there = check.row();
  if (!there || !*there || check.text(0) != "ok") {
    const std::string why = !there ? there.error().why : check.text(0);
    return Error{there || there.error().code == Code::corrupt ? Code::corrupt : there.error().code,
                 what + ": the database is damaged (" + why + "); restore it from a backup, or move it away to start empty"};
  }
  if (::stat(database.handle_->path.c_str(), &database.handle_->file) != 0) {
    return Error{Code::io, what + ": it was removed meanwhile"};
  }
  return database;
}

Status Database::still_there() const {
  struct stat now {};
  if (::stat(handle_->path.c_str(), &now) == 0 && now.st_ino == handle_->file.st_ino && now.st_dev == handle_->file.st_dev) {
    return {};
  }
  return Error{Code::io, handle_->path + " was removed or replaced while this coordinator runs"};
}

Status Database::execute(std::string_view sql) {
  const int result = sqlite3_exec(handle_->sqlite, std::string(sql).c_str(), nullptr, nullptr, nullptr);
  return result == SQLITE_OK ? Status{} : Status{sqlite_error(handle_->sqlite, result, "the ledger could not be used")};
}

Statement Database::prepare(std::string_view sql) {
  auto found = handle_->statements.find(sql);
  if (found == handle_->statements.end()) {
    sqlite3_stmt* statement = nullptr;
    const int result =
        sqlite3_prepare_v3(handle_->sqlite, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
    if (result != SQLITE_OK) {
      return {handle_->sqlite, nullptr, result};
    }
    found = handle_->statements.emplace(std::string(sql), statement).first;
  }
  return {handle_->sqlite, found->second, SQLITE_OK};
}

Status Database::copy_to(const std::filesystem::path& file) {
  Handle target;
  const std::string what = "cannot copy the ledger to " + file.string();
  int result = sqlite3_open_v2(file.c_str(), &target.sqlite, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  if (result != SQLITE_OK) {
    return sqlite_error(target.sqlite, result, what);
  }
  sqlite3_backup* backup = sqlite3_backup_init(target.sqlite, "main", handle_->sqlite, "main");
  if (backup == nullptr) {
    return sqlite_error(target.sqlite, sqlite3_errcode(target.sqlite), what);
  }
  result = sqlite3_backup_step(backup, -1);  // all pages in one read: one instant
  const int finished = sqlite3_backup_finish(backup);
  if (result != SQLITE_DONE) {
    return sqlite_error(nullptr, result == SQLITE_OK ? finished : result, what);
  }
  return finished == SQLITE_OK ? Status{} : Status{sqlite_error(target.sqlite, finished, what)};
}

Status Database::transaction(const std::function<Status()>& body) {
  ATOLL_TRY(execute("BEGIN IMMEDIATE"));
  Status status = body();
  if (status) {
    status = execute("COMMIT");
  }
  if (!status && sqlite3_get_autocommit(handle_->sqlite) == 0) {
    // A failing disk may have rolled back already; otherwise this must not fail, or the next BEGIN says so.
    (void)execute("ROLLBACK");
  }
  return status;
}

}  // namespace atl::coordinator
