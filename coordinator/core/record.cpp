#include "coordinator/core/record.hpp"

#include <array>

#include "coordinator/core/bounded_sum.hpp"

namespace atl::coordinator {
namespace {

constexpr std::array<std::string_view, 8> kRunStates = {"queued", "starting",  "running", "interrupted",
                                                        "paused", "completed", "failed",  "cancelled"};
constexpr std::array<std::string_view, 6> kMembershipStates = {"starting", "joining", "active", "absent", "refused", "ended"};
constexpr std::array<std::string_view, 5> kFates = {"rejected", "too_stale", "overrun", "not_finite", "dropped"};
constexpr std::array<std::string_view, 4> kTaskStates = {"waiting", "running", "done", "failed"};

template <typename State, std::size_t N>
Result<State> find_state(const std::array<std::string_view, N>& names, std::string_view name, std::string_view what) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) {
      return static_cast<State>(i);
    }
  }
  return Error{Code::corrupt, "'" + std::string(name) + "' is not a state of a " + std::string(what)};
}

}  // namespace

std::uint64_t sequences_held(const RoundRecord& round) {
  std::uint64_t sequences = 0;
  for (const ContributionFacts& each : round.contributions) {
    sequences = bounded_sum(sequences, each.tokens > 0 ? each.data.sequences_held() : 0, kMaxCount);
  }
  return sequences;
}

std::string_view to_string(RunState state) { return kRunStates.at(static_cast<std::size_t>(state)); }
std::string_view to_string(MembershipState state) { return kMembershipStates.at(static_cast<std::size_t>(state)); }
Result<RunState> run_state_from_string(std::string_view name) { return find_state<RunState>(kRunStates, name, "run"); }
std::string_view to_string(Fate fate) { return kFates.at(static_cast<std::size_t>(fate)); }
Result<Fate> fate_from_string(std::string_view name) { return find_state<Fate>(kFates, name, "contribution"); }
std::string_view to_string(TaskState state) { return kTaskStates.at(static_cast<std::size_t>(state)); }
Result<TaskState> task_state_from_string(std::string_view name) { return find_state<TaskState>(kTaskStates, name, "task"); }
Result<MembershipState> membership_state_from_string(std::string_view name) {
  return find_state<MembershipState>(kMembershipStates, name, "membership");
}

}  // namespace atl::coordinator
