#include "agent/core/rules/rule.hpp"

#include "agent/core/core_state.hpp"
#include "agent/core/rules/gossip_rounds.hpp"
#include "agent/core/rules/in_lockstep.hpp"
#include "agent/core/rules/own_rounds.hpp"
#include "agent/core/rules/quorum_rounds.hpp"
#include "agent/core/rules/rule_settings.hpp"
#include "agent/core/rules/shared_rounds.hpp"

namespace atl::agent {

std::unique_ptr<Rule> make_rule(Core::State& core, RunInHand& run) {
  const RunRounds& rounds = run.terms.rounds;
  switch (rounds.rule()) {
    case RunRule::gossip:
      return std::make_unique<GossipRounds>(core, run);
    case RunRule::shared:
      if (rounds.closes_with_quorum()) {
        return std::make_unique<QuorumRounds>(core, run);
      }
      if (rounds.lockstep()) {
        return std::make_unique<InLockstep<SharedRounds>>(core, run);
      }
      return std::make_unique<SharedRounds>(core, run);
    case RunRule::own:
    case RunRule::tasks:  // they have no rounds, and a class of their own (Tasks)
      break;
  }
  if (rounds.lockstep()) {
    return std::make_unique<InLockstep<OwnRounds>>(core, run);
  }
  return std::make_unique<OwnRounds>(core, run);
}

RuleSettings settings_of_rule(const RunTerms& terms) {
  RuleSettings settings;
  if (terms.rounds.has_own_outer_state()) {
    settings.state = StateOf::island;
    settings.contributions.counted_by_all = false;
    settings.copy_own_checkpoints = true;
  }
  if (terms.rounds.closes_with_quorum()) {
    settings.contributions.resume = ContributionSettings::Resume::each;
    settings.contributions.dropped_by_word = true;
    settings.orders.by_schedule = false;
  }
  if (terms.rounds.lockstep()) {
    settings.contributions.resume = ContributionSettings::Resume::none;
    settings.contributions.stepped_by_trainer = true;
    settings.orders.one_by_one = true;
    settings.orders.returns_parameters = true;
  }
  return settings;
}

Rule::Rule(Core::State& of, RunInHand& its_run)
    : core(of), run(&its_run), out(of.out), session(of.session), departure(of.departure), stored(of.stored), now(of.now) {}

void Rule::tell(std::string level, std::string kind, std::string text) { core.tell(std::move(level), std::move(kind), std::move(text)); }
void Rule::say_all() { core.say_all(); }
void Rule::beat() { core.beat(); }
void Rule::say_leave() { core.say_leave(); }
bool Rule::closed() const { return core.run.get() != run; }
void Rule::note_word() { run->word = {session.identity().generation, run->members.epoch()}; }

void Rule::say_of_run() {
  if (run->life.ended()) {
    run->checkpoints.repeat();
    send(*run->life.ended());
    return;
  }
  if (run->outer.said() && (!run->life.active() || run->outer.said()->error)) {
    CaughtUp said = *run->outer.said();
    said.epoch = run->members.epoch();
    send(std::move(said));
  }
  if (!run->life.active()) {
    if (run->outer.waits()) {
      // Left out for now. It says what it has until it takes part again: the order that lets it in may be lost.
      send(run->outer.report(run->members.epoch()));
    }
    return;
  }
  if (run->life.standing() && run->checkpoints.newest() && run->checkpoints.newest()->round == run->life.stands_after()) {
    run->checkpoints.repeat();
  }
  if (run->outer.initial() && !run->outer.held()) {
    atl::Ready ready;
    ready.run = run->terms.id;
    ready.epoch = run->members.epoch();
    ready.digest = *run->outer.initial();
    send(ready);
  }
  for (const auto& [number, round] : run->rounds.all()) {
    say(round);
  }
}

void Rule::say(const RoundInHand& round) {
  if (!run->life.active() || commits(round.number()) || !session.welcomed() || run->rounds.resuming()) {
    return;
  }
  if (std::optional<Message> said = round.said(run->members.epoch(), run->outer.digest())) {
    send(std::move(*said));
  }
}

}  // namespace atl::agent
