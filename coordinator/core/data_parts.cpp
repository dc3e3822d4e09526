#include "coordinator/core/data_parts.hpp"

#include <algorithm>

namespace atl::coordinator {

void DataParts::belong_to(const RunId& run, std::uint32_t count) {
  run_ = run;
  count_ = std::max<std::uint32_t>(1, count);
}

void DataParts::recover(PartRecord part) {
  const std::uint32_t number = part.part;
  parts_[number] = std::move(part);
}

PartRecord& DataParts::part_of(std::uint32_t number) {
  PartRecord& part = parts_[number];
  part.run = run_;
  part.part = number;
  return part;
}

std::uint64_t DataParts::position(std::uint32_t part) const {
  const auto found = parts_.find(part);
  return found == parts_.end() ? 0 : found->second.position;
}

std::uint64_t DataParts::position(std::uint32_t part, const std::vector<DataRange>* after) const {
  if (after == nullptr) {
    return position(part);
  }
  const auto at = std::ranges::find(*after, part, &DataRange::part);
  return at == after->end() ? 0 : at->to;
}

bool DataParts::begun() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part.second.position > 0; });
}

std::vector<DataRange> DataParts::snapshot() const {
  std::vector<DataRange> parts;
  for (const auto& [number, part] : parts_) {
    if (part.position > 0) {
      parts.push_back(DataRange{number, 0, part.position});
    }
  }
  return parts;
}

std::uint32_t DataParts::choose(const Wish& wish) const {
  if (wish.had && !wish.in_use.contains(*wish.had) && !wish.promised.contains(*wish.had)) {
    return *wish.had;
  }
  std::optional<std::uint32_t> best;
  for (const bool any : {false, true}) {
    for (std::uint32_t part = 0; part < count_ && (!best || !any); ++part) {
      const bool free = !wish.in_use.contains(part) && (any || !wish.promised.contains(part));
      if (free && (!best || position(part) < position(*best))) {
        best = part;
      }
    }
  }
  return best.value_or(wish.otherwise % count_);
}

IslandId DataParts::give(std::uint32_t number, const IslandId& island, Outbox& out) {
  PartRecord& part = part_of(number);
  if (part.owner == island) {
    return {};
  }
  IslandId before = std::exchange(part.owner, island);
  out.record(part);
  return before;
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
  PartRecord& part = part_of(data.part);
  part.position = std::max(part.position, data.to);
  part.sequences = sequences > 0 ? sequences : part.sequences;
  out.record(part);
}

void DataParts::return_to(const std::vector<DataRange>& parts, Outbox& out) {
  for (auto& [number, part] : parts_) {
    const std::uint64_t position = this->position(number, &parts);
    if (std::exchange(part.position, position) != position) {
      out.record(part);
    }
  }
}

void DataParts::adopt(const HeldRun& held, Outbox& out) {
  if (held.position <= position(held.part) || held.part >= count_) {
    return;
  }
  PartRecord& part = part_of(held.part);
  part.position = held.position;
  out.record(part);
}

std::map<Round, std::vector<DataRange>> DataParts::history(const std::map<Round, const RoundRecord*>& committed, Round newest) const {
  std::map<std::uint32_t, std::uint64_t> positions;
  for (const auto& [number, part] : parts_) {
    positions[number] = part.position;
  }
  std::map<Round, std::vector<DataRange>> history;
  Round expected = newest;
  for (auto at = committed.rbegin(); at != committed.rend() && at->first == expected; ++at) {
    std::vector<DataRange>& parts = history[at->first];
    for (const auto& [number, position] : positions) {
      parts.push_back(DataRange{number, 0, position});
    }
    for (const DataRange& range : at->second->data) {
      if (range.sequences() > 0) {
        positions[range.part] = std::min(positions[range.part], range.from);
      }
    }
    expected = Round(expected.value == 0 ? 0 : expected.value - 1);
  }
  return history;
}

}  // namespace atl::coordinator
