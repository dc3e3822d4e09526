// What streaming costs by its definition, to hold the planner's figures against.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/streaming_diloco.hpp"

namespace atl_test {

// What member `member` of `members` sends in a run of total_steps whose fragments have these values: every round of the schedule, the last
// synchronisations too. Errors: as exchange_cost and Schedule::make.
inline atl::Result<atl::RoundCost> streaming_cost(std::span<const std::uint64_t> fragment_values, const atl::Composition& composition,
                                                  std::uint64_t total_steps, std::uint32_t members, std::uint32_t member) {
  using namespace atl;
  ATOLL_ASSIGN(const Schedule schedule, schedule_of(composition, total_steps, static_cast<std::uint32_t>(fragment_values.size())));
  std::vector<RoundCost> costs;
  for (const std::uint64_t values : fragment_values) {
    ATOLL_ASSIGN(const RoundCost cost, exchange_cost(values, members, member, composition.codec, composition.reduce_codec));
    costs.push_back(cost);
  }
  RoundCost total;
  for (std::uint64_t round = 1; round <= schedule.rounds(); ++round) {
    ATOLL_ASSIGN(const RoundPlan plan, schedule.round_at(Round(round)));
    total.messages += costs[plan.fragment].messages;
    total.bytes += costs[plan.fragment].bytes;
  }
  return total;
}

}  // namespace atl_test
