#include "coordinator/ledger/thinning.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/record_rows.hpp"

namespace atl::coordinator {
namespace {

// Of rounds that are as old as `newest`, or older, one in `stride` stays.
struct Age {
  Round newest;
  std::uint64_t stride = 1;
};

std::vector<Age> ages_of(Round newest, std::uint64_t whole) {
  std::vector<Age> ages;
  std::uint64_t stride = 2;
  for (std::uint64_t age = whole; age <= newest.value && stride < (1ULL << 40U); age *= 2, stride *= 2) {
    ages.push_back({Round(newest.value - age), stride});
  }
  return ages;
}

// The oldest committed round with a checkpoint, of the newest that a run may go back to; nothing: all of them are among those.
Result<std::uint64_t> oldest_kept_checkpoint(Database& database, const RunId& run, std::uint32_t lineage) {
  auto row = database.prepare("SELECT round FROM rounds WHERE run=? AND lineage=? AND checkpoint=1 ORDER BY round DESC LIMIT 1 OFFSET ?");
  row.bind(run.text).bind(lineage).bind(std::uint64_t{Ledger::kRecoveredCheckpoints - 1});
  ATOLL_ASSIGN(const bool there, row.row());
  return there ? row.number(0) : 0;
}

// The rows of a lineage: those that stay, and those up to `last` that are to be counted together.
struct OlderRounds {
  std::set<Round> kept;
  std::vector<RoundRecord> kept_rows;  // those of them up to `last`
  std::vector<RoundRecord> gone;
};
Result<OlderRounds> older_rounds(Database& database, const RunId& run, std::uint32_t lineage, Round last) {
  ATOLL_ASSIGN(const std::uint64_t checkpoints_from, oldest_kept_checkpoint(database, run, lineage));
  OlderRounds older;
  // The round that a later lineage began with stays, too.
  const std::string stays =
      "(committed=0 OR members='[]' OR (checkpoint=1 AND round>=?4) OR round=0 OR (lineage>0 AND round=(SELECT min(round) FROM rounds "
      "WHERE "
      "run=?1 AND lineage=?2 AND committed=1)))";
  const std::string these = " FROM rounds WHERE run=?1 AND lineage=?2 AND ";
  auto newer = database.prepare("SELECT round" + these + "round>?3");
  newer.bind(run.text).bind(lineage).bind(last.value);
  for (;;) {
    ATOLL_ASSIGN(const bool there, newer.row());
    if (!there) {
      break;
    }
    older.kept.insert(Round(newer.number(0)));
  }
  auto kept = database.prepare("SELECT " + columns_of<RoundRecord>() + these + "round<=?3 AND " + stays);
  kept.bind(run.text).bind(lineage).bind(last.value).bind(checkpoints_from);
  ATOLL_ASSIGN(older.kept_rows, read_rows<RoundRecord>(std::move(kept)));
  for (const RoundRecord& round : older.kept_rows) {
    older.kept.insert(round.round);
  }
  auto gone = database.prepare("SELECT " + columns_of<RoundRecord>() + these + "round<=?3 AND NOT " + stays + " ORDER BY round");
  gone.bind(run.text).bind(lineage).bind(last.value).bind(checkpoints_from);
  ATOLL_ASSIGN(older.gone, read_rows<RoundRecord>(std::move(gone)));
  return older;
}

Status write_counted(Database& database, const CountedRounds& counted) {
  return database.prepare("INSERT OR REPLACE INTO counted(run, lineage, first, last, counts) VALUES(?,?,?,?,?)")
      .bind(counted.run.text)
      .bind(counted.lineage)
      .bind(counted.first.value)
      .bind(counted.last.value)
      .bind(to_text(counted))
      .run();
}

Status forget_counted(Database& database, const CountedRounds& counted) {
  return database.prepare("DELETE FROM counted WHERE run=? AND lineage=? AND first=?")
      .bind(counted.run.text)
      .bind(counted.lineage)
      .bind(counted.first.value)
      .run();
}

// Rounds that follow each other, without one between them that stays, are counted in one row.
Status count_together(Database& database, const std::vector<CountedRounds>& before, const OlderRounds& older, const Refusals& refusals) {
  std::vector<std::pair<CountedRounds, bool>> all;  // and whether it is a row already
  for (const CountedRounds& counted : before) {
    all.emplace_back(counted, true);
  }
  for (const RoundRecord& round : older.gone) {
    all.emplace_back(CountedRounds::of(round, refusals), false);
  }
  std::ranges::sort(all, {}, [](const auto& each) { return each.first.first; });
  for (std::size_t i = 0; i < all.size();) {
    CountedRounds sum = all[i].first;
    bool changed = !all[i].second;
    std::size_t next = i + 1;
    for (; next < all.size() && older.kept.lower_bound(sum.last) == older.kept.lower_bound(all[next].first.first); ++next) {
      if (all[next].second) {
        ATOLL_TRY(forget_counted(database, all[next].first));
      }
      sum.append(all[next].first);
      changed = true;
    }
    if (changed) {
      ATOLL_TRY(write_counted(database, sum));
    }
    i = next;
  }
  for (const RoundRecord& round : older.gone) {
    ATOLL_TRY(database.prepare("DELETE FROM rounds WHERE run=? AND lineage=? AND round=?")
                  .bind(round.run.text)
                  .bind(round.lineage)
                  .bind(round.round.value)
                  .run());
  }
  return {};
}

Result<std::vector<std::uint32_t>> lineages_of(Database& database, const RunId& run) {
  auto rows = database.prepare("SELECT DISTINCT lineage FROM rounds WHERE run=?");
  rows.bind(run.text);
  std::vector<std::uint32_t> lineages;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return lineages;
    }
    lineages.push_back(static_cast<std::uint32_t>(rows.number(0)));
  }
}

Result<std::vector<DroppedRecord>> read_all_dropped(Database& database, const RunId& run, std::uint32_t lineage) {
  auto rows = database.prepare(select<DroppedRecord>("WHERE run=? AND lineage=? AND round>0"));
  rows.bind(run.text).bind(lineage);
  return read_rows<DroppedRecord>(std::move(rows));
}

// Whether a round that stays a row, or one that is still to come, needs to know why these sequences were refused.
bool is_needed(const DroppedRecord& dropped, const std::vector<CountedRounds>& before, const OlderRounds& older) {
  if (dropped.fate == Fate::dropped || dropped.facts.data.held() >= dropped.facts.data.to) {
    return false;
  }
  std::uint64_t reached = 0;
  for (const CountedRounds& counted : before) {
    const auto part = counted.parts.find(dropped.facts.data.part);
    reached = std::max(reached, part == counted.parts.end() ? 0 : part->second.position);
  }
  const DataRange& refused = dropped.facts.data;
  for (const RoundRecord& round : older.gone) {
    for (const ContributionFacts& each : round.contributions) {
      reached = std::max(reached, each.data.part == refused.part ? each.data.to : 0);
    }
  }
  return refused.to > reached || std::ranges::any_of(older.kept_rows, [&](const RoundRecord& round) {
           return std::ranges::any_of(round.contributions, [&](const ContributionFacts& each) {
             return each.data.part == refused.part && each.data.from < refused.to && refused.held() < each.data.to;
           });
         });
}

// The sums of older ones stay, under round 0, for which there are no contributions.
Status thin_dropped(Database& database, const std::vector<DroppedRecord>& all, const std::vector<CountedRounds>& before,
                    const OlderRounds& older, Round last) {
  for (const DroppedRecord& dropped : all) {
    if (dropped.round > last || is_needed(dropped, before, older)) {
      continue;
    }
    const bool counts = dropped.fate == Fate::dropped && std::ranges::any_of(older.gone, [&](const RoundRecord& round) {
                          return round.round == dropped.round && counts_in(round, dropped);
                        });
    const std::string fate(to_string(dropped.fate));
    if (!counts) {
      ATOLL_TRY(database
                    .prepare("INSERT INTO dropped(run, lineage, island, fragment, round, fate, part, from_sequence, to_sequence, tokens, "
                             "overwritten, held_from) VALUES(?,?,?,0,0,?,0,0,0,?,?,0) ON CONFLICT(run, lineage, island, round, fate) DO "
                             "UPDATE SET tokens=tokens+excluded.tokens, overwritten=overwritten+excluded.overwritten")
                    .bind(dropped.run.text)
                    .bind(dropped.lineage)
                    .bind(dropped.island.text)
                    .bind(fate)
                    .bind(dropped.facts.tokens)
                    .bind(dropped.facts.overwritten)
                    .run());
    }
    ATOLL_TRY(database.prepare("DELETE FROM dropped WHERE run=? AND lineage=? AND island=? AND round=? AND fate=?")
                  .bind(dropped.run.text)
                  .bind(dropped.lineage)
                  .bind(dropped.island.text)
                  .bind(dropped.round.value)
                  .bind(fate)
                  .run());
  }
  return {};
}

}  // namespace

Result<std::vector<CountedRounds>> read_counted(Database& database, const RunId& run) {
  auto rows = database.prepare("SELECT lineage, first, last, counts FROM counted WHERE run=? ORDER BY lineage, first");
  rows.bind(run.text);
  std::vector<CountedRounds> all;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return all;
    }
    CountedRounds counted;
    counted.run = run;
    counted.lineage = static_cast<std::uint32_t>(rows.number(0));
    counted.first = Round(rows.number(1));
    counted.last = Round(rows.number(2));
    ATOLL_TRY(read_counts(counted, rows.text(3)));
    all.push_back(std::move(counted));
  }
}

Status thin_rounds(Database& database, const RunId& run, Round newest) {
  if (newest.value > kRoundsWhole) {
    const Round last(newest.value - kRoundsWhole);
    ATOLL_ASSIGN(const std::vector<CountedRounds> counted, read_counted(database, run));
    ATOLL_ASSIGN(const std::vector<std::uint32_t> lineages, lineages_of(database, run));
    for (const std::uint32_t lineage : lineages) {
      std::vector<CountedRounds> before;
      std::ranges::copy_if(counted, std::back_inserter(before), [&](const CountedRounds& each) { return each.lineage == lineage; });
      ATOLL_ASSIGN(const OlderRounds older, older_rounds(database, run, lineage, last));
      ATOLL_ASSIGN(const std::vector<DroppedRecord> dropped, read_all_dropped(database, run, lineage));
      Refusals refusals;
      for (const DroppedRecord& each : dropped) {
        refusals.add(each);
      }
      ATOLL_TRY(count_together(database, before, older, refusals));
      ATOLL_TRY(thin_dropped(database, dropped, before, older, last));
    }
  }
  return database.prepare("DELETE FROM epochs WHERE run=?1 AND epoch<=(SELECT max(epoch) FROM epochs WHERE run=?1)-?2")
      .bind(run.text)
      .bind(kEpochsKept)
      .run();
}

Status thin_events(Database& database, const RunId& run, Round newest) {
  for (const Age& age : ages_of(newest, kRoundsWhole)) {
    ATOLL_TRY(database
                  .prepare("DELETE FROM events WHERE run=? AND level IN ('info', 'debug') AND kind IN ('round_committed', 'round_planned', "
                           "'checkpoint_written', 'checkpoint_copied', 'own_metrics', 'island_waited', 'consensus') AND "
                           "json_extract(fields, '$.round')<=? AND json_extract(fields, '$.round')%?<>0")
                  .bind(run.text)
                  .bind(age.newest.value)
                  .bind(age.stride)
                  .run());
  }
  for (const bool warnings : {false, true}) {
    const std::string level = warnings ? "level IN ('warning', 'error')" : "level NOT IN ('warning', 'error')";
    ATOLL_TRY(database
                  .prepare("DELETE FROM events WHERE run=?1 AND " + level +
                           " AND sequence<=(SELECT sequence FROM events WHERE run=?1 AND " + level +
                           " ORDER BY sequence DESC LIMIT 1 OFFSET ?2)")
                  .bind(run.text)
                  .bind(kEventsKept)
                  .run());
  }
  return {};
}

// Rounds that were thinned before are not looked at again: only those that have just come to this age.
Status thin_spans(Database& database, const RunId& run, Round newest) {
  constexpr std::uint64_t kLookBack = 8192;
  for (const Age& age : ages_of(newest, kSpanRoundsWhole)) {
    ATOLL_TRY(database.prepare("DELETE FROM spans WHERE run=? AND round<=? AND round>=? AND round%?<>0")
                  .bind(run.text)
                  .bind(age.newest.value)
                  .bind(age.newest.value - std::min(age.newest.value, kLookBack))
                  .bind(age.stride)
                  .run());
  }
  return {};
}

// Keeps one round in each of kSeriesPoints equal parts of the rounds so far, apart for those with a validation loss and those
// without; the first and the newest stay.
Status thin_metrics(Database& database, const RunId& run, Round newest) {
  return database
      .prepare(
          "DELETE FROM metrics WHERE run=?1 AND round<?2 AND round NOT IN "
          "(SELECT min(round) FROM metrics WHERE run=?1 GROUP BY outer_loss IS NULL, round*?3/?2)")
      .bind(run.text)
      .bind(newest.value)
      .bind(std::uint64_t{Ledger::kSeriesPoints})
      .run();
}

}  // namespace atl::coordinator
