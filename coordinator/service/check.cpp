#include "coordinator/service/check.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <system_error>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/schema.hpp"
#include "coordinator/service/init.hpp"
#include "transport/identity/identity.hpp"

namespace atl::coordinator {
namespace {

namespace fs = std::filesystem;

// A folder of its own that goes with it.
class WorkFolder {
 public:
  static Result<WorkFolder> make() {
    std::string path = (fs::temp_directory_path() / "atoll-check-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
      return Error{Code::io,
                   "cannot make a folder in " + fs::temp_directory_path().string() + ": " + std::system_category().message(errno)};
    }
    return WorkFolder(path);
  }
  WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  WorkFolder& operator=(WorkFolder&&) = delete;
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder() {
    if (!path_.empty()) {
      std::error_code ignored;
      fs::remove_all(path_, ignored);
    }
  }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  explicit WorkFolder(fs::path path) : path_(std::move(path)) {}
  fs::path path_;
};

// The newest committed round of each run's lineage must be the one that the run has.
Status check_lineage(const Recovered& recovered) {
  std::map<RunId, const RoundRecord*> newest;
  for (const RoundRecord& round : recovered.rounds) {
    const RoundRecord*& known = newest[round.run];
    if (round.committed && (known == nullptr || known->round < round.round)) {
      known = &round;
    }
  }
  for (const RunRecord& run : recovered.runs) {
    const RoundRecord* round = newest[run.id];
    if (has_ended(run.state) || run.committed == Round(0) || round == nullptr) {
      continue;
    }
    if (round->round != run.committed || round->digest != run.digest) {
      return Error{Code::corrupt, "run " + run.id.text + " is at round " + std::to_string(run.committed.value) +
                                      ", but the newest round in the "
                                      "ledger is " +
                                      std::to_string(round->round.value) + (round->round == run.committed ? ", with another digest" : "")};
    }
  }
  return {};
}

Result<CheckFacts> check_ledger(Ledger& ledger) {
  CheckFacts facts;
  ATOLL_ASSIGN(const Recovered recovered, ledger.recover());
  ATOLL_TRY(check_lineage(recovered));
  facts.runs = recovered.runs.size();
  const auto count = [&](const std::string& query) -> Result<std::uint64_t> {
    Statement row = ledger.database().prepare(query);
    ATOLL_ASSIGN(const bool there, row.row());
    return there ? row.number(0) : 0;
  };
  for (const Table& table : ledger_tables()) {
    ATOLL_ASSIGN(const std::uint64_t rows, count("SELECT count(*) FROM " + std::string(table.name)));
    facts.rows += rows;
  }
  ATOLL_ASSIGN(facts.islands, count("SELECT count(*) FROM keys WHERE role='island' AND revoked=0"));
  ATOLL_ASSIGN(const Generation generation, ledger.generation());
  facts.generation = generation.text();
  return facts;
}

Status copy_to_work(const fs::path& from, const fs::path& to) {
  std::error_code failure;
  fs::copy_file(from, to, failure);
  return failure ? Status(Error{Code::io, from.string() + " cannot be read: " + failure.message()}) : Status();
}

}  // namespace

Result<CheckFacts> check_state(const fs::path& state) {
  std::error_code failure;
  if (!fs::exists(settings_file(state), failure)) {
    return Error{Code::not_found, "there is no coordinator in " + state.string() + "; give its state directory with --state"};
  }
  ATOLL_ASSIGN(const KeyPair keys, read_key_file(coordinator_key_file(state)));
  ATOLL_TRY(Ledger::check_presence(state));
  // Held until the copy is there. What is opened and recovered is the copy: SQLite writes when it opens.
  ATOLL_ASSIGN(const StateLock lock, StateLock::take(state));
  ATOLL_ASSIGN(const WorkFolder work, WorkFolder::make());
  for (const char* suffix : {"", "-wal"}) {
    const fs::path part = state / ("ledger.db" + std::string(suffix));
    if (fs::exists(part, failure)) {
      ATOLL_TRY(copy_to_work(part, work.path() / part.filename()));
    }
  }
  ATOLL_ASSIGN(Ledger ledger, Ledger::open(work.path()));
  ATOLL_TRY(ledger.check_owner(keys.public_key));
  return check_ledger(ledger);
}

Result<CheckFacts> check_backup(const fs::path& file) {
  std::error_code failure;
  if (!fs::is_regular_file(file, failure)) {
    return Error{Code::not_found, "there is no file " + file.string()};
  }
  ATOLL_ASSIGN(const WorkFolder work, WorkFolder::make());
  ATOLL_TRY(copy_to_work(file, work.path() / "ledger.db"));
  Result<Ledger> ledger = Ledger::open(work.path());
  if (!ledger) {
    return with_context(ledger.error(), file.string());
  }
  {
    Statement key = ledger->database().prepare("SELECT public_key, secret_key FROM backup");
    const Result<bool> there = key.row();
    if (!there || !*there || !is_key(key.text(0)) || !is_key(key.text(1))) {
      return Error{Code::invalid_argument, file.string() + " is no backup of a coordinator (`atoll coordinator backup FILE` writes one)"};
    }
    ATOLL_TRY(ledger->check_owner(key.text(0)));
  }
  return check_ledger(*ledger);
}

}  // namespace atl::coordinator
