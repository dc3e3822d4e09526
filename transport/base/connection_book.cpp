#include "transport/base/connection_book.hpp"

#include <algorithm>
#include <utility>

namespace atl {

std::optional<int> ConnectionBook::accepted(int descriptor, std::string host, TimePoint now) {
  gone(descriptor);  // its number is used again: the one before it went unnoticed
  std::optional<int> to_close;
  if (strangers_ >= most_strangers_ && strangers_ > 0) {
    to_close = least_wanted();
    gone(*to_close);
  }
  entries_.emplace(descriptor, Entry{std::move(host), now, false, 0});
  ++strangers_;
  return to_close;
}

void ConnectionBook::gone(int descriptor) {
  const auto found = entries_.find(descriptor);
  if (found == entries_.end()) {
    return;
  }
  strangers_ -= found->second.proven ? 0 : 1;
  entries_.erase(found);
}

void ConnectionBook::prove(int descriptor) {
  const auto found = entries_.find(descriptor);
  if (found != entries_.end() && !std::exchange(found->second.proven, true)) {
    --strangers_;
  }
}

void ConnectionBook::doubt(int descriptor, TimePoint now) {
  const auto found = entries_.find(descriptor);
  if (found != entries_.end() && std::exchange(found->second.proven, false)) {
    found->second.since = now;
    ++strangers_;
  }
}

std::vector<int> ConnectionBook::take_expired(TimePoint now) {
  std::vector<int> expired;
  for (const auto& [descriptor, entry] : entries_) {
    if (!entry.proven && now - entry.since >= patience_) {
      expired.push_back(descriptor);
    }
  }
  for (const int descriptor : expired) {
    gone(descriptor);
  }
  return expired;
}

std::vector<int> ConnectionBook::take_loud(std::uint64_t most, const std::function<std::uint64_t(int descriptor)>& received) {
  std::vector<int> loud;
  for (auto& [descriptor, entry] : entries_) {
    const std::uint64_t bytes = received(descriptor);
    if (bytes > entry.received && bytes - entry.received > most) {
      loud.push_back(descriptor);
    }
    entry.received = bytes;
  }
  return loud;
}

std::optional<TimePoint> ConnectionBook::next_deadline() const {
  std::optional<TimePoint> first;
  for (const auto& [descriptor, entry] : entries_) {
    if (!entry.proven) {
      first = std::min(first.value_or(TimePoint::max()), entry.since + patience_);
    }
  }
  return first;
}

// The oldest stranger of the address that has most of them.
int ConnectionBook::least_wanted() const {
  std::map<std::string_view, std::size_t> of_host;
  for (const auto& [descriptor, entry] : entries_) {
    of_host[entry.host] += entry.proven ? 0 : 1;
  }
  const auto most = std::ranges::max_element(of_host, {}, [](const auto& host) { return host.second; });
  int oldest = -1;
  TimePoint since = TimePoint::max();
  for (const auto& [descriptor, entry] : entries_) {
    if (!entry.proven && entry.host == most->first && entry.since < since) {
      oldest = descriptor;
      since = entry.since;
    }
  }
  return oldest;
}

}  // namespace atl
