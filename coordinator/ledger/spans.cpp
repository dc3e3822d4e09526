// The ledger's timeline: what islands spent their time on.
#include "coordinator/ledger/spans.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "coordinator/ledger/database.hpp"
#include "coordinator/ledger/ledger.hpp"
#include "coordinator/ledger/thinning.hpp"

namespace atl::coordinator {
namespace {

constexpr std::array<std::string_view, 9> kActivities = {"steps",  "wait",       "encode",     "send",    "receive",
                                                         "reduce", "outer_step", "checkpoint", "catch_up"};
constexpr std::uint64_t kThinEverySpans = 4096;  // between two looks at how many there are

Status write_span(Database& database, const IslandSpan& item) {
  const Span& span = item.span;
  return database
      .prepare(
          "INSERT OR IGNORE INTO spans(run, island, activity, round, fragment, peer, start_ns, length_ns, amount, cause) "
          "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
      .bind(item.run.text)
      .bind(item.island.text)
      .bind(to_string(span.kind))
      .bind(span.round.value)
      .bind(span.fragment)
      .bind(span.peer.text)
      .bind(std::int64_t{span.start.time_since_epoch().count()})
      .bind(std::int64_t{span.length.count()})
      .bind(span.amount)
      .bind(item.cause)
      .run();
}

}  // namespace

std::string_view to_string(SpanKind kind) { return kActivities.at(static_cast<std::size_t>(kind)); }

std::vector<IslandSpan> parts_of_wait(const IslandSpan& wait, std::span<const WaitCause> causes) {
  const Duration length = wait.span.length;
  if (causes.empty() || length <= Duration(0) || wait.span.start > TimePoint::max() - length) {  // an island says what it likes
    return {wait};
  }
  std::vector<IslandSpan> parts;
  const TimePoint end = wait.span.start + length;
  TimePoint start = wait.span.start;
  for (std::size_t i = 0; i < causes.size() && start < end; ++i) {
    IslandSpan part = wait;
    const Duration left = end - start;
    part.span.start = start;
    part.span.length = i + 1 == causes.size() ? left : std::min(left, from_seconds(causes[i].seconds));
    part.span.peer = causes[i].peer;
    part.cause = causes[i].text;
    start += part.span.length;
    parts.push_back(std::move(part));
  }
  return parts;
}

Status Ledger::write_spans(std::span<const IslandSpan> spans) {
  if (spans.empty()) {
    return {};
  }
  return database_->transaction([&]() -> Status {
    std::map<RunId, Round> grown;
    for (const IslandSpan& item : spans) {
      ATOLL_TRY(write_span(*database_, item));
      if (++spans_written_ % kThinEverySpans == 0) {
        grown[item.run] = item.span.round;
      }
    }
    for (const auto& [run, round] : grown) {
      ATOLL_TRY(thin_spans(*database_, run, round));
      ATOLL_TRY(
          database_
              ->prepare("DELETE FROM spans WHERE run=?1 AND id<=(SELECT id FROM spans WHERE run=?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)")
              .bind(run.text)
              .bind(kSpansKept)
              .run());
    }
    return {};
  });
}

Result<std::vector<Ledger::StoredSpan>> Ledger::spans(const RunId& run, std::uint64_t after, std::size_t limit) {
  auto rows = database_->prepare(
      "SELECT id, island, activity, round, fragment, peer, start_ns, length_ns, amount, cause FROM spans INDEXED BY spans_of_run WHERE "
      "run=? AND "
      "id>? ORDER BY id LIMIT ?");
  rows.bind(run.text).bind(after).bind(limit);
  std::vector<StoredSpan> found;
  for (;;) {
    ATOLL_ASSIGN(const bool there, rows.row());
    if (!there) {
      return found;
    }
    const std::string activity = rows.text(2);
    const auto known = std::find(kActivities.begin(), kActivities.end(), activity);
    if (known == kActivities.end()) {
      continue;  // of a newer atoll
    }
    Span span{static_cast<SpanKind>(known - kActivities.begin()),
              Round(rows.number(3)),
              static_cast<std::uint32_t>(rows.number(4)),
              IslandId(rows.text(5)),
              TimePoint(Duration(rows.integer(6))),
              Duration(rows.integer(7)),
              rows.number(8)};
    found.push_back(StoredSpan{rows.number(0), IslandSpan{run, IslandId(rows.text(1)), std::move(span), rows.text(9)}});
  }
}

}  // namespace atl::coordinator
