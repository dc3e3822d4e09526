#include "agent/core/rules/gossip_rounds.hpp"

#include <algorithm>

#include "agent/core/core_state.hpp"
#include "strategies/pairing.hpp"

namespace atl::agent {

GossipRounds::GossipRounds(Core::State& of, RunInHand& its_run)
    : OwnStateRounds(of, its_run), partners_(its_run.terms.spec.guards.norm_factor) {}

// The last rounds merge all islands' outer parameters, and those the coordinator commits.
bool GossipRounds::commits(Round round) const { return round <= run->terms.last_trained(); }

ContributionFacts GossipRounds::credit(RoundInHand&, const TrainerPublished& event, const ContributionFacts& facts) {
  partners_.publish(event.facts.tokens);
  return facts;
}

void GossipRounds::on_formed(RoundInHand& round) {
  departure.contributed();
  if (!commits(round.number())) {
    say(round);
    return;
  }
  if (const std::optional<std::string> exploded = partners_.guard(round.fragment()).verdict(round.facts().norm)) {
    reject_own(round, Error{Code::corrupt, *exploded});
    return;
  }
  send(*round.said(run->members.epoch(), run->outer.digest()));
  meet_partner(round);
}

void GossipRounds::withdraw(RoundInHand& round, Error error) {
  if (commits(round.number()) && error.code == Code::corrupt) {
    reject_own(round, error);
  } else {
    OwnStateRounds::withdraw(round, std::move(error));
  }
}

// This island among them; alone: nobody to meet in this round.
std::vector<IslandId> GossipRounds::group_in(Round round) const {
  if (!run->members.includes(island())) {
    return {};
  }
  return group_of(island(), run->terms.spec.seed, round, run->members.islands(), run->terms.composition.group_size, run->members.avoid());
}

// A round that is taken alone costs less time than one that is met, so an island to which nobody came for a while may be ahead of all. Who
// is ahead takes no step alone for that others are behind: it would stay ahead, and never meet anybody again.
bool GossipRounds::is_ahead() const { return partners_.ahead_of_most(run->members.members().size() - 1); }

// The next round's partner is known: the outer parameters travel while the trainer works.
void GossipRounds::prepare_next() {
  if (!run->outer.held() || !run->life.active() || !run->trainer.schedule() || run->outer.committed() >= run->terms.last_trained()) {
    return;
  }
  const Round next = run->outer.committed().next();
  const Result<RoundPlan> plan = run->trainer.schedule()->round_at(next);
  std::vector<IslandId> group = group_in(next);
  if (plan && group.size() > 1) {
    effect(PreparePair{run->terms.id, run->members.epoch(), next, plan->fragment, std::move(group), is_ahead()});
  }
}

void GossipRounds::meet_partner(RoundInHand& round) {
  const Round number = round.number();
  round.begin_exchange(Attempt(1), run->members.epoch());
  NormGuard guard = partners_.guard(round.fragment());
  if (guard.usual > 0) {
    guard.usual = std::max(guard.usual, round.facts().norm);  // what both islands do is no offence
  }
  effect(MeetPartner{run->terms.id, run->members.epoch(), number, round.attempt(), round.fragment(), group_in(number),
                     now + run->terms.spec.islands.deadline, guard, round.withdrawn(), is_ahead()});
}

// Its own contribution does not count: the partner goes alone, and this island goes on from the outer state that it has.
void GossipRounds::reject_own(RoundInHand& round, const Error& error) {
  const Round number = round.number();
  round.reject();
  departure.contributed();
  partners_.reject(round.facts().tokens);
  if (session.welcomed()) {
    send(Withdrawn{run->terms.id, run->members.epoch(), number, error});
  } else {
    tell("warning", "contribution_rejected",
         "the contribution of island " + session.identity().name + " to round " + std::to_string(number.value) +
             " does not count: " + error.why);
  }
  meet_partner(round);
}

// What came of a round with its partner, or without.
void GossipRounds::note_exchange(RoundInHand& round, const ExchangeDone& event) {
  send(round.exchanged());  // nobody decides anything by it: what the round moved
  run->rounds.note_partner(event.round, event.partner);
  partners_.note(round, event);
  if (!event.partner.empty()) {
    return;
  }
  if (event.rejected) {
    tell("warning", "contribution_rejected",
         "the contribution of this island's partner to round " + std::to_string(event.round.value) + " does not count: " + event.why);
  } else if (!event.why.empty()) {
    tell("info", "pair_alone", "round " + std::to_string(event.round.value) + " was taken alone: " + event.why);
  }
}

// The members are others: groups of the old epoch are left, and the next round's is drawn anew.
void GossipRounds::on_epoch() {
  effect(LeavePairs{run->terms.id, run->members.epoch(), run->members.islands()});
  prepare_next();
}

void GossipRounds::on_applied(const ResultApplied& event) {
  run->rounds.note_projection(event.round, event.projection);
  prepare_next();
}

// What it decided with others may be void.
void GossipRounds::miss_commit(Round round) { lose_state("this island does not hold the result of round " + std::to_string(round.value)); }

// Adaptive pace: the partner waits, or has gone on. What the trainer has done until now is this round's contribution.
void GossipRounds::on_partner_ahead(const PartnerAhead& event) {
  if (run->terms.composition.adaptive_pace && run->life.active() && !run->life.standing() && event.round > run->outer.committed() &&
      !run->rounds.contains(event.round)) {
    run->trainer.hurry(event.round, run->outer.committed());
  }
}

// This island promised, and does not hear what was decided: by way of the coordinator, if that is there.
void GossipRounds::on_pair_in_doubt(const PairInDoubt& event) {
  if (!session.welcomed() || !run->life.active()) {
    return;
  }
  for (const IslandId& asked : event.asked) {
    send(PairQuery{run->terms.id, event.epoch, event.round, island(), asked, event.asked_in});
  }
}

void GossipRounds::on_pair_renounced(const PairRenounced& event) {
  send(PairAnswer{run->terms.id, event.epoch, event.round, event.asker, island(), PairWord::doubt, event.asked_in});
}

// Nothing while it has not decided. What it met it remembers as long as the run is open; anything else it can never meet any more.
std::optional<PairWord> GossipRounds::word_on(Epoch epoch, Round round) {
  if (epoch < run->outer.since()) {
    return PairWord::voided;
  }
  if (partners_.met(epoch, round)) {
    return PairWord::met;
  }
  const RoundInHand* hand = run->rounds.find(round);
  const bool elsewhere = run->members.epoch() > epoch && (hand == nullptr || hand->group_epoch() != epoch);
  return run->outer.committed() >= round || elsewhere ? std::optional(PairWord::alone) : std::nullopt;
}

void GossipRounds::on_pair_query(const PairQuery& message) {
  if (message.asked != island() || !run->life.active() || !run->outer.held() || message.asked_in != run->members.epoch()) {
    return;
  }
  if (const std::optional<PairWord> word = word_on(message.epoch, message.round)) {
    send(PairAnswer{run->terms.id, message.epoch, message.round, message.asker, island(), *word, message.asked_in});
  } else {
    effect(RenouncePair{run->terms.id, message.epoch, message.round, message.asker, message.asked_in});
  }
}

void GossipRounds::on_pair_answer(const PairAnswer& message) {
  if (message.asker == island()) {
    effect(HearOfPair{run->terms.id, message.epoch, message.round, message.answerer, message.asked_in, message.word});
  }
}

// After the last own round: every island's outer parameters, merged into one model as a group of all exchanges and commits.
void GossipRounds::drive() {
  if (departure.gone() || run->life.ended() || !run->life.active() || !run->outer.held() || !run->trainer.schedule() ||
      !run->rounds.empty() || run->rounds.merging() || run->life.stands_after() || run->life.pause_after() ||
      run->outer.committed() < run->terms.last_trained() || run->outer.at_end()) {
    return;
  }
  const Round number = run->outer.committed().next();
  RoundInHand& round = run->rounds.add(number, run->terms.rounds.terms(number).fragment);
  round.describe(
      {.tokens = partners_.weight(), .training_loss = run->trainer.training_loss(), .fragment = round.fragment()});  // what they weigh
  effect(FormMergeContribution{run->terms.id, number, round.fragment()});
}

// ---- the epoch

// Every copy of the run's state is gone, and what is here is of rounds that were given up.
bool GossipRounds::starts_over() const { return !run->outer.held() && run->outer.from() != StartFrom::scratch; }

void GossipRounds::go_on_from_memory(const Invite& message) {
  use_epoch(message.epoch, message.members, message.avoid);
  const CommittedState& outer = run->outer;
  if (outer.catching_up()) {
    return;  // an older order: it takes over another's state
  }
  if (outer.held()) {
    take_part(message);
  }
  if (outer.held() && outer.committed() > std::max(run->terms.last_trained(), message.committed)) {
    lose_state("what this island has is of a merge that was given up");
  } else if (outer.held() && !outer.restoring()) {  // else what is here is being replaced
    become_active();
  }
}

void GossipRounds::own_up() {
  const bool member = run->members.includes(island());
  if (!member || run->outer.coming()) {
    return;
  }
  if (run->outer.held() && !run->life.active()) {
    become_active();
  } else if (!run->outer.held() && !run->outer.said() && !(run->life.active() && run->outer.from() == StartFrom::scratch)) {
    lose_state("this island has the run's state no more");
  }
}

void GossipRounds::be_left_out() {
  run->life.put_out();
  if (!run->members.members().empty()) {
    drop_rounds();  // what it decided with others may be void: it comes back with the state of one of them
    run->outer.drop();
    run->outer.unsay();
  } else if (run->outer.held()) {
    run->outer.say(run->members.epoch());  // nobody is left: it goes on from where it is
  }
}

}  // namespace atl::agent
