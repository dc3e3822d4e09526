#include "cli/recorded/trace_events.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

#include "cli/views/parts/document.hpp"

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

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

std::string name_event(const std::string& what, std::uint64_t process, const std::string& name) {
  return "\"name\":" + quoted(what) + ",\"ph\":\"M\",\"pid\":" + std::to_string(process) + ",\"args\":{\"name\":" + quoted(name) + "}";
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
  const std::string cause = text_at(span, "cause");
  // Written at once: a long run has a hundred thousand of them.
  std::string fields = "\"name\":" + quoted(title_of(activity, cause, round)) + ",\"cat\":" + quoted(activity) +
                       ",\"ph\":\"X\",\"args\":{\"round\":" + std::to_string(round) +
                       ",\"fragment\":" + std::to_string(static_cast<std::uint64_t>(number_at(span, "fragment").value_or(0)));
  const auto amount = static_cast<std::uint64_t>(number_at(span, "amount").value_or(0));
  if (amount > 0) {
    fields += (activity == "steps" ? ",\"steps\":" : ",\"bytes\":") + std::to_string(amount);
  }
  fields += peer.empty() ? "" : ",\"peer\":" + quoted(peer);
  fields += cause.empty() ? "" : ",\"cause\":" + quoted(cause);
  islands_[island][track_of(activity, peer)].push_back(
      {span["start_unix_ns"].get<std::int64_t>(), span["length_ns"].get<std::int64_t>(), fields + "}"});
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
  std::string all;
  const auto put = [&](const std::string& event) { all += (all.empty() ? "{" : ",{") + event + "}"; };
  std::uint64_t process = 0;
  for (const auto& [island, tracks] : islands_) {
    put(name_event("process_name", ++process, island));
    std::uint64_t thread = 1;  // viewers sort by it
    for (const auto& [track, unsorted] : tracks) {
      std::vector<const Event*> events;
      std::ranges::transform(unsorted, std::back_inserter(events), [](const Event& event) { return &event; });
      std::ranges::stable_sort(events, {}, &Event::start_ns);
      Lanes lanes;
      for (const Event* event : events) {
        const std::size_t lane = lanes.place(event->start_ns, event->start_ns + event->length_ns);
        // Whole microseconds: with fractions the end of an event can lie a rounding behind the start of the next, and viewers drop what
        // overlaps.
        const std::int64_t start = (event->start_ns - first) / 1000;
        const std::int64_t end = (event->start_ns - first + event->length_ns) / 1000;
        put(event->fields + ",\"pid\":" + std::to_string(process) + ",\"tid\":" + std::to_string(thread + lane) +
            ",\"ts\":" + std::to_string(start) + ",\"dur\":" + std::to_string(end - start));
      }
      for (std::size_t lane = 0; lane < lanes.count(); ++lane) {
        const std::string name = track.second + (lane == 0 ? "" : " " + std::to_string(lane + 1));
        put(name_event("thread_name", process, name) + ",\"tid\":" + std::to_string(thread++));
      }
    }
  }
  return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + all + "]}\n";
}

}  // namespace atl
