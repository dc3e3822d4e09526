// The agent's decisions, as pure functions: what its island is doing and why it waits, when a crashed trainer is started again, and how
// far the trainer may plan ahead.
// Threads: pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/core/effect.hpp"
#include "strategies/schedule.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

// What the island is doing, as the report's state, and why it waits.
struct Activity {
  std::string state;   // starting | training | waiting | exchanging | catching-up | checkpointing | finished
  std::string reason;  // of a wait; empty while training
};
struct ActivityInput {
  bool ended = false;
  bool failed = false;
  bool catching_up = false;
  bool restoring = false;
  bool active = false;
  bool has_state = false;
  bool trainer_up = false;
  bool trainer_crashed = false;
  bool training = false;  // the trainer has steps to do
  bool checkpointing = false;
  std::optional<std::uint64_t> exchanging;  // round
  std::optional<std::uint64_t> waiting;     // round that is said to be ready, or exchanged
  bool link = true;
};
Activity decide_activity(const ActivityInput& input);

// Whether a trainer that ended is started again, and when.
struct RestartDecision {
  bool restart = false;
  Duration delay{};
  std::string why;  // of giving up
};
// crashes: without `progress` in between ("a committed round", "a checkpoint"), this one included. alike: those of them, up to this one,
// that ended alike. out_of_memory: what they ended of, and then a second time is the last: the same batch does not fit a third time either.
RestartDecision decide_restart(unsigned crashes, unsigned alike, unsigned limit, bool permanent, Duration first_delay,
                               std::string_view progress, bool out_of_memory = false);
// What a trainer said last: of memory, in whose words ever.
bool ran_out_of_memory(std::string_view words);
// The same words, or both ran out of memory, of which the figures differ each time. Nothing said is like nothing.
bool ends_alike(std::string_view words, std::string_view before);

// What a trainer is asked for in a run's rounds.
struct PlanSettings {
  std::uint32_t evaluate_every = 10;    // rounds; 0: the first and the last
  std::uint64_t checkpoint_every = 10;  // rounds; 0: the last only
  double alpha = 0;
  bool lockstep = false;  // payload gradient
};
struct PlanDecision {
  Step until;
  std::vector<PublishOrder> publish;
  std::vector<MergeOrder> merge;
};
// The orders for rounds (planned, until_round]. Every round of the schedule gets exactly one publish and one merge, but for those in
// `formed`, whose contributions are there already: they get the merge. `until` never lies beyond the start of a round that is not planned
// yet, so that with overlap no round is published later than the schedule says.
PlanDecision decide_plan(const Schedule& schedule, Round planned, Round until_round, const PlanSettings& settings,
                         const std::set<Round>& formed = {});
// The same where the exchange of a fragment takes its whole period. A publish goes before the merge of its fragment's round before, which
// is for the same step, so the two are ordered together: a trainer that had the merge alone would wait in it for a result that it gets once
// it has published. A fragment is not published again before its last contribution is formed, which lies where the next one is written.
struct WholePlanInput {
  Round loaded;  // the trainer began with its outer parameters
  Round committed;
  Round planned;            // it has orders up to this round
  Round until;              // it may get them up to this one
  std::set<Round> in_hand;  // their publishes are done,
  std::set<Round> formed;   // and of these the contributions are formed
};
struct WholePlan {
  Round newest;  // that has orders now
  PlanDecision orders;
};
WholePlan decide_whole_plan(const Schedule& schedule, const WholePlanInput& input, const PlanSettings& settings);
// The newest round that a trainer should have orders for when `committed` is applied: all that start before the result of the next one
// must be there, for the trainer may get that far without it, and `ahead` more, so that orders come in time; at most kRoundsInFlight.
Round decide_horizon(const Schedule& schedule, Round committed, std::uint64_t ahead);
// The coordinator takes contributions to so many rounds after the committed one.
inline constexpr std::uint64_t kRoundsInFlight = 64;
// The model is evaluated with the round: by the schedule, and with the first and the last.
bool evaluation_due(Round round, Round last, std::uint32_t every);
// A checkpoint of the round is due by the schedule.
bool checkpoint_due(Round round, Round last, std::uint64_t every);

}  // namespace atl::agent
