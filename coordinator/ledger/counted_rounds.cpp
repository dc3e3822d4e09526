#include "coordinator/ledger/counted_rounds.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace atl::coordinator {
namespace {

using nlohmann::json;

std::uint64_t number_in(const json& list, std::size_t at) {
  return list.is_array() && list.size() > at && list[at].is_number_unsigned() ? list[at].get<std::uint64_t>() : 0;
}

}  // namespace

std::string sequences_text(std::uint64_t from, std::uint64_t to) {
  return "sequences " + std::to_string(from) + " to " + std::to_string(to - 1);
}

std::uint64_t tokens_held(const RoundRecord& round, std::size_t member) {
  const ContributionFacts& facts = round.contributions[member];
  return facts.steps == 0 && facts.tokens == 1 ? 0 : facts.tokens;
}

bool counts_in(const RoundRecord& round, const DroppedRecord& dropped) {
  for (std::size_t i = 0; i < round.members.size() && i < round.contributions.size(); ++i) {
    if (const DataRange& data = round.contributions[i].data; round.members[i] == dropped.island) {
      return !round.unnoted && round.fragment == dropped.facts.fragment && tokens_held(round, i) > 0 &&
             data.part == dropped.facts.data.part && data.to == dropped.facts.data.to;
    }
  }
  return false;
}

void Refusals::add(const DroppedRecord& dropped) {
  if (const DataRange& data = dropped.facts.data; dropped.fate != Fate::dropped && data.held() < data.to) {
    parts_[data.part].emplace(data.to, Refused{data.held(), dropped.fate});
  }
}

std::map<Fate, std::uint64_t> Refusals::within(std::uint32_t part, std::uint64_t from, std::uint64_t to) const {
  std::map<Fate, std::uint64_t> sums;
  const auto found = parts_.find(part);
  if (found == parts_.end()) {
    return sums;
  }
  std::uint64_t at = from;
  for (auto next = found->second.upper_bound(from); next != found->second.end() && at < to; ++next) {
    const std::uint64_t begin = std::max(at, next->second.from);
    const std::uint64_t end = std::min(to, next->first);
    if (begin < end) {
      sums[next->second.fate] += end - begin;
    }
    at = std::max(at, end);
  }
  return sums;
}

void CountedPart::append(const CountedPart& next, const std::string& name) {
  std::string found;
  if (next.from < position) {
    found = sequences_text(next.from, std::min(position, next.position)) + " are committed twice, again in " + name;
  } else if (next.from > position) {
    found = sequences_text(position, next.from) + " are missing before " + name;
  }
  for (const std::string& each : {found, next.fault}) {
    fault = fault.empty() ? each : fault;
  }
  position = std::max(position, next.position);
  committed += next.committed;
  passed_over += next.passed_over;
  overwritten += next.overwritten;
  for (const auto& [fate, count] : next.refused) {
    refused[fate] += count;
  }
  for (const auto& [island, count] : next.islands) {
    islands[island] += count;
  }
}

CountedRounds CountedRounds::of(const RoundRecord& round, const Refusals& refusals) {
  CountedRounds counted;
  counted.run = round.run;
  counted.lineage = round.lineage;
  counted.first = counted.last = round.round;
  counted.rounds = round.round > Round(0) ? 1 : 0;
  counted.unnoted = round.round > Round(0) && round.unnoted ? 1 : 0;
  counted.fragments = round.fragment + 1;
  for (std::size_t i = 0; i < round.members.size() && i < round.contributions.size(); ++i) {
    const ContributionFacts& facts = round.contributions[i];
    TokenFates& fates = counted.fates[round.members[i]];
    (facts.staleness > 0 ? fates.late : fates.merged) += tokens_held(round, i);
    fates.overwritten += facts.tokens > 0 ? facts.overwritten : 0;
    const DataRange& range = facts.data;
    if (range.sequences() == 0) {
      continue;
    }
    CountedPart part;
    part.from = range.from;
    part.position = range.to;
    const bool counts = facts.tokens > 0;
    const std::uint64_t held = counts ? range.held() : range.to;
    part.committed = range.to - held;
    if (part.committed > 0) {
      part.islands[round.members[i]] = part.committed;
    }
    part.passed_over = held - range.from;
    part.refused = refusals.within(range.part, range.from, held);
    if (counts) {
      part.overwritten = part.passed_over;
      for (const auto& [fate, count] : part.refused) {
        part.overwritten -= count;
      }
    }
    if (const auto [there, fresh] = counted.parts.try_emplace(range.part, part); !fresh) {
      there->second.append(part, counted.name());
    }
  }
  return counted;
}

std::string CountedRounds::name() const {
  return first == last ? "round " + std::to_string(first.value)
                       : "rounds " + std::to_string(first.value) + " to " + std::to_string(last.value);
}

void CountedRounds::append(const CountedRounds& next) {
  for (const auto& [number, part] : next.parts) {
    if (const auto [there, fresh] = parts.try_emplace(number, part); !fresh) {
      there->second.append(part, next.name());
    }
  }
  for (const auto& [island, fate] : next.fates) {
    TokenFates& sum = fates[island];
    sum.merged += fate.merged;
    sum.late += fate.late;
    sum.overwritten += fate.overwritten;
  }
  last = next.last;
  rounds += next.rounds;
  unnoted += next.unnoted;
  fragments = std::max(fragments, next.fragments);
}

std::string to_text(const CountedRounds& counted) {
  json parts = json::array();
  for (const auto& [number, part] : counted.parts) {
    json islands = json::object();
    for (const auto& [island, count] : part.islands) {
      islands[island.text] = count;
    }
    json refused = json::object();
    for (const auto& [fate, count] : part.refused) {
      refused[std::string(to_string(fate))] = count;
    }
    parts.push_back({number, part.from, part.position, part.committed, part.passed_over, std::move(islands), part.fault, std::move(refused),
                     part.overwritten});
  }
  json fates = json::object();
  for (const auto& [island, fate] : counted.fates) {
    fates[island.text] = {fate.merged, fate.late, fate.overwritten};
  }
  return json{{"rounds", counted.rounds},
              {"unnoted", counted.unnoted},
              {"fragments", counted.fragments},
              {"parts", std::move(parts)},
              {"tokens", std::move(fates)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Status read_counts(CountedRounds& counted, const std::string& text) {
  const Error broken{Code::corrupt, "the ledger's table counted has counts that cannot be read"};
  const json counts = json::parse(text, nullptr, false);
  for (const char* key : {"rounds", "unnoted", "fragments"}) {
    if (!counts.is_object() || !counts.contains(key) || !counts[key].is_number_unsigned()) {
      return broken;
    }
  }
  if (!counts.contains("parts") || !counts["parts"].is_array() || !counts.contains("tokens") || !counts["tokens"].is_object()) {
    return broken;
  }
  counted.rounds = counts["rounds"].get<std::uint64_t>();
  counted.unnoted = counts["unnoted"].get<std::uint64_t>();
  counted.fragments = counts["fragments"].get<std::uint32_t>();
  for (const json& each : counts["parts"]) {
    if (!each.is_array() || each.size() != 9 || !each[5].is_object() || !each[6].is_string() || !each[7].is_object()) {
      return broken;
    }
    CountedPart part;
    part.from = number_in(each, 1);
    part.position = number_in(each, 2);
    part.committed = number_in(each, 3);
    part.passed_over = number_in(each, 4);
    part.fault = each[6].get<std::string>();
    part.overwritten = number_in(each, 8);
    for (const auto& [name, count] : each[7].items()) {
      ATOLL_ASSIGN(const Fate fate, fate_from_string(name));
      part.refused[fate] = count.is_number_unsigned() ? count.get<std::uint64_t>() : 0;
    }
    for (const auto& [island, count] : each[5].items()) {
      part.islands[IslandId(island)] = count.is_number_unsigned() ? count.get<std::uint64_t>() : 0;
    }
    counted.parts[static_cast<std::uint32_t>(number_in(each, 0))] = std::move(part);
  }
  for (const auto& [island, fate] : counts["tokens"].items()) {
    counted.fates[IslandId(island)] = TokenFates{number_in(fate, 0), number_in(fate, 1), number_in(fate, 2), {}, 0};
  }
  return {};
}

}  // namespace atl::coordinator
