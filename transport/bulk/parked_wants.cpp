#include "transport/bulk/parked_wants.hpp"

#include <utility>

namespace atl {

ParkedWants::Waiting::iterator ParkedWants::remove(Waiting::iterator place) {
  const auto reader = by_reader_.find(place->first.reader);
  reader->second.erase(place->second.number);
  if (reader->second.empty()) {
    by_reader_.erase(reader);
  }
  return waiting_.erase(place);
}

void ParkedWants::park(const IslandId& reader, const WantOver& asked) {
  const auto [place, added] = waiting_.try_emplace(Key{asked.want, reader}, Place{next_, asked.connection});
  if (!added) {
    place->second.connection = asked.connection;
    return;
  }
  auto& own = by_reader_[reader];
  own.emplace(next_++, place);
  if (own.size() > most_per_reader_) {
    remove(own.begin()->second);
  }
}

void ParkedWants::drop_reader(const IslandId& reader) {
  const auto found = by_reader_.find(reader);
  if (found == by_reader_.end()) {
    return;
  }
  for (const auto& [number, place] : found->second) {
    waiting_.erase(place);
  }
  by_reader_.erase(found);
}

std::vector<ParkedWant> ParkedWants::take(const std::function<bool(const Want&)>& chosen) {
  std::vector<ParkedWant> taken;
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    if (chosen(place->first.want)) {
      taken.push_back(ParkedWant{place->first.reader, place->first.want, place->second.connection});
      place = remove(place);
    } else {
      ++place;
    }
  }
  return taken;
}

std::vector<ParkedWant> ParkedWants::take(const BlobId& blob, std::uint64_t begin, std::uint64_t end,
                                          const std::function<bool(const Want&)>& chosen) {
  std::vector<ParkedWant> taken;
  for (auto place = waiting_.lower_bound(Key{Want{blob, begin, 0, false}, {}});
       place != waiting_.end() && place->first.want.blob == blob && place->first.want.offset < end;) {
    if (chosen(place->first.want)) {
      taken.push_back(ParkedWant{place->first.reader, place->first.want, place->second.connection});
      place = remove(place);
    } else {
      ++place;
    }
  }
  return taken;
}

}  // namespace atl
