// The nouns of one run on this island, and the rule by which its work goes on.
// Threads: owned by one Core.
#pragma once

#include <memory>

#include "agent/core/checkpoints.hpp"
#include "agent/core/committed_state.hpp"
#include "agent/core/lifecycle.hpp"
#include "agent/core/membership.hpp"
#include "agent/core/rounds.hpp"
#include "agent/core/rules/rule.hpp"
#include "agent/core/rules/rule_settings.hpp"
#include "agent/core/run_terms.hpp"
#include "agent/core/trainer.hpp"

namespace atl::agent {

struct RunInHand {
  RunInHand(RunTerms of, const Invite& invite, const Settings& settings, Starts& starts, Outbox& out, Core::State& core)
      : terms(std::move(of)),
        members(invite, out),
        outer(terms, settings_of_rule(terms).state, invite.from, invite.epoch, invite.position, invite.entry),
        rounds(terms, settings_of_rule(terms).contributions, out),
        checkpoints(terms, settings_of_rule(terms).copy_own_checkpoints, out),
        trainer(terms, settings_of_rule(terms).orders, settings, starts, out),
        rule(make_rule(core, *this)) {}
  RunInHand(const RunInHand&) = delete;
  RunInHand& operator=(const RunInHand&) = delete;

  const RunTerms terms;
  Membership members;
  Lifecycle life;
  CommittedState outer;
  Rounds rounds;
  Checkpoints checkpoints;
  Trainer trainer;
  // By whose word, and in which epoch, it last committed a round or took part: not of one that leaves it out.
  struct Word {
    Generation generation;
    Epoch epoch;
  };
  Word word;
  const std::unique_ptr<Rule> rule;
};

}  // namespace atl::agent
