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

  // As more than half of those hold it whose result is this one; without one, of all members.
  [[nodiscard]] std::optional<Digest> held_by_most(std::size_t at, const std::optional<Digest>& result) const {
    std::map<Digest, std::size_t> votes;
    std::size_t voters = 0;
    for (std::size_t i = 0; i < input_->members.size(); ++i) {
      if (!result || input_->members[i].done == result) {
        ++voters;
        votes[says(i) ? held(i, at) : Digest{}] += says(i) ? 1U : 0U;
      }
    }
    const auto most = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
    return most != votes.end() && most->second * 2 > voters ? std::optional(most->first) : std::nullopt;
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

  const AttemptInput* input_;
  std::optional<ExchangeGrid> grid_;
};

// `usual`: the digest that most have. Of a giver that says nothing, those who differ from most may have got something else than they. In
// the order of the givers.
std::vector<Dispute> disputes_of(const AttemptInput& input, const Parts& parts, const Digest& usual) {
  std::map<std::pair<std::size_t, std::size_t>, std::optional<Digest>> given;  // by place and giver
  std::set<std::pair<std::size_t, std::size_t>> found;                         // giver and reader
  for (std::size_t reader = 0; reader < input.members.size(); ++reader) {
    if (!parts.says(reader)) {
      continue;
    }
    for (const GivenPart& part : parts.given_to(reader)) {
      const auto [known, is_new] = given.try_emplace({part.at, part.giver});
      known->second = is_new ? parts.given(part) : known->second;
      if (known->second ? parts.held(reader, part.at) != *known->second : *input.members[reader].done != usual) {
        found.emplace(part.giver, reader);
      }
    }
  }
  std::vector<Dispute> disputes;
  for (const auto& [giver, reader] : found) {
    disputes.push_back({input.members[reader].island, input.members[giver].island, {}});
  }
  return disputes;
}

std::size_t times_in(const std::vector<Dispute>& disputes, const IslandId& island) {
  return static_cast<std::size_t>(
      std::ranges::count_if(disputes, [&](const Dispute& each) { return each.reader == island || each.giver == island; }));
}

std::vector<IslandId> names_in(const std::vector<Dispute>& disputes, IslandId Dispute::*side, std::size_t needed) {
  std::map<IslandId, std::size_t> counts;
  for (const Dispute& dispute : disputes) {
    ++counts[dispute.*side];
  }
  std::vector<IslandId> named;
  for (const auto& [island, count] : counts) {
    if (count >= needed) {
      named.push_back(island);
    }
  }
  return named;
}

// Those whose result is another one though it was given to them as to the others; on two levels also those who say that they gave something
// else than what their own result is of.
void blame_for_own(const AttemptInput& input, const Parts& parts, const Digest& usual, AttemptDecision& decision) {
  const std::string round = "round " + std::to_string(input.round.value);
  for (std::size_t i = 0; i < input.members.size(); ++i) {
    const IslandId& island = input.members[i].island;
    if (times_in(decision.disputes, island) > 0) {
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
    for (const IslandId& named : names_in(decision.disputes, side, *needed)) {
      decision.offences.push_back({named, why});
      if (std::ranges::find(decision.left_out, named) == decision.left_out.end()) {
        decision.left_out.push_back(named);
      }
      std::erase_if(decision.disputes, [&](const Dispute& each) { return each.reader == named || each.giver == named; });
    }
  };
  name(&Dispute::giver, "what it gave to " + round + " is another at several islands than at itself");
  name(&Dispute::reader, "its result of " + round + " differs from the others' in what several of them gave");
  const std::vector<Dispute> all = decision.disputes;
  for (Dispute& dispute : decision.disputes) {
    const std::size_t giver = times_in(all, dispute.giver);
    const std::size_t reader = times_in(all, dispute.reader);
    if (parts.on_two_levels() && giver != reader) {
      dispute.trusted = giver < reader ? dispute.giver : dispute.reader;
    }
  }
}

std::optional<std::size_t> accusers_needed(std::size_t members) {
  return members < 3 ? std::nullopt : std::optional((members - 1) / 2 + 1);
}

}  // namespace atl::coordinator
