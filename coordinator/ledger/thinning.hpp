// What the ledger keeps of a long run, so that it does not grow with every round for ever.
//
//   events of rounds, spans      all of the newest kRoundsWhole rounds (spans: kSpanRoundsWhole); of those before them every second one, of
//                                twice as old ones every fourth, and so on: half as many more each time that a run becomes twice as long
//   rounds                       the newest kRoundsWhole
//   rounds, what they counted    never lost: where rounds go, one row says what they counted together (counted_rounds.hpp). The newest
//                                kRecoveredCheckpoints rounds with a checkpoint stay as they are: a run may go back to them
//   metrics                      kSeriesPoints rounds, at equal distances
//   other events                 the newest kEventsKept below level warning, and as many of warning and error
//   spans                        in any case at most kSpansKept
//   epochs                       the newest kEpochsKept
//   dropped contributions        those of the newest kRoundsWhole rounds; of older ones the sums for each island and fate
//
// Each function is a part of a transaction, and costs some milliseconds for kThinEvery rounds.
// Threads: those of the database.
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/ledger/counted_rounds.hpp"
#include "coordinator/ledger/database.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"

namespace atl::coordinator {

inline constexpr std::uint64_t kRoundsWhole = 2048;
inline constexpr std::uint64_t kSpanRoundsWhole = 1024;
inline constexpr std::uint64_t kThinEvery = 256;  // rounds
inline constexpr std::uint64_t kEventsKept = 20'000;
inline constexpr std::uint64_t kEpochsKept = 1024;

Status thin_rounds(Database& database, const RunId& run, Round newest);
Status thin_events(Database& database, const RunId& run, Round newest);
Status thin_spans(Database& database, const RunId& run, Round newest);
Status thin_metrics(Database& database, const RunId& run, Round newest);

// What the run's rounds that are no rows any more counted, by lineage and round.
Result<std::vector<CountedRounds>> read_counted(Database& database, const RunId& run);

}  // namespace atl::coordinator
