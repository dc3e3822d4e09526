#include "transport/relay/relay_book.hpp"

#include <algorithm>

namespace atl {

RelayBook::Admission RelayBook::admit(Connection connection, const MeetingRequest& request, TimePoint now) {
  Admission admission;
  if (entries_.size() >= limits_.connections) {
    admission.refused = "the relay has all the connections that it may have (" + std::to_string(limits_.connections) + ")";
    return admission;
  }
  const auto [found, added] = islands_.try_emplace(request.island);
  Island& island = found->second;
  if (added || now - island.window_from >= kOpeningWindow) {
    island.window_from = now;
    island.opened = 0;
  }
  island.last = added ? now : island.last;
  admission.new_island = added;
  if (island.connections >= limits_.connections_of_an_island) {
    admission.refused =
        "island " + request.island.text + " has " + std::to_string(island.connections) + " connections, and may have no more";
    return admission;
  }
  if (++island.opened > limits_.opened_in_a_window) {
    admission.refused = "island " + request.island.text + " opened more than " + std::to_string(limits_.opened_in_a_window) +
                        " connections in " + human_duration(kOpeningWindow);
    return admission;
  }
  ++island.connections;
  island.last = now;
  Entry& entry = entries_.emplace(connection, Entry{request, now, true}).first->second;
  if (const auto other = waiting_.find({request.peer, request.island, request.punches}); other != waiting_.end()) {
    admission.partner = other->second.front();
    stop_waiting(*admission.partner, entries_.at(*admission.partner));
    entry.waits = false;
    return admission;
  }
  waiting_[request].push_back(connection);
  return admission;
}

void RelayBook::stop_waiting(Connection connection, Entry& entry) {
  entry.waits = false;
  const auto queue = waiting_.find(entry.request);
  std::erase(queue->second, connection);
  if (queue->second.empty()) {
    waiting_.erase(queue);
  }
}

void RelayBook::gone(Connection connection, TimePoint now) {
  const auto found = entries_.find(connection);
  if (found == entries_.end()) {
    return;
  }
  if (found->second.waits) {
    stop_waiting(connection, found->second);
  }
  Island& island = islands_.at(found->second.request.island);
  --island.connections;
  island.last = now;
  entries_.erase(found);
}

RelayBook::Sweep RelayBook::sweep(TimePoint now) {
  Sweep sweep;
  for (const auto& [connection, entry] : entries_) {
    if (entry.waits && now - entry.since >= limits_.patience) {
      sweep.waited.push_back(connection);
    }
  }
  for (const Connection connection : sweep.waited) {
    gone(connection, now);
  }
  std::erase_if(islands_, [&](const auto& island) {
    const bool left = island.second.connections == 0 && now - island.second.last >= kIslandGone;
    if (left) {
      sweep.left.push_back(island.first);
    }
    return left;
  });
  return sweep;
}

std::size_t RelayBook::waiting() const {
  return static_cast<std::size_t>(std::ranges::count_if(entries_, [](const auto& entry) { return entry.second.waits; }));
}

}  // namespace atl
