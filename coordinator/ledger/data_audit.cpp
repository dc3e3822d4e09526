#include "coordinator/ledger/data_audit.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/record_rows.hpp"
#include "coordinator/ledger/thinning.hpp"

namespace atl::coordinator {
namespace {

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
        note_fault(part, sequences_text(told.to, part.position) + " are committed, and open again after " + name);
      } else {
        part.taken_over += told.to - part.position;
        part.position = told.to;
      }
    }
    return;
  }
  take(CountedRounds::of(round));
}

void DataAudit::take(const CountedRounds& counted) {
  if (is_void(counted.lineage, counted.last, bases_)) {
    return;
  }
  rounds_ += counted.rounds;
  unnoted_ += counted.unnoted;
  fragments_ = std::max(fragments_, counted.fragments);
  for (const auto& [island, sum] : counted.fates) {
    TokenFates& fates = fates_[island];
    fates.merged += sum.merged;
    fates.late += sum.late;
    fates.overwritten += sum.overwritten;
  }
  for (const auto& [number, sum] : counted.parts) {
    PartAudit& part = parts_[number];
    CountedPart all{0, part.position, part.committed, part.passed_over, std::move(part.islands), std::move(part.fault)};
    all.append(sum, counted.name());
    part = PartAudit{all.position, all.committed, all.passed_over, part.taken_over, std::move(all.islands), std::move(all.fault)};
  }
}

void DataAudit::take(const DroppedRecord& dropped) {
  fates_[dropped.island].dropped[dropped.fate] += dropped.tokens;
  fates_[dropped.island].overwritten += dropped.overwritten;
}

Result<DataAudit> Ledger::audit_data(const RunId& run) {
  ATOLL_ASSIGN(auto bases, read_bases(*database_, run));
  DataAudit audit(std::move(bases));
  ATOLL_ASSIGN(const std::vector<CountedRounds> older, read_counted(*database_, run));
  auto merged = older.begin();
  auto rows =
      database_->prepare("SELECT " + std::string(kRoundColumns) + " FROM rounds WHERE run=? AND committed=1 ORDER BY lineage, round");
  rows.bind(run.text);
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    std::optional<RoundRecord> round;
    if (there) {
      ATOLL_ASSIGN(round, read_round(rows));
    }
    for (; merged != older.end() && (!round || std::pair(merged->lineage, merged->first) < std::pair(round->lineage, round->round));
         ++merged) {
      audit.take(*merged);
    }
    if (!round) {
      break;
    }
    audit.take(*round);
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
