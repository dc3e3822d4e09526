#include "cli/link/holders.hpp"

#include <algorithm>
#include <thread>

#include "cli/link/dial.hpp"

namespace atl {

void add_islands(std::vector<Member>& list, const std::vector<Member>& more) {
  for (const Member& island : more) {
    if (std::ranges::find(list, island.island, &Member::island) == list.end()) {
      list.push_back(island);
    }
  }
}

Holders Holders::dial(const std::vector<Member>& islands, Duration patience) {
  std::vector<Member> each;
  add_islands(each, islands);
  Holders holders;
  for (const Member& island : each) {
    holders.holders_.push_back({island, {}, {}});
  }
  std::vector<std::thread> threads;
  threads.reserve(each.size());
  for (Holder& holder : holders.holders_) {
    threads.emplace_back([&holder, patience] {
      const Result<Dialled> dialled = dial_nearest(holder.island.bulk_address, patience);
      if (dialled) {
        holder.round_trip = dialled->round_trip;
      } else {
        holder.failure = dialled.error().why;
      }
    });
  }
  std::ranges::for_each(threads, &std::thread::join);
  std::ranges::stable_sort(holders.holders_, {}, &Holder::round_trip);
  return holders;
}

std::vector<Member> Holders::reached(const std::vector<Member>& islands) const {
  std::vector<Member> reached;
  for (const Holder& holder : holders_) {
    if (holder.failure.empty() && std::ranges::find(islands, holder.island.island, &Member::island) != islands.end()) {
      reached.push_back(holder.island);
    }
  }
  return reached;
}

void Holders::failed(const std::vector<DroppedSource>& sources) {
  for (const DroppedSource& source : sources) {
    const auto holder = std::ranges::find_if(holders_, [&](const Holder& one) { return one.island.island == source.source; });
    if (holder != holders_.end()) {
      holder->failure = source.error.why;
    }
  }
}

std::string Holders::failures_of(const std::vector<Member>* islands) const {
  std::string text;
  for (const Holder& holder : holders_) {
    const bool asked = islands == nullptr || std::ranges::find(*islands, holder.island.island, &Member::island) != islands->end();
    if (asked && !holder.failure.empty()) {
      text += (text.empty() ? "island " : "; island ") + holder.island.name + ": " + holder.failure;
    }
  }
  return text;
}

}  // namespace atl
