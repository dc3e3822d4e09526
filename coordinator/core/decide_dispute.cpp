// Whose doing it is that the results of an attempt differ, as far as its members' digests of the parts tell.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "coordinator/core/decide.hpp"
#include "transport/base/exchange_grid.hpp"

namespace atl::coordinator {
namespace {

// Where a part stands among the digests of a member, and who gave it to that member. Of the giver's digests the same place has what it
// gave as the giver holds it itself.
struct GivenPart {
  std::size_t at = 0;
  std::size_t giver = 0;
};

// The digests of an attempt, and who gave what to whom in it.
class Parts {
 public:
  explicit Parts(const AttemptInput& input) : input_(&input) {
    const std::size_t members = input.members.size();
    const auto is_of_two_levels = [&](const AttemptMember& member) { return !member.parts.empty() && member.parts.size() != members; };
    if (std::ranges::count_if(input.members, is_of_two_levels) * 2 > static_cast<std::ptrdiff_t>(members)) {
      grid_ = cut_grid(members, input.shares, 1);
    }
  }

  [[nodiscard]] bool on_two_levels() const { return grid_.has_value(); }
  [[nodiscard]] bool says(std::size_t member) const { return of(member).size() == count(member); }
  [[nodiscard]] const Digest& held(std::size_t member, std::size_t at) const { return of(member)[at]; }

  // On one level each member gives its shard to all. On two it gets a strip of each column from its own group, and of the strip of its own
  // column a shard from each member of the column.
  [[nodiscard]] std::vector<GivenPart> given_to(std::size_t reader) const {
    std::vector<GivenPart> parts;
    const auto add = [&](std::size_t at, std::size_t giver) {
      if (giver != reader) {
        parts.push_back({at, giver});
      }
    };
    for (std::size_t giver = 0; giver < input_->members.size() && !grid_; ++giver) {
      add(giver, giver);
    }
    for (std::size_t column = 0; grid_ && column < grid_->columns; ++column) {
      add(column, grid_->owner(grid_->group[reader], column));
    }
    for (std::size_t group = 0; sums(reader) && group < grid_->groups; ++group) {
      add(grid_->columns + group, grid_->owner(group, grid_->column[reader]));
    }
    return parts;
  }

  // What a member gave, as it says itself; if it does not say, as more than half hold it. Nothing: nobody knows.
  [[nodiscard]] std::optional<Digest> given(const GivenPart& part) const {
    return says(part.giver) ? std::optional(held(part.giver, part.at)) : common(part.at) ? held_by_most(part.at, {}) : std::nullopt;
  }

  // As more than half of those hold it whose result is this one; without one, of all members. Counted once, for each who differs asks.
  [[nodiscard]] std::optional<Digest> held_by_most(std::size_t at, const std::optional<Digest>& result) const {
    const auto [known, is_new] = held_by_most_.try_emplace({at, result});
    if (is_new) {
      known->second = count_most(at, result);
    }
    return known->second;
  }

  // On two levels: the place of the strip that this member gives to its group.
  [[nodiscard]] std::optional<std::size_t> own_strip(std::size_t member) const {
    return sums(member) ? std::optional(grid_->column[member]) : std::nullopt;
  }

  // On two levels: its result is another one by what others gave it, which hold the same, so that it passed on nobody's fault but theirs.
  [[nodiscard]] bool is_misled(std::size_t member, const Digest& usual) const {
    if (!grid_ || !says(member)) {
      return false;
    }
    const std::vector<GivenPart> parts = given_to(member);
    return std::ranges::any_of(parts, [&](const GivenPart& part) {
      return common(part.at) && held_by_most(part.at, usual).value_or(held(member, part.at)) != held(member, part.at);
    });
  }

 private:
  [[nodiscard]] const std::vector<Digest>& of(std::size_t member) const { return input_->members[member].parts; }
  [[nodiscard]] bool sums(std::size_t member) const { return grid_ && grid_->column[member] != kNoColumn; }
  [[nodiscard]] std::size_t count(std::size_t member) const {
    return grid_ ? grid_->columns + (sums(member) ? grid_->groups : 0) : input_->members.size();
  }
  // All members hold this part.
  [[nodiscard]] bool common(std::size_t at) const { return !grid_ || at < grid_->columns; }

  [[nodiscard]] std::optional<Digest> count_most(std::size_t at, const std::optional<Digest>& result) const {
    std::vector<Digest> votes;
    std::size_t voters = 0;
    for (std::size_t i = 0; i < input_->members.size(); ++i) {
      if (!result || input_->members[i].done == result) {
        ++voters;
        if (says(i)) {
          votes.push_back(held(i, at));
        }
      }
    }
    // What more than half of all hold stands in the middle, too, once it is sorted.
    const auto middle = votes.begin() + static_cast<std::ptrdiff_t>(votes.size() / 2);
    std::ranges::nth_element(votes, middle);
    const bool most = !votes.empty() && static_cast<std::size_t>(std::ranges::count(votes, *middle)) * 2 > voters;
    return most ? std::optional(*middle) : std::nullopt;
  }

  const AttemptInput* input_;
  std::optional<ExchangeGrid> grid_;
  mutable std::map<std::pair<std::size_t, std::optional<Digest>>, std::optional<Digest>> held_by_most_;  // by place and result
};

// `usual`: the digest that most have. Of a giver that says nothing, those who differ from most may have got something else than they. In
// the order of the givers.
std::vector<Dispute> disputes_of(const AttemptInput& input, const Parts& parts, const Digest& usual) {
  std::map<std::pair<std::size_t, std::size_t>, std::optional<Digest>> given;  // by place and giver
  std::vector<std::pair<std::size_t, std::size_t>> found;                      // giver and reader
  for (std::size_t reader = 0; reader < input.members.size(); ++reader) {
    if (!parts.says(reader)) {
      continue;
    }
    for (const GivenPart& part : parts.given_to(reader)) {
      const auto [known, is_new] = given.try_emplace({part.at, part.giver});
      known->second = is_new ? parts.given(part) : known->second;
      if (known->second ? parts.held(reader, part.at) != *known->second : *input.members[reader].done != usual) {
        found.emplace_back(part.giver, reader);
      }
    }
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  std::vector<Dispute> disputes;
  disputes.reserve(found.size());
  for (const auto& [giver, reader] : found) {
    disputes.push_back({input.members[reader].island, input.members[giver].island, {}});
  }
  return disputes;
}

// How many disputes each island has a part in; an island without one is not in it.
std::map<IslandId, std::size_t> times_in(const std::vector<Dispute>& disputes) {
  std::map<IslandId, std::size_t> times;
  for (const Dispute& dispute : disputes) {
    ++times[dispute.reader];
    ++times[dispute.giver];
  }
  return times;
}

std::set<IslandId> names_in(const std::vector<Dispute>& disputes, IslandId Dispute::*side, std::size_t needed) {
  std::map<IslandId, std::size_t> counts;
  for (const Dispute& dispute : disputes) {
    ++counts[dispute.*side];
  }
  std::set<IslandId> named;
  for (const auto& [island, count] : counts) {
    if (count >= needed) {
      named.insert(island);
    }
  }
  return named;
}

// Those whose result is another one though it was given to them as to the others; on two levels also those who say that they gave something
// else than what their own result is of.
void blame_for_own(const AttemptInput& input, const Parts& parts, const Digest& usual, AttemptDecision& decision) {
  const std::string round = "round " + std::to_string(input.round.value);
  const std::map<IslandId, std::size_t> times = times_in(decision.disputes);
  for (std::size_t i = 0; i < input.members.size(); ++i) {
    const IslandId& island = input.members[i].island;
    if (times.contains(island)) {
      continue;
    }
    if (std::ranges::find(decision.left_out, island) != decision.left_out.end()) {
      if (!parts.is_misled(i, usual)) {
        decision.offences.push_back({island, "its result of " + round + " differs from the others'"});
      }
    } else if (const auto strip = parts.own_strip(i);
               strip && parts.says(i) && input.members[i].done == usual &&
               parts.held_by_most(*strip, usual).value_or(parts.held(i, *strip)) != parts.held(i, *strip)) {
      decision.offences.push_back({island, "what it says that it gave to " + round + " is not in its own result"});
      decision.left_out.push_back(island);
    }
  }
}

}  // namespace

void blame_for_difference(const AttemptInput& input, const Digest& usual, AttemptDecision& decision) {
  const std::string round = "round " + std::to_string(input.round.value);
  const Parts parts(input);
  decision.disputes = disputes_of(input, parts, usual);
  blame_for_own(input, parts, usual, decision);
  const std::optional<std::size_t> needed = accusers_needed(input.members.size());
  decision.accusers_needed = needed;
  if (!needed) {
    return;
  }
  const auto name = [&](IslandId Dispute::*side, const std::string& why) {
    const std::set<IslandId> names = names_in(decision.disputes, side, *needed);
    for (const IslandId& named : names) {
      decision.offences.push_back({named, why});
      if (std::ranges::find(decision.left_out, named) == decision.left_out.end()) {
        decision.left_out.push_back(named);
      }
    }
    std::erase_if(decision.disputes, [&](const Dispute& each) { return names.contains(each.reader) || names.contains(each.giver); });
  };
  name(&Dispute::giver, "what it gave to " + round + " is another at several islands than at itself");
  name(&Dispute::reader, "its result of " + round + " differs from the others' in what several of them gave");
  const std::map<IslandId, std::size_t> times = times_in(decision.disputes);
  for (Dispute& dispute : decision.disputes) {
    const std::size_t giver = times.at(dispute.giver);
    const std::size_t reader = times.at(dispute.reader);
    if (parts.on_two_levels() && giver != reader) {
      dispute.trusted = giver < reader ? dispute.giver : dispute.reader;
    }
  }
}

std::optional<std::size_t> accusers_needed(std::size_t members) {
  return members < 3 ? std::nullopt : std::optional((members - 1) / 2 + 1);
}

}  // namespace atl::coordinator
