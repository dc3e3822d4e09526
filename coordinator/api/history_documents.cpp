// The documents of what happened in a run, in pages that a cursor names: events, metrics, spans.
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/api/document_values.hpp"
#include "coordinator/api/requests.hpp"
#include "coordinator/ledger/spans.hpp"

namespace atl::coordinator {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxEvents = 1000;
constexpr std::int64_t kMaxMetrics = 1000;
constexpr std::int64_t kMaxSpans = 4000;  // of one answer: about a megabyte

}  // namespace

Result<json> Requests::events(TimePoint now, const Arguments& arguments) {
  EventQuery query;
  ATOLL_ASSIGN(const std::int64_t after, arguments.integer("after", 0, INT64_MAX, 0));
  ATOLL_ASSIGN(const std::int64_t limit, arguments.integer("limit", 1, kMaxEvents, 200));
  ATOLL_ASSIGN(const std::int64_t since, arguments.integer("since_unix_ms", 0, 253'402'300'799'999, 0));
  ATOLL_ASSIGN(const std::string island, arguments.text("island", ""));
  ATOLL_ASSIGN(const std::string level, arguments.text("level", "info"));
  if (level != "info" && level != "debug") {
    return Error{Code::invalid_argument, "events: 'level' is info or debug"};
  }
  query.debug = level == "debug";
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  query.run = run.id;
  query.after = static_cast<std::uint64_t>(after);
  query.limit = static_cast<std::size_t>(limit);
  query.since = since == 0 ? std::nullopt : std::optional(from_unix_ms(since));
  if (!island.empty()) {
    ATOLL_ASSIGN(const EnrolledKey key, find_key(island, Role::island));
    query.island = key.island;
  }
  ATOLL_ASSIGN(const std::vector<StoredEvent> stored, ledger_.events(query));
  json list = json::array();
  std::uint64_t next = query.after;
  for (const StoredEvent& item : stored) {
    json fields = json::parse(item.fields, nullptr, false);
    if (!fields.is_object()) {
      fields = json::object();
    }
    json round = fields.contains("round") ? fields["round"] : json();
    list.push_back({{"sequence", item.sequence},
                    {"time_unix_ms", unix_ms(item.event.time)},
                    {"level", item.event.level},
                    {"kind", item.event.kind},
                    {"island", item.event.island.empty() ? json() : json(name_of(item.event.island))},
                    {"round", std::move(round)},
                    {"text", item.event.text},
                    {"fields", std::move(fields)}});
    next = item.sequence;
  }
  return json{
      {"run", run.id.text}, {"state", to_string(run.state)}, {"ended", has_ended(run.state)}, {"next", next}, {"events", std::move(list)}};
}

Result<json> Requests::metrics(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::int64_t after, arguments.integer("after", -1, INT64_MAX, -1));
  ATOLL_ASSIGN(const std::int64_t limit, arguments.integer("limit", 1, kMaxMetrics, kMaxMetrics));
  ATOLL_ASSIGN(const std::string which, arguments.text("island", ""));
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  IslandId island;
  if (!which.empty()) {
    ATOLL_ASSIGN(const EnrolledKey key, find_key(which, Role::island));
    island = key.island;
  }
  ATOLL_ASSIGN(const std::vector<RoundMetrics> stored, ledger_.metrics(run.id, island, after, static_cast<std::size_t>(limit)));
  json list = json::array();
  for (const RoundMetrics& item : stored) {
    const bool trained = item.round > Round(0);
    list.push_back({{"round", item.round.value},
                    {"time_unix_ms", unix_ms(item.time)},
                    {"step", item.step.value},
                    {"islands", item.islands},
                    {"outer_loss", number(item.outer_loss)},
                    {"local_loss", number(item.local_loss)},
                    {"training_loss", trained ? number(item.training_loss) : json()},
                    {"norm", trained ? number(item.norm) : json()},
                    {"wait_seconds", number(item.wait_seconds)},
                    {"tokens", item.tokens},
                    {"bytes_sent", item.bytes_sent}});
  }
  const std::int64_t next = stored.empty() ? after : static_cast<std::int64_t>(stored.back().round.value);
  return json{{"run", run.id.text}, {"name", run.name}, {"state", to_string(run.state)}, {"next", next}, {"metrics", std::move(list)}};
}

Result<json> Requests::spans(TimePoint now, const Arguments& arguments) {
  ATOLL_ASSIGN(const std::int64_t after, arguments.integer("after", 0, INT64_MAX, 0));
  ATOLL_ASSIGN(const std::int64_t limit, arguments.integer("limit", 1, kMaxSpans, kMaxSpans));
  ATOLL_ASSIGN(const RunView run, named_run(now, arguments));
  ATOLL_ASSIGN(const std::vector<Ledger::StoredSpan> stored,
               ledger_.spans(run.id, static_cast<std::uint64_t>(after), static_cast<std::size_t>(limit)));
  json list = json::array();
  for (const Ledger::StoredSpan& item : stored) {
    const Span& span = item.span.span;
    list.push_back({{"island", name_of(item.span.island)},
                    {"activity", to_string(span.kind)},
                    {"round", span.round.value},
                    {"fragment", span.fragment},
                    {"peer", span.peer.empty() ? json() : json(name_of(span.peer))},
                    {"cause", text_or_null(item.span.cause)},
                    {"start_unix_ns", span.start.time_since_epoch().count()},
                    {"length_ns", span.length.count()},
                    {"amount", span.amount}});
  }
  const std::uint64_t next = stored.empty() ? static_cast<std::uint64_t>(after) : stored.back().id;
  return json{{"run", run.id.text}, {"next", next}, {"spans", std::move(list)}};
}

}  // namespace atl::coordinator
