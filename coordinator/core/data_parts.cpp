#include "coordinator/core/data_parts.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace atl::coordinator {
namespace {

// Stretches behind the position that an island is told of: it may go on from a checkpoint of its own.
constexpr std::ptrdiff_t kStretchesBehind = 8;

}  // namespace

void DataParts::belong_to(const RunId& run, std::uint32_t classes, std::uint64_t of_a_round) {
  run_ = run;
  classes_ = std::clamp<std::uint32_t>(classes, 1, kMostDataClasses);
  of_a_round_ = std::max<std::uint64_t>(1, of_a_round);
  owners_.assign(classes_, std::nullopt);
}

void DataParts::recover(PartRecord part) {
  Part& known = at(part.part);
  known.claimed = part.position;
  known.record = std::move(part);
}

void DataParts::recover(StretchRecord stretch) { at(stretch.part).stretches[stretch.from] = std::move(stretch.classes); }

void DataParts::recovered() {
  for (const auto& [number, part] : parts_) {
    if (part.stretches.empty() || part.stretches.rbegin()->second.empty()) {
      continue;
    }
    dealt_.push_back(number);
    for (const DataClass& each : part.stretches.rbegin()->second) {
      if (each.number < classes_) {
        owners_[each.number] = number;
      }
    }
  }
}

std::uint32_t DataParts::count() const { return parts_.empty() ? 0 : parts_.rbegin()->first + 1; }

DataParts::Part& DataParts::at(std::uint32_t number) {
  Part& part = parts_[number];
  part.record.run = run_;
  part.record.part = number;
  return part;
}

std::uint64_t DataParts::position(std::uint32_t part) const {
  const auto found = parts_.find(part);
  return found == parts_.end() ? 0 : found->second.record.position;
}

std::uint64_t DataParts::position(std::uint32_t part, const std::vector<DataRange>* after) const {
  if (after == nullptr) {
    return position(part);
  }
  const auto at = std::ranges::find(*after, part, &DataRange::part);
  return at == after->end() ? 0 : at->to;
}

bool DataParts::begun() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part.second.record.position > 0; });
}

std::vector<DataRange> DataParts::snapshot() const {
  std::vector<DataRange> parts;
  for (const auto& [number, part] : parts_) {
    if (part.record.position > 0) {
      parts.push_back(DataRange{number, 0, part.record.position});
    }
  }
  return parts;
}

std::uint32_t DataParts::part_of(const IslandId& island, std::optional<std::uint32_t> had, Outbox& out) {
  const auto own = std::ranges::find_if(parts_, [&](const auto& part) { return part.second.record.owner == island; });
  if (own != parts_.end()) {
    return own->first;
  }
  const bool free = had && *had < kMostParts && (!parts_.contains(*had) || parts_.at(*had).record.owner.empty());
  // One that nobody has is of a run's past elsewhere: it goes on.
  const auto left = std::ranges::find_if(parts_, [](const auto& part) { return part.second.record.owner.empty(); });
  const std::uint32_t number = free ? *had : left != parts_.end() ? left->first : count();
  PartRecord& record = at(number).record;
  record.owner = island;
  out.record(record);
  return number;
}

std::uint64_t DataParts::limit(std::uint32_t number) const {
  const Part& part = parts_.at(number);
  if (part.stretches.empty()) {
    return part.record.position;
  }
  const std::uint64_t last = part.stretches.rbegin()->first;
  if (!std::ranges::binary_search(dealt_, number)) {
    return std::max(part.record.position, last);  // its owner is away, and has it up to there
  }
  // A stretch that is a round away is replaced by what is dealt next, so that few are ahead, however often islands come and go.
  const std::uint64_t round = std::max(of_a_round_, part.widest);
  const std::uint64_t trained = std::max(part.record.position, part.claimed);
  return last >= trained + round ? last : trained + 2 * round;
}

std::vector<std::uint64_t> DataParts::taken() const {
  // Of a past that isn't known, or was dealt in another way than the ledger has it, only the lengths of the parts are: no class can be
  // farther than they are together, and twice that leaves room for islands that were not heard.
  std::uint64_t unknown = void_ ? 2 * of_a_round_ : 0;
  for (const auto& [number, part] : parts_) {
    unknown += void_ || part.stretches.empty() ? limit(number) : 0;
  }
  std::vector<std::uint64_t> taken(classes_, 2 * unknown);
  for (const auto& [number, part] : parts_) {
    const std::uint64_t limit = this->limit(number);
    for (auto stretch = part.stretches.begin(); stretch != part.stretches.end() && stretch->first <= limit; ++stretch) {
      const auto next = std::next(stretch);
      const std::uint64_t to = next == part.stretches.end() ? limit : std::min(limit, next->first);
      for (const DataClass& each : DataStretch{stretch->first, stretch->second}.after(to - stretch->first)) {
        if (each.number < classes_) {
          taken[each.number] = std::max(taken[each.number], each.next);
        }
      }
    }
  }
  return taken;
}

void DataParts::begin_anew(Outbox& out) {
  for (auto& [number, part] : parts_) {
    part.claimed = 0;
    begin_stretch(number, 0, {}, out);
  }
  dealt_.clear();
  owners_.assign(classes_, std::nullopt);
}

void DataParts::begin_stretch(std::uint32_t number, std::uint64_t from, std::vector<DataClass> classes, Outbox& out) {
  Part& part = at(number);
  part.stretches.erase(part.stretches.lower_bound(from), part.stretches.end());
  part.stretches[from] = classes;
  out.record(StretchRecord{run_, number, from, std::move(classes)});
}

std::map<std::uint32_t, std::vector<std::uint32_t>> DataParts::hands(const std::vector<std::uint32_t>& among) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> hands;
  std::vector<std::uint32_t> free;
  for (std::uint32_t number = 0; number < classes_; ++number) {
    if (owners_[number] && std::ranges::binary_search(among, *owners_[number])) {
      hands[*owners_[number]].push_back(number);
    } else {
      free.push_back(number);
    }
  }
  // In equal numbers. Whoever has most already keeps what is left over, so that few classes change hands.
  std::vector<std::uint32_t> order = among;
  std::ranges::stable_sort(order, std::greater<>(), [&](std::uint32_t part) { return hands[part].size(); });
  const auto quota = [&](std::size_t place) { return classes_ / order.size() + (place < classes_ % order.size() ? 1 : 0); };
  for (std::size_t place = 0; place < order.size(); ++place) {
    for (std::vector<std::uint32_t>& hand = hands[order[place]]; hand.size() > quota(place); hand.pop_back()) {
      free.push_back(hand.back());
    }
  }
  std::ranges::sort(free, std::greater<>());
  for (std::size_t place = 0; place < order.size(); ++place) {
    std::vector<std::uint32_t>& hand = hands[order[place]];
    for (; hand.size() < quota(place); free.pop_back()) {
      hand.push_back(free.back());
    }
    std::ranges::sort(hand);
  }
  return hands;
}

bool DataParts::deal(std::vector<std::uint32_t> among, Outbox& out) {
  std::ranges::sort(among);
  if (among.empty() || (among == dealt_ && !void_)) {
    return false;
  }
  const std::vector<std::uint64_t> next = taken();
  std::map<std::uint32_t, std::uint64_t> limits;
  for (const auto& [number, part] : parts_) {
    limits[number] = limit(number);
  }
  for (const auto& [number, hand] : hands(among)) {
    std::vector<DataClass> classes;
    for (const std::uint32_t each : hand) {
      owners_[each] = number;
      classes.push_back(DataClass{each, next[each]});
    }
    const Part& part = at(number);
    const bool same = !void_ && std::ranges::binary_search(dealt_, number) &&
                      std::ranges::equal(part.stretches.rbegin()->second, hand, {}, &DataClass::number);
    if (!same) {
      begin_stretch(number, limits[number], std::move(classes), out);
    }
  }
  for (const auto& [number, limit] : limits) {
    const bool goes = void_ || std::ranges::binary_search(dealt_, number);
    if (goes && !std::ranges::binary_search(among, number)) {
      begin_stretch(number, limit, {}, out);
    }
  }
  dealt_ = std::move(among);
  void_ = false;
  return true;
}

DataShare DataParts::share(std::uint32_t number) const {
  DataShare share;
  share.classes = classes_;
  // An island that is being let in is told the slice that it will have as a member.
  const bool comes = !std::ranges::binary_search(dealt_, number);
  share.slices = static_cast<std::uint32_t>(dealt_.size() + (comes ? 1 : 0));
  share.slice = static_cast<std::uint32_t>(std::ranges::lower_bound(dealt_, number) - dealt_.begin());
  if (const auto part = parts_.find(number); part != parts_.end()) {
    const auto& stretches = part->second.stretches;
    const auto behind = stretches.upper_bound(part->second.record.position);
    const std::ptrdiff_t told = std::min(std::distance(stretches.begin(), behind), kStretchesBehind);
    for (auto stretch = std::prev(behind, told); stretch != stretches.end(); ++stretch) {
      share.stretches.push_back(DataStretch{stretch->first, stretch->second});
    }
  }
  return share;
}

void DataParts::claim(const DataRange& data) {
  if (const auto part = parts_.find(data.part); part != parts_.end() && data.sequences() > 0) {
    part->second.claimed = std::max(part->second.claimed, data.to);
    part->second.widest = std::max(part->second.widest, data.sequences());
  }
}

std::string DataParts::stale(std::uint32_t own_part, const DataRange& data) const {
  if (data == DataRange{}) {
    return "";  // it says of none
  }
  if (data.part != own_part) {
    return "its contribution is of part " + std::to_string(data.part) + " of the data, it has part " + std::to_string(own_part);
  }
  if (data.sequences() == 0) {
    return "";  // of the steps that the round before it holds
  }
  if (data.from < position(data.part)) {
    return "its contribution holds samples that are committed already: part " + std::to_string(data.part) + " from sequence " +
           std::to_string(data.from) + " on, which is committed up to sequence " + std::to_string(position(data.part));
  }
  return "";
}

void DataParts::count_in(const DataRange& data, std::uint64_t sequences, Outbox& out) {
  if (data.sequences() == 0) {
    return;
  }
  PartRecord& part = at(data.part).record;
  part.position = std::max(part.position, data.to);
  part.sequences = sequences > 0 ? sequences : part.sequences;
  out.record(part);
  claim(data);
}

void DataParts::return_to(const std::vector<DataRange>& parts, Outbox& out) {
  for (auto& [number, part] : parts_) {
    const std::uint64_t position = this->position(number, &parts);
    if (std::exchange(part.record.position, position) != position) {
      out.record(part.record);
    }
  }
}

void DataParts::adopt(const HeldRun& held, Outbox& out) {
  if (held.position <= position(held.part) || held.part >= kMostParts || held.position > kMostSequences) {
    return;
  }
  Part& part = at(held.part);
  part.record.position = held.position;
  part.claimed = std::max(part.claimed, held.position);
  out.record(part.record);
  deal_anew();  // of what it has had since the ledger knows nothing
}

std::map<Round, std::vector<DataRange>> DataParts::history(const std::map<Round, const RoundRecord*>& committed, Round newest) const {
  std::map<std::uint32_t, std::uint64_t> positions;
  for (const auto& [number, part] : parts_) {
    positions[number] = part.record.position;
  }
  std::map<Round, std::vector<DataRange>> history;
  Round expected = newest;
  for (auto at = committed.rbegin(); at != committed.rend() && at->first == expected; ++at) {
    std::vector<DataRange>& parts = history[at->first];
    for (const auto& [number, position] : positions) {
      parts.push_back(DataRange{number, 0, position});
    }
    for (const ContributionFacts& each : at->second->contributions) {
      if (const DataRange& range = each.data; range.sequences() > 0) {
        positions[range.part] = std::min(positions[range.part], range.from);
      }
    }
    expected = Round(expected.value == 0 ? 0 : expected.value - 1);
  }
  return history;
}

}  // namespace atl::coordinator
