#include "coordinator/web/document_cache.hpp"

#include <algorithm>
#include <utility>

namespace atl::coordinator {

void DocumentCache::drop_oldest(const Entry* but) {
  const auto oldest =
      std::ranges::min_element(entries_, {}, [&](const auto& item) { return std::pair(item.second.get() == but, item.second->asked); });
  if (oldest != entries_.end()) {
    bytes_ -= oldest->second->bytes;
    oldest->second->bytes = 0;
    entries_.erase(oldest);
  }
}

std::shared_ptr<DocumentCache::Entry> DocumentCache::entry(const std::string& key) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Entry>& found = entries_[key];
  found = found ? found : std::make_shared<Entry>();
  found->asked = clock_();
  const std::shared_ptr<Entry> entry = found;
  if (entries_.size() > kMostKept) {
    drop_oldest(entry.get());
  }
  return entry;
}

void DocumentCache::note_size(const std::shared_ptr<Entry>& entry, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::none_of(entries_, [&](const auto& item) { return item.second == entry; })) {
    return;  // it was dropped meanwhile
  }
  bytes_ += bytes - entry->bytes;
  entry->bytes = bytes;
  while (bytes_ > kMostBytes && entries_.size() > 1) {
    drop_oldest(entry.get());
  }
}

DocumentCache::Document DocumentCache::get(const std::string& verb, const std::string& arguments) {
  const std::shared_ptr<Entry> found = entry(verb + "\n" + arguments);
  const std::lock_guard lock(found->asking);
  const TimePoint before = clock_();
  if (!found->document || before >= found->fresh_until) {
    found->document = std::make_shared<const Result<std::string>>(ask_(verb, arguments));
    const TimePoint after = clock_();
    found->fresh_until = after + std::max<Duration>(fresh_for_, (after - before) * kTimesItsCost);
    note_size(found, *found->document ? (*found->document)->size() : 0);
  }
  return found->document;
}

}  // namespace atl::coordinator
