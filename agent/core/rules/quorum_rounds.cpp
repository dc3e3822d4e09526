#include "agent/core/rules/quorum_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/core/core_state.hpp"
#include "agent/core/rules/exchange_order.hpp"
#include "strategies/specification/run_rules.hpp"

namespace atl::agent {

using Phase = RoundInHand::Phase;
using Turn = ArenaTurns::Turn;

bool QuorumRounds::expects(const TrainerPublished& event) const { return turns_.is(event.facts.fragment, Turn::publishing); }

std::optional<Round> QuorumRounds::open_round(Round from, std::uint32_t fragment) const {
  const std::optional<RoundPlan> plan = first_open(Round(from.value - 1), fragment);
  return plan ? std::optional(plan->round) : std::nullopt;
}

ContributionFacts QuorumRounds::credit(RoundInHand& round, const TrainerPublished& event, const ContributionFacts& facts) {
  round.train_from(turns_.took_part_in(event.facts.fragment));
  return turns_.published(event.step, event.position, facts);
}

void QuorumRounds::on_formed(RoundInHand& round) {
  if (!date(round.number())) {
    return;
  }
  if (!turns_.publishing()) {
    departure.contributed();
  }
  say(round);
}

void QuorumRounds::withdraw(RoundInHand& round, Error error) {
  turns_.distrust(round.fragment());
  drop_contribution(round.number(), error, fate_of(error));
}

std::optional<RoundInHand*> QuorumRounds::round_of(const Exchange& order) {
  RoundInHand* round = run->rounds.find(order.round);
  if (tokens_of(order, island()) > 0) {
    return round;
  }
  if (round != nullptr && round->is(Phase::forming)) {
    return std::nullopt;  // the coordinator says it again; by then it is known whether there is a contribution
  }
  return receive(order, round);
}

bool QuorumRounds::is_counted(const Exchange& order, const RoundInHand& round) const {
  return !round.receives() && counts(order, island(), round.facts());
}

// The round closes without this island's contribution, and the island receives its result. A contribution that is there already goes into
// the next round that is open, unless the coordinator rejected it: then the trainer takes the newest result before it publishes again.
RoundInHand* QuorumRounds::receive(const Exchange& message, RoundInHand* late) {
  if (message.rejected && late != nullptr && late->is(Phase::formed)) {
    turns_.distrust(message.fragment);
    forget_contribution(message.round);
    late = nullptr;
  }
  if (late != nullptr && (!late->is(Phase::formed) || late->withdrawn() || !run->trainer.schedule() || !postpone(message.round))) {
    return late;
  }
  RoundInHand& round = run->rounds.add(message.round, message.fragment);
  round.receive();
  round.begin_exchange(Attempt(0));
  return &round;
}

// What did not count is counted with the island's next contribution that does.
std::uint64_t QuorumRounds::counted_to(const RoundInHand& round) const { return round.counts() ? round.facts().data.to : 0; }

bool QuorumRounds::expects(const TrainerMerged& event) {
  return turns_.merged(event.fragment, event.round, event.step, event.position, run->trainer.tokens());
}

// What was published lies elsewhere, and is not trained on again.
void QuorumRounds::load_trainer() {
  const Round committed = run->outer.committed();
  run->trainer.load(committed, run->trainer.step_of(committed), run->rounds.published_to(run->outer.counted()));
}

void QuorumRounds::order_work() {
  Trainer& trainer = run->trainer;
  ArenaTurns& turns = turns_;
  if (!turns.begun(trainer.beginnings())) {
    turns.begin(trainer.beginnings(), trainer.schedule()->fragments(), trainer.begun_with(), run->outer.committed(), trainer.step(),
                trainer.position(), trainer.tokens());
    trainer.run_to_the_end();
  }
  if (!run->life.active() || run->life.standing() || run->outer.at_end()) {
    return;
  }
  if (const std::optional<Step> step = turns.hurried(trainer.tokens())) {
    trainer.skip_to(*step);
  }
  for (std::uint32_t fragment = 0; fragment < turns.fragments(); ++fragment) {
    if (!turns.is(fragment, Turn::ours)) {
      continue;
    }
    const bool owes = turns.owes(fragment) && !departure.asked() && first_open(run->outer.committed(), fragment);
    if (turns.outdated(fragment) && !owes && !overdue(fragment, Round())) {
      turns.adopt(fragment, turns.newest(fragment));
      effect(OfferParameters{run->terms.id, turns.newest(fragment), fragment});
    } else if (!departure.asked() && !run->rounds.contributes(fragment)) {
      order_publish(fragment);
    }
  }
}

// Whether the next round of a fragment is due here by now, before a newer result takes the place of what the trainer has. That is so where
// a round was held up, by a slower island or one that died, say: what the trainer did meanwhile is worth a contribution of its own. Formed
// against the newest result, that has no more of what it contributed before in it than that result has. closing: a round that is being
// closed; its contribution is not in the way.
bool QuorumRounds::overdue(std::uint32_t fragment, Round closing) const {
  const ArenaTurns& turns = turns_;
  const RunTerms& terms = run->terms;
  const std::optional<RoundPlan> next = first_open(run->outer.committed(), fragment);
  if (!next || departure.asked() || run->life.standing() || !turns.trusted(fragment) || terms.spec.strategy.anchor != Anchor::newest ||
      terms.composition.max_staleness == 0 || run->rounds.contributes(fragment, closing)) {
    return false;
  }
  return run->trainer.step() >= std::max(next->start, Step(turns.published_at(fragment).value + least_steps()));
}

// With fewer steps there would be next to nothing to publish.
std::uint64_t QuorumRounds::least_steps() const {
  const std::uint64_t inner_steps = run->terms.composition.inner_steps;
  const std::uint64_t overlap = std::min(inner_steps, own_overlap(run->terms.spec, session.identity().name));
  return std::max<std::uint64_t>(1, std::min(inner_steps - overlap, inner_steps / 2));
}

// The next publish of a fragment, for the first of its rounds that is open: when that is due, and not right behind the result that the
// trainer has just taken, for then there would be next to nothing to publish.
void QuorumRounds::order_publish(std::uint32_t fragment) {
  const std::optional<RoundPlan> due = first_open(run->outer.committed(), fragment);
  if (!due) {
    return;  // the run has no more rounds of it
  }
  const Step soonest(turns_.based_at(fragment).value + least_steps());
  const Step step = std::max(due->start, soonest);
  turns_.order_publish(fragment, step);
  run->trainer.order_publish(*due, step);
  const Result<RoundPlan> newest = run->trainer.schedule()->round_at(run->outer.committed());
  if (newest && newest->start > run->trainer.step()) {
    // This island is slower than the run: it publishes after a whole period of its own steps, and moves to the run's step then.
    turns_.hurry(fragment, run->terms.composition.inner_steps * run->terms.spec.training.batch * tokens_per_sequence(run->terms.spec));
  }
}

// The others have come to this round: the trainer publishes what it has, if that is enough.
void QuorumRounds::hurry(Round round) {
  if (!run->trainer.schedule()) {
    Rule::hurry(round);
    return;
  }
  const Result<RoundPlan> plan = run->trainer.schedule()->round_at(round);
  if (plan && run->trainer.training()) {
    const RunSpec& spec = run->terms.spec;
    turns_.hurry(plan->fragment, spec.strategy.min_inner_steps * spec.training.batch * tokens_per_sequence(spec));
  }
}

// The first round of a fragment after `from` that is not closed, and that this island contributes nothing to yet.
std::optional<RoundPlan> QuorumRounds::first_open(Round from, std::uint32_t fragment) const {
  std::optional<RoundPlan> plan = run->trainer.schedule()->next_of(fragment, std::max(from, run->outer.committed()));
  while (plan && run->rounds.contains(plan->round)) {
    plan = run->trainer.schedule()->next_of(fragment, plan->round);
  }
  return plan && plan->round <= run->terms.last_trained() ? plan : std::nullopt;
}

// The trainer takes a result that lies in the arena. not_before: the step at which it does so at the earliest.
void QuorumRounds::adopt(Round round, std::uint32_t fragment, Step not_before) {
  const Merging* merging = run->rounds.find_merging(round);
  run->trainer.adopt(round, fragment, not_before, merging != nullptr && merging->checkpoint);
}

void QuorumRounds::on_parameters_offered(const ParametersOffered& event) {
  if (run->trainer.training() && turns_.adopts(event.fragment, event.round)) {
    adopt(event.round, event.fragment, Step(0));
  }
}

// The outer step of a round is taken. Its result is in the arena if the trainer was to take it at once.
void QuorumRounds::hand_result(const RoundInHand& round, const ResultApplied& event) {
  const std::uint32_t fragment = round.fragment();
  turns_.applied(fragment, event.round);
  if (round.counts()) {
    run->rounds.count_data(round.facts().data);
    turns_.counted(fragment, event.round);
  }
  if (run->trainer.training() && turns_.adopts(fragment, event.round)) {
    const bool waited_for = !round.receives() && round.published_as() == event.round;
    adopt(event.round, fragment, waited_for ? run->trainer.step_of(event.round) : Step(0));
  } else {
    merged(event.round, TrainerSave::none);
  }
  if (!closed()) {
    form_anew(fragment, event);
  }
}

// Contributions to later rounds of the fragment are formed against its newest result now.
void QuorumRounds::form_anew(std::uint32_t fragment, const ResultApplied& event) {
  for (const auto& [told, norm] : event.reformed) {
    const Round number = run->rounds.now_for(told);
    RoundInHand* later = run->rounds.find(number);
    if (later != nullptr && !later->is(Phase::formed)) {
      // The round is being exchanged without this contribution. If the exchange is given up, the contribution is said as it is now.
      if (!std::isnan(norm)) {
        later->reform(norm, event.round);
      }
    } else if (later != nullptr && std::isnan(norm)) {
      turns_.distrust(fragment);
      drop_contribution(number, Error{Code::corrupt, "against the newest outer parameters it is not finite"}, Fate::not_finite);
    } else if (later != nullptr) {
      later->form(norm, event.round);
      say(*later);
    }
  }
}

// The result of this round is to be applied: into the arena, too, if it is the agent's turn with that fragment.
bool QuorumRounds::lies_behind(const RoundInHand& round) {
  const bool ours = run->trainer.training() && turns_.begun(run->trainer.beginnings()) && turns_.is(round.fragment(), Turn::ours) &&
                    !overdue(round.fragment(), round.number());
  if (ours) {
    turns_.adopt(round.fragment(), round.number());
  }
  return !ours;
}

// How many rounds of its fragment a contribution has missed. False: too many for it to count, and it is dropped. Its trainer goes on from
// what it has, or from the newest result, and publishes anew.
bool QuorumRounds::date(Round number) {
  RoundInHand& round = *run->rounds.find(number);
  const std::uint64_t missed = run->trainer.schedule()->rounds_between(round.fragment(), round.trained_from(), number);
  const std::uint32_t most = run->terms.composition.max_staleness;
  round.age(static_cast<std::uint32_t>(std::min<std::uint64_t>(missed, std::numeric_limits<std::uint32_t>::max())));
  if (missed <= most) {
    return true;
  }
  const std::string count = std::to_string(missed);
  const Error why{Code::unavailable, "it missed " + count + " rounds of fragment " + std::to_string(round.fragment()) +
                                         ", and strategy.max_staleness is " + std::to_string(most) + "; with max_staleness = " + count +
                                         " it would have counted"};
  drop_contribution(number, why, Fate::too_stale);
  return false;
}

// It does not count, and waits for nothing: the trainer publishes anew.
void QuorumRounds::drop_contribution(Round number, const Error& why, Fate fate) {
  send(Withdrawn{run->terms.id, run->members.epoch(), number, why, fate, accounted(run->rounds.find(number)->facts())});
  forget_contribution(number);
}

void QuorumRounds::forget_contribution(Round number) {
  run->rounds.drop(number);
  if (!turns_.publishing()) {
    departure.contributed();
  }
}

// The round closed without the contribution that this island has for it: it is one to the next round of the fragment that is open.
// False: there is none, and what was trained for it comes too late for the run.
bool QuorumRounds::postpone(Round number) {
  const std::optional<RoundPlan> next = first_open(number, run->rounds.find(number)->fragment());
  if (!next) {
    tell_overrun(number, run->rounds.find(number)->facts());
    return false;
  }
  RoundInHand& postponed = run->rounds.postpone(number, next->round);
  if (date(next->round)) {
    say(postponed);
  }
  return true;
}

// An attempt at an earlier round of its fragment, which this island was only to receive, was given up: a contribution that had missed that
// round is in time for it again.
void QuorumRounds::drive() {
  if (!run->trainer.schedule() || !run->life.active()) {
    return;
  }
  for (const Round number : run->rounds.numbers()) {
    const RoundInHand* round = run->rounds.find(number);
    const bool waits = round->is(Phase::formed) || round->is(Phase::withdrawn);
    const std::optional<RoundPlan> open = waits ? first_open(run->outer.committed(), round->fragment()) : std::nullopt;
    if (open && open->round < number) {
      RoundInHand& moved = run->rounds.postpone(number, open->round);
      if (date(open->round)) {
        say(moved);
      }
    }
  }
}

// Published for a run that has no more rounds of this fragment.
void QuorumRounds::on_unneeded(const TrainerPublished& event) {
  run->trainer.on(event);
  ContributionFacts facts = event.facts;
  facts.data = DataRange{run->members.part(), run->rounds.published_to(run->outer.counted()), event.position};
  tell_overrun(event.round, turns_.published(event.step, event.position, facts));
}

void QuorumRounds::tell_overrun(Round round, const ContributionFacts& facts) {
  const Error why{Code::unavailable, std::to_string(facts.tokens) + " tokens were trained on after the last round of fragment " +
                                         std::to_string(facts.fragment) + ": they count in no round"};
  send(Withdrawn{run->terms.id, run->members.epoch(), round, why, Fate::overrun, accounted(facts)});
  tell("info", "contribution_overrun", why.why);
}

}  // namespace atl::agent
