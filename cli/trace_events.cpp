#include "cli/trace_events.hpp"

#include <algorithm>
#include <limits>

#include "cli/views/document.hpp"

namespace atl {
namespace {

// The tracks of an island, from top to bottom.
std::uint64_t order_of(const std::string& track) { return track == "trainer" ? 1 : track == "synchronisation" ? 2 : track == "sends" ? 3 : 4; }

std::string track_of(const std::string& activity, const std::string& peer) {
  if (activity == "steps" || activity == "wait") {
    return "trainer";
  }
  if (activity == "send") {
    return "sends";
  }
  if (activity == "receive") {
    return peer.empty() ? "receives" : "receives from " + peer;
  }
  return "synchronisation";
}

std::string title_of(const std::string& activity, const std::string& peer, std::uint64_t round) {
  if (activity == "steps") {
    return "steps";
  }
  std::string title = activity == "outer_step" ? "outer step" : activity == "catch_up" ? "catch up" : activity;
  if (activity == "wait" && !peer.empty()) {
    title += " for " + peer;
  }
  return title + ", round " + std::to_string(round);
}

}  // namespace

void TraceEvents::add(const nlohmann::json& span) {
  const std::string island = text_at(span, "island");
  const std::string activity = text_at(span, "activity");
  const std::string peer = text_at(span, "peer");
  if (island.empty() || activity.empty() || !span.contains("start_unix_ns") || !span["start_unix_ns"].is_number_integer() ||
      !span.contains("length_ns") || !span["length_ns"].is_number_integer()) {
    return;
  }
  const std::uint64_t process = islands_.try_emplace(island, islands_.size() + 1).first->second;
  const std::string track = track_of(activity, peer);
  tracks_.emplace(process, track);
  const auto round = static_cast<std::uint64_t>(number_at(span, "round").value_or(0));
  nlohmann::json arguments = {{"round", round}, {"fragment", static_cast<std::uint64_t>(number_at(span, "fragment").value_or(0))}};
  const auto amount = static_cast<std::uint64_t>(number_at(span, "amount").value_or(0));
  if (amount > 0) {
    arguments[activity == "steps" ? "steps" : "bytes"] = amount;
  }
  if (!peer.empty()) {
    arguments["peer"] = peer;
  }
  events_.push_back({{"name", title_of(activity, peer, round)},
                     {"cat", activity},
                     {"ph", "X"},
                     {"pid", process},
                     {"tid", track},
                     {"ts", span["start_unix_ns"]},
                     {"dur", span["length_ns"]},
                     {"args", std::move(arguments)}});
  ++count_;
}

std::string TraceEvents::text() const {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const nlohmann::json& event : events_) {
    first = std::min(first, event["ts"].get<std::int64_t>());
  }
  nlohmann::json all = nlohmann::json::array();
  for (const auto& [island, process] : islands_) {
    all.push_back({{"name", "process_name"}, {"ph", "M"}, {"pid", process}, {"args", {{"name", island}}}});
  }
  std::map<std::pair<std::uint64_t, std::string>, std::uint64_t> numbers;
  for (const auto& [process, track] : tracks_) {
    const std::uint64_t number = order_of(track) * 100 + (order_of(track) == 4 ? numbers.size() % 90 : 0);
    numbers[{process, track}] = number;
    all.push_back({{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", number}, {"args", {{"name", track}}}});
  }
  for (nlohmann::json event : events_) {
    event["tid"] = numbers.at({event["pid"].get<std::uint64_t>(), event["tid"].get<std::string>()});
    event["ts"] = static_cast<double>(event["ts"].get<std::int64_t>() - first) / 1000.0;
    event["dur"] = static_cast<double>(event["dur"].get<std::int64_t>()) / 1000.0;
    all.push_back(std::move(event));
  }
  const nlohmann::json file = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(all)}};
  return file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace atl
