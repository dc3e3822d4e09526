#include "transport/bulk/exchange_plan.hpp"

#include <algorithm>
#include <set>
#include <string>

#include "transport/base/check.hpp"
#include "transport/base/shards.hpp"
#include "transport/bulk/piece.hpp"

namespace atl {
namespace {

bool ascending(const std::vector<std::uint64_t>& ends) {
  return std::adjacent_find(ends.begin(), ends.end(), [](auto a, auto b) { return a >= b || b - a > kMaxPieceBytes; }) == ends.end();
}

Error refuse(const ExchangePlan& plan, const std::string& why) {
  return Error{Code::invalid_argument, "exchange of run " + plan.run.text + ", round " + std::to_string(plan.round.value) + ": " + why};
}

Status check_layout(const ExchangePlan& plan) {
  const ExchangeLayout& layout = plan.layout;
  const std::size_t count = layout.elements.size();
  const bool shaped = count > 0 && layout.contribution.size() == count && layout.reduced.size() == count && layout.elements.front() == 0 &&
                      layout.contribution.front() == 0 && layout.reduced.front() == 0;
  if (!shaped || !ascending(layout.contribution) || !ascending(layout.reduced) ||
      !std::is_sorted(layout.elements.begin(), layout.elements.end())) {
    return refuse(plan, "the layout's pieces do not follow one another");
  }
  const std::vector<std::size_t>& shards = layout.shards;
  const std::size_t owners = plan.grid ? plan.grid->owners.size() : plan.members.size();
  if (shards.size() != owners + 1 || shards.front() != 0 || shards.back() != count - 1 || !std::is_sorted(shards.begin(), shards.end())) {
    return refuse(plan, "the layout has not one shard an owner");
  }
  if (plan.grid && (plan.grid->group.size() != plan.members.size() || plan.grid->column.size() != plan.members.size())) {
    return refuse(plan, "the grid is of other members");
  }
  return {};
}

std::uint64_t bytes_in(const std::vector<std::uint64_t>& ends, PieceRange range) { return ends[range.end] - ends[range.begin]; }

std::uint64_t bytes_read_on_two_levels(const ExchangePlan& plan, std::size_t self) {
  const ExchangeGrid& grid = *plan.grid;
  bool group_contributes = false;
  std::uint64_t others = 0;  // in the group
  std::uint64_t bytes = 0;
  for (std::size_t member = 0; member < plan.members.size(); ++member) {
    if (grid.group[member] != grid.group[self]) {
      continue;
    }
    group_contributes = group_contributes || plan.weights[member] > 0;
    if (member != self) {
      ++others;
      bytes += plan.weights[self] > 0 ? bytes_in(plan.layout.contribution, plan.given(member)) : 0;
    }
  }
  if (grid.column[self] == kNoColumn) {
    return bytes;
  }
  for (std::size_t group = 0; group < grid.groups && group_contributes; ++group) {
    const std::size_t mate = grid.owner(group, grid.column[self]);
    bytes += mate != self ? bytes_in(plan.layout.reduced, plan.shard(mate)) : 0;
  }
  return bytes + others * bytes_in(plan.layout.reduced, plan.given(self)) +
         (grid.groups - 1) * bytes_in(plan.layout.reduced, plan.shard(self));
}

}  // namespace

PieceRange ExchangePlan::shard(std::size_t member) const {
  if (!grid) {
    return {layout.shards[member], layout.shards[member + 1]};
  }
  if (grid->column[member] == kNoColumn) {
    return {};
  }
  const std::size_t place = grid->column[member] * grid->groups + grid->group[member];
  return {layout.shards[place], layout.shards[place + 1]};
}

PieceRange ExchangePlan::given(std::size_t member) const {
  if (!grid || grid->column[member] == kNoColumn) {
    return shard(member);
  }
  const std::size_t first = grid->column[member] * grid->groups;
  return {layout.shards[first], layout.shards[first + grid->groups]};
}

ExchangeLayout cut_pieces(std::uint64_t elements, std::size_t members, std::uint64_t granularity,
                          const std::function<std::uint64_t(std::uint64_t)>& contribution_bytes,
                          const std::function<std::uint64_t(std::uint64_t)>& reduced_bytes, std::uint64_t piece_elements,
                          std::span<const std::uint8_t> shares) {
  ATOLL_CHECK(members > 0 && granularity > 0, "somebody takes part, and a piece can begin somewhere");
  const auto owns = [&](std::size_t member) { return member >= shares.size() || shares[member] != 0; };
  std::size_t owners = 0;
  for (std::size_t member = 0; member < members; ++member) {
    owners += owns(member) ? 1 : 0;
  }
  ATOLL_CHECK(owners > 0, "somebody owns a shard");
  const std::uint64_t step = std::max<std::uint64_t>(1, piece_elements / granularity) * granularity;
  const std::vector<Shard> owned = split_shards(elements, owners, granularity).value();
  ExchangeLayout layout{{0}, {0}, {0}, {0}};
  std::size_t next = 0;
  for (std::size_t member = 0; member < members; ++member) {
    const std::uint64_t end = owns(member) ? owned[next].offset + owned[next].count : layout.elements.back();
    next += owns(member) ? 1 : 0;
    while (layout.elements.back() < end) {
      const std::uint64_t count = std::min(step, end - layout.elements.back());
      layout.elements.push_back(layout.elements.back() + count);
      layout.contribution.push_back(layout.contribution.back() + contribution_bytes(count));
      layout.reduced.push_back(layout.reduced.back() + reduced_bytes(count));
    }
    layout.shards.push_back(layout.pieces());
  }
  return layout;
}

Status check_plan(const ExchangePlan& plan, std::uint64_t own_contribution_bytes) {
  if (plan.run.text.empty() || plan.run.text.size() > 64) {
    return refuse(plan, "a run id has 1 to 64 characters");
  }
  if (plan.weights.size() != plan.members.size()) {
    return refuse(plan, "not one weight a member");
  }
  if (std::set<IslandId>(plan.members.begin(), plan.members.end()).size() != plan.members.size()) {
    return refuse(plan, "a member is named twice");
  }
  const auto self = std::find(plan.members.begin(), plan.members.end(), plan.self);
  if (self == plan.members.end()) {
    return refuse(plan, "this island is not among the members");
  }
  ATOLL_TRY(check_layout(plan));
  const bool contributes = plan.weights[static_cast<std::size_t>(self - plan.members.begin())] > 0;
  if (contributes && own_contribution_bytes != plan.layout.contribution.back()) {
    return refuse(plan, "the contribution has " + std::to_string(own_contribution_bytes) + " bytes, its layout " +
                            std::to_string(plan.layout.contribution.back()));
  }
  return {};
}

// See the cost lines of exchange_attempt.hpp.
std::uint64_t bytes_others_read(const ExchangePlan& plan, std::size_t self) {
  const std::size_t members = plan.members.size();
  const bool contributes = plan.weights[self] > 0;
  if (std::ranges::none_of(plan.weights, [](std::uint64_t weight) { return weight > 0; })) {
    return 0;
  }
  if (plan.grid) {
    return bytes_read_on_two_levels(plan, self);
  }
  if (members <= 2) {
    return contributes ? (members - 1) * plan.layout.contribution.back() : 0;
  }
  const std::uint64_t others = contributes ? plan.layout.contribution.back() - bytes_in(plan.layout.contribution, plan.shard(self)) : 0;
  return others + (members - 1) * bytes_in(plan.layout.reduced, plan.shard(self));
}

}  // namespace atl
