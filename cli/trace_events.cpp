#include "cli/trace_events.hpp"

#include <algorithm>
#include <limits>

#include "cli/views/document.hpp"

namespace atl {
namespace {

// The tracks of an island, from top to bottom.
std::pair<int, std::string> track_of(const std::string& activity, const std::string& peer) {
  if (activity == "steps" || activity == "wait") {
    return {1, "trainer"};
  }
  if (activity == "send") {
    return {3, "sends"};
  }
  if (activity == "receive") {
    return {4, peer.empty() ? "receives" : "receives from " + peer};
  }
  return {2, "synchronisation"};
}

std::string title_of(const std::string& activity, const std::string& cause, std::uint64_t round) {
  if (activity == "steps") {
    return "steps";
  }
  std::string title = activity == "outer_step" ? "outer step" : activity == "catch_up" ? "catch up" : activity;
  if (!cause.empty()) {
    title += " for " + cause;
  }
  return title + ", round " + std::to_string(round);
}

// The lanes of a track: as few as may be, so that in none an event begins before the one before it there has ended. Events come in the
// order of their starts.
class Lanes {
 public:
  std::size_t place(std::int64_t start, std::int64_t end) {
    const auto free = std::find_if(ends_.begin(), ends_.end(), [&](std::int64_t taken) { return taken <= start; });
    const auto lane = static_cast<std::size_t>(free - ends_.begin());
    if (free == ends_.end()) {
      ends_.push_back(end);
    } else {
      *free = end;
    }
    return lane;
  }
  [[nodiscard]] std::size_t count() const { return ends_.size(); }

 private:
  std::vector<std::int64_t> ends_;
};

nlohmann::json name_event(const char* what, std::uint64_t process, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"args", {{"name", name}}}};
}

}  // namespace

void TraceEvents::add(const nlohmann::json& span) {
  const std::string island = text_at(span, "island");
  const std::string activity = text_at(span, "activity");
  const std::string peer = text_at(span, "peer");
  if (island.empty() || activity.empty() || !span.contains("start_unix_ns") || !span["start_unix_ns"].is_number_integer() ||
      !span.contains("length_ns") || !span["length_ns"].is_number_integer() || span["length_ns"].get<std::int64_t>() < 0) {
    return;
  }
  const auto round = static_cast<std::uint64_t>(number_at(span, "round").value_or(0));
  nlohmann::json arguments = {{"round", round}, {"fragment", static_cast<std::uint64_t>(number_at(span, "fragment").value_or(0))}};
  const auto amount = static_cast<std::uint64_t>(number_at(span, "amount").value_or(0));
  if (amount > 0) {
    arguments[activity == "steps" ? "steps" : "bytes"] = amount;
  }
  if (!peer.empty()) {
    arguments["peer"] = peer;
  }
  const std::string cause = text_at(span, "cause");
  if (!cause.empty()) {
    arguments["cause"] = cause;
  }
  islands_[island][track_of(activity, peer)].push_back(
      {span["start_unix_ns"].get<std::int64_t>(),
       span["length_ns"].get<std::int64_t>(),
       {{"name", title_of(activity, cause, round)}, {"cat", activity}, {"ph", "X"}, {"args", std::move(arguments)}}});
  ++count_;
}

std::string TraceEvents::text() const {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const auto& [island, tracks] : islands_) {
    for (const auto& [track, events] : tracks) {
      for (const Event& event : events) {
        first = std::min(first, event.start_ns);
      }
    }
  }
  nlohmann::json all = nlohmann::json::array();
  std::uint64_t process = 0;
  for (const auto& [island, tracks] : islands_) {
    all.push_back(name_event("process_name", ++process, island));
    std::uint64_t thread = 1;  // viewers sort by it
    for (const auto& [track, unsorted] : tracks) {
      std::vector<Event> events = unsorted;
      std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) { return a.start_ns < b.start_ns; });
      Lanes lanes;
      for (Event& event : events) {
        const std::size_t lane = lanes.place(event.start_ns, event.start_ns + event.length_ns);
        event.json["pid"] = process;
        event.json["tid"] = thread + lane;
        // Whole microseconds: with fractions the end of an event can lie a rounding behind the start of the next, and viewers drop what
        // overlaps.
        const std::int64_t start = (event.start_ns - first) / 1000;
        event.json["ts"] = start;
        event.json["dur"] = (event.start_ns - first + event.length_ns) / 1000 - start;
        all.push_back(std::move(event.json));
      }
      for (std::size_t lane = 0; lane < lanes.count(); ++lane) {
        nlohmann::json name = name_event("thread_name", process, track.second + (lane == 0 ? "" : " " + std::to_string(lane + 1)));
        name["tid"] = thread++;
        all.push_back(std::move(name));
      }
    }
  }
  const nlohmann::json file = {{"displayTimeUnit", "ms"}, {"traceEvents", std::move(all)}};
  return file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace atl
