// A SQLite database: statements prepared once, transactions that happen whole or not at all. The only place that knows SQLite.
//
// A database opens in WAL mode with synchronous=FULL: what `commit` said is on the disk. Every failure of SQLite becomes an
// Error here: a full or failing disk is `io`, a file that is not a sound database is `corrupt`. Its SQL knows one function more, row_sum
// (schema.hpp).
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "transport/base/bytes.hpp"
#include "transport/base/result.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace atl::coordinator {

// One prepared statement in use. Values are bound in the order of its question marks, columns are read by index. A failed
// preparation or bind is reported by the next `row` or `run`.
class Statement {
 public:
  Statement(sqlite3* database, sqlite3_stmt* statement, int result) : database_(database), statement_(statement), result_(result) {}
  Statement(Statement&& other) noexcept;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement& operator=(Statement&&) = delete;
  ~Statement();  // resets it for the next use

  Statement& bind(std::int64_t value);
  Statement& bind(std::uint64_t value) { return bind(static_cast<std::int64_t>(value)); }
  Statement& bind(std::uint32_t value) { return bind(static_cast<std::int64_t>(value)); }
  Statement& bind(bool value) { return bind(static_cast<std::int64_t>(value ? 1 : 0)); }
  Statement& bind(double value);  // NaN is stored as null
  Statement& bind_null();
  Statement& bind(std::string_view text);
  Statement& bind(const std::string& text) { return bind(std::string_view(text)); }
  Statement& bind(const char* text) { return bind(std::string_view(text)); }
  Statement& bind(ByteView bytes);
  Statement& bind(const Digest& digest) { return bind(ByteView(digest.bytes)); }

  // True: a row is there. False: no more rows.
  Result<bool> row();
  // For statements that give no rows.
  Status run();

  [[nodiscard]] std::int64_t integer(int column) const;
  [[nodiscard]] std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  [[nodiscard]] bool boolean(int column) const { return integer(column) != 0; }
  [[nodiscard]] double real(int column) const;  // null is NaN
  [[nodiscard]] std::string text(int column) const;
  [[nodiscard]] Digest digest(int column) const;  // anything but 32 bytes is the empty digest
  [[nodiscard]] bool null(int column) const;

 private:
  void note(int result);

  sqlite3* database_;
  sqlite3_stmt* statement_;
  int bound_ = 0;
  int result_;  // the first failure of preparing or binding
};

class Database {
 public:
  // Opens or creates the file and checks it. Errors: io (permission, disk), corrupt (not a sound database).
  static Result<Database> open(const std::filesystem::path& path);
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  // Runs statements that give no rows and have no parameters, such as a schema.
  Status execute(std::string_view sql);
  // The statement for this text, prepared at its first use and kept. Two uses of one text at the same time are not possible.
  Statement prepare(std::string_view sql);
  // Runs `body` between BEGIN and COMMIT; on any failure nothing of it stays.
  Status transaction(const std::function<Status()>& body);
  // Errors: io if the file that is open is not the one at its path any more: what is written to it would be lost.
  [[nodiscard]] Status still_there() const;
  // Copies the whole database as it is now into a file, while others go on writing. Errors: io; conflict while somebody keeps it locked.
  Status copy_to(const std::filesystem::path& file);

 private:
  struct Handle;
  explicit Database(std::unique_ptr<Handle> handle);
  std::unique_ptr<Handle> handle_;
};

}  // namespace atl::coordinator
