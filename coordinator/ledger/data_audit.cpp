#include "coordinator/ledger/data_audit.hpp"

#include <algorithm>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/record_rows.hpp"

namespace atl::coordinator {
namespace {

std::string range_text(std::uint64_t from, std::uint64_t to) {
  return "sequences " + std::to_string(from) + " to " + std::to_string(to - 1);
}

void note_fault(PartAudit& part, const std::string& fault) { part.fault = part.fault.empty() ? fault : part.fault; }

}  // namespace

void DataAudit::take(const RoundRecord& round) {
  if (!round.committed || is_void(round.lineage, round.round, bases_)) {
    return;
  }
  const std::string name = "round " + std::to_string(round.round.value);
  if (round.members.empty()) {
    // The base of a lineage: that of a restored ledger may be ahead of the rounds that the ledger has.
    for (const DataRange& told : round.parts) {
      PartAudit& part = parts_[told.part];
      if (told.to < part.position) {
        note_fault(part, range_text(told.to, part.position) + " are committed, and open again after " + name);
      } else {
        part.taken_over += told.to - part.position;
        part.position = told.to;
      }
    }
    return;
  }
  rounds_ += round.round > Round(0) ? 1U : 0U;
  fragments_ = std::max(fragments_, round.fragment + 1);
  for (std::size_t i = 0; i < round.members.size() && i < round.tokens.size(); ++i) {
    TokenFates& fates = fates_[round.members[i]];
    const bool late = i < round.staleness.size() && round.staleness[i] > 0;
    (late ? fates.late : fates.merged) += round.tokens[i];
    fates.overwritten += i < round.overwritten.size() && round.tokens[i] > 0 ? round.overwritten[i] : 0;
  }
  unnoted_ += round.round > Round(0) && round.data.empty() ? 1U : 0U;
  for (std::size_t i = 0; i < round.members.size() && i < round.data.size() && i < round.tokens.size(); ++i) {
    const DataRange& range = round.data[i];
    if (range.sequences() == 0) {
      continue;
    }
    PartAudit& part = parts_[range.part];
    if (range.from < part.position) {
      note_fault(part, range_text(range.from, std::min(part.position, range.to)) + " are committed twice, again in " + name);
    } else if (range.from > part.position) {
      note_fault(part, range_text(part.position, range.from) + " are missing before " + name);
    }
    part.position = std::max(part.position, range.to);
    if (round.tokens[i] > 0) {
      part.committed += range.sequences();
      part.islands[round.members[i]] += range.sequences();
    } else {
      part.passed_over += range.sequences();
    }
  }
}

void DataAudit::take(const DroppedRecord& dropped) {
  fates_[dropped.island].dropped[dropped.fate] += dropped.tokens;
  fates_[dropped.island].overwritten += dropped.overwritten;
}

Result<DataAudit> Ledger::audit_data(const RunId& run) {
  ATOLL_ASSIGN(auto bases, read_bases(*database_, run));
  DataAudit audit(std::move(bases));
  auto rows =
      database_->prepare("SELECT " + std::string(kRoundColumns) + " FROM rounds WHERE run=? AND committed=1 ORDER BY lineage, round");
  rows.bind(run.text);
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      break;
    }
    ATOLL_ASSIGN(const RoundRecord round, read_round(rows));
    audit.take(round);
  }
  auto dropped = database_->prepare("SELECT " + std::string(kDroppedColumns) + " FROM dropped WHERE run=?");
  dropped.bind(run.text);
  for (;;) {
    ATOLL_ASSIGN(const bool there, dropped.row());
    if (!there) {
      return audit;
    }
    ATOLL_ASSIGN(const DroppedRecord record, read_dropped(dropped));
    audit.take(record);
  }
}

Result<std::vector<PartRecord>> Ledger::parts(const RunId& run) {
  auto rows = database_->prepare("SELECT " + std::string(kPartColumns) + " FROM parts WHERE run=? ORDER BY part");
  rows.bind(run.text);
  std::vector<PartRecord> parts;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return parts;
    }
    ATOLL_ASSIGN(PartRecord part, read_part(rows));
    parts.push_back(std::move(part));
  }
}

}  // namespace atl::coordinator
