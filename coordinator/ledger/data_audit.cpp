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

// The base of a lineage: that of a restored ledger may be ahead of the rounds that the ledger has.
void DataAudit::take_base(const RoundRecord& round) {
  for (const DataRange& told : round.parts) {
    PartAudit& part = parts_[told.part];
    if (told.to < part.position) {
      note_fault(
          part, sequences_text(told.to, part.position) + " are committed, and open again after round " + std::to_string(round.round.value));
    } else {
      part.taken_over += told.to - part.position;
      part.position = told.to;
    }
  }
}

void DataAudit::take(const RoundRecord& round) {
  if (!round.committed) {
    return;
  }
  if (round.members.empty()) {
    return is_void(round.lineage, round.round, bases_) ? void() : take_base(round);
  }
  forget_what_counts(round);
  take(CountedRounds::of(round, refusals_));
}

// Its island did not know that it counts: it was told of as if it did not.
void DataAudit::forget_what_counts(const RoundRecord& round) {
  for (const IslandId& island : round.members) {
    const auto found = in_hand_.find({round.lineage, round.round, island});
    if (found != in_hand_.end() && counts_in(round, found->second)) {
      TokenFates& fates = fates_[island];
      fates.dropped[Fate::dropped] -= found->second.facts.tokens;
      fates.overwritten -= found->second.facts.overwritten;
      std::erase_if(fates.dropped, [](const auto& each) { return each.second == 0; });
      in_hand_.erase(found);
    }
  }
}

void DataAudit::take(const CountedRounds& counted) {
  const bool lost = is_void(counted.lineage, counted.last, bases_);
  for (const auto& [island, sum] : counted.fates) {
    TokenFates& fates = fates_[island];
    if (lost) {
      fates.lost += sum.merged + sum.late;
      continue;
    }
    fates.merged += sum.merged;
    fates.late += sum.late;
    fates.overwritten += sum.overwritten;
  }
  if (lost) {
    return;
  }
  rounds_ += counted.rounds;
  unnoted_ += counted.unnoted;
  fragments_ = std::max(fragments_, counted.fragments);
  for (const auto& [number, sum] : counted.parts) {
    PartAudit& part = parts_[number];
    CountedPart all;
    all.position = part.position;
    all.fault = part.fault;
    all.append(sum, counted.name());
    part.position = all.position;
    part.fault = all.fault;
    part.committed += all.committed;
    part.passed_over += all.passed_over;
    part.overwritten += all.overwritten;
    for (const auto& [fate, count] : all.refused) {
      part.refused[fate] += count;
    }
    for (const auto& [island, count] : all.islands) {
      part.islands[island] += count;
    }
  }
}

void DataAudit::take(const DroppedRecord& dropped) {
  fates_[dropped.island].dropped[dropped.fate] += dropped.facts.tokens;
  fates_[dropped.island].overwritten += dropped.facts.overwritten;
  if (dropped.fate == Fate::dropped) {
    in_hand_.insert_or_assign({dropped.lineage, dropped.round, dropped.island}, dropped);
  } else if (!is_void(dropped.lineage, dropped.round, bases_)) {
    refusals_.add(dropped);
  }
}

Result<DataAudit> Ledger::audit_data(const RunId& run) {
  ATOLL_ASSIGN(auto bases, read_bases(*database_, run));
  DataAudit audit(std::move(bases));
  auto dropped = database_->prepare(select<DroppedRecord>("WHERE run=?"));
  dropped.bind(run.text);
  for (;;) {
    ATOLL_ASSIGN(const bool there, dropped.row());
    if (!there) {
      break;
    }
    ATOLL_ASSIGN(const DroppedRecord record, read_row<DroppedRecord>(dropped));
    audit.take(record);
  }
  ATOLL_ASSIGN(const std::vector<CountedRounds> older, read_counted(*database_, run));
  auto merged = older.begin();
  auto rows = database_->prepare(select<RoundRecord>("WHERE run=? AND committed=1 ORDER BY lineage, round"));
  rows.bind(run.text);
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    std::optional<RoundRecord> round;
    if (there) {
      ATOLL_ASSIGN(round, read_row<RoundRecord>(rows));
    }
    for (; merged != older.end() && (!round || std::pair(merged->lineage, merged->first) < std::pair(round->lineage, round->round));
         ++merged) {
      audit.take(*merged);
    }
    if (!round) {
      return audit;
    }
    audit.take(*round);
  }
}

Result<std::vector<PartRecord>> Ledger::parts(const RunId& run) {
  auto rows = database_->prepare(select<PartRecord>("WHERE run=? ORDER BY part"));
  rows.bind(run.text);
  return read_rows<PartRecord>(std::move(rows));
}

}  // namespace atl::coordinator
