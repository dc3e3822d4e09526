// The path of a round: published by the trainer, formed, exchanged, committed by whoever its commit rule names, applied, merged.
//
//   publish ─► form ─┬─ coordinator: Ready ─► Exchange ─► Exchanged ─► Commit ─┐
//                    ├─ members:     meet the group (gossip_rounds.cpp) ───────┼─► apply ─► merge
//                    └─ self:        an exchange with one member ──────────────┘
#include <algorithm>

#include "agent/core/core_state.hpp"
#include "agent/core/rules/exchange_order.hpp"
#include "agent/core/rules/rule.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {
namespace {

template <typename Value>
void fill(std::vector<Value>& each, std::size_t members) {
  if (each.size() == 1) {
    each.resize(members, each.front());
  }
}

// With a value for each member where it was said in short.
Exchange in_full(Exchange order, const Membership& membership) {
  if (order.members.empty()) {
    order.members = membership.islands();
  }
  fill(order.terms.tokens, order.members.size());
  fill(order.terms.steps, order.members.size());
  fill(order.terms.norms, order.members.size());
  return order;
}

// Everybody has a weight, and somebody owns a shard.
bool fits(const Exchange& order) {
  const auto owns = [](std::uint8_t share) { return share != 0; };
  return order.terms.tokens.size() == order.members.size() &&
         (order.terms.shares.empty() ||
          (order.terms.shares.size() == order.members.size() && std::ranges::any_of(order.terms.shares, owns)));
}

}  // namespace

using Phase = RoundInHand::Phase;

void Rule::on_trainer(const TrainerPublished& event) {
  if (!run->trainer.training() || event.round > run->trainer.planned()) {
    return;
  }
  if (!expects(event)) {
    return;
  }
  const std::optional<Schedule>& schedule = run->trainer.schedule();
  if (const Result<RoundPlan> plan = schedule ? schedule->round_at(event.round) : Error{Code::not_found, ""};
      plan && plan->fragment != event.facts.fragment) {
    give_up(Error{Code::invalid_argument, "the trainer published fragment " + std::to_string(event.facts.fragment) + " for round " +
                                              std::to_string(event.round.value) + ", which is of fragment " +
                                              std::to_string(plan->fragment) + ": its program does not answer what it is asked for"});
    return;
  }
  const std::optional<Round> round = open_round(event.round, event.facts.fragment);
  if (!round) {
    on_unneeded(event);
    return;
  }
  run->trainer.on(event);
  if (departure.cut_short() && event.facts.steps == 0) {
    departure.contributed();  // it had only just begun: there is nothing to contribute
    say_leave();
    return;
  }
  const std::uint64_t published = run->rounds.published_to(run->outer.counted());
  RoundInHand& in_hand = run->rounds.add(*round, event.facts.fragment);
  ContributionFacts facts = event.facts;
  facts.data = DataRange{run->members.part(), published, event.position};
  facts.sequences = run->trainer.sequences();
  facts = credit(in_hand, event, facts);
  in_hand.describe(facts);
  in_hand.publish_as(event.round);
  run->rounds.note_local_loss(*round, event.local_loss);
  if (event.nonfinite) {
    const std::string what = event.bad_step ? "the loss of step " + std::to_string(event.bad_step->value)
                                            : "a loss or gradient before step " + std::to_string(event.step.value);
    take_failure(*round, Error{Code::corrupt, what + " was not finite"});
    go_back(what + " was not finite");
  } else {
    effect(FormContribution{run->terms.id, *round, facts});
  }
}

std::optional<Round> Rule::open_round(Round from, std::uint32_t) const {
  return from > run->outer.committed() && !run->rounds.contains(from) ? std::optional(from) : std::nullopt;
}

void Rule::on_engine(const ContributionFormed& event) {
  RoundInHand* round = run->rounds.find(event.round, Phase::forming);
  if (round == nullptr) {
    return;
  }
  round->form(event.facts.norm, event.facts.base, event.facts.fingerprint);
  if (run->trainer.note_formed(round->facts().tokens, event.facts.norm)) {
    tell("warning", "nothing_changed",
         "the trainer's steps have changed no parameter in " + std::to_string(Trainer::kUnchanged) + " contributions, up to round " +
             std::to_string(event.round.value) + ": what its program trains is not what it declared, or its learning rate is 0");
  }
  on_formed(*round);
}

void Rule::on_engine(const ContributionFailed& event) {
  take_failure(event.round, event.error);
  if (event.error.code == Code::corrupt) {
    go_back(event.error.why);
  }
}

void Rule::take_failure(Round number, Error error) {
  if (RoundInHand* round = run->rounds.find(number, Phase::forming)) {
    withdraw(*round, std::move(error));
  }
}

std::optional<RoundInHand*> Rule::round_of(const Exchange& order) { return run->rounds.find(order.round); }

void Rule::on_exchange(const Exchange& order) {
  if (order.round <= run->outer.committed()) {
    if (order.round == run->outer.committed()) {
      send(Exchanged{run->terms.id, run->members.epoch(), order.round, order.attempt, run->outer.digest(), 0, 0, 0, {}, 0});
    }
    return;
  }
  const Exchange message = in_full(order, run->members);
  const bool named = !order.members.empty() || run->members.lists(order.epoch);
  if (!run->life.active() || message.epoch > run->members.epoch() || !named || !fits(message)) {
    say_all();  // the answer to that brings the membership it belongs to
    return;
  }
  const auto refuse = [&](const std::string& why) {
    send(ExchangeFailed{run->terms.id, run->members.epoch(), message.round, message.attempt, island(), Error{Code::unavailable, why}});
    if (const RoundInHand* begun = run->rounds.find(message.round);
        begun != nullptr && begun->receives() && begun->attempt() == Attempt(0)) {
      run->rounds.forget(message.round);  // nothing of it has begun; a contribution that missed it may be in time for it again
    }
  };
  const std::optional<RoundInHand*> found = round_of(message);
  if (!found) {
    return;
  }
  RoundInHand* round = *found;
  if (round == nullptr || round->is(Phase::forming)) {
    refuse("this island has no contribution to round " + std::to_string(message.round.value));
    return;
  }
  if (message.attempt <= round->attempt() || round->is(Phase::applying)) {
    return;  // begun already, or given up
  }
  const std::uint64_t own = tokens_of(message, island());
  if (own > 0 && !is_counted(message, *round)) {
    refuse("this island has another contribution to round " + std::to_string(message.round.value) + " than the one that is counted");
    return;
  }
  round->count(own > 0);
  std::vector<Member> members;
  for (const IslandId& each : message.members) {
    const Member* member = run->members.find(each);
    if (member == nullptr) {
      refuse("this island does not know a member of the exchange");
      return;
    }
    const bool counts = message.terms.tokens[members.size()] > 0;
    if (each == island() && counts && round->withdrawn()) {
      refuse("this island withdrew its contribution to round " + std::to_string(message.round.value));
      return;
    }
    members.push_back(*member);
  }
  round->begin_exchange(message.attempt);
  effect(BeginExchange{run->terms.id, run->members.epoch(), message.round, message.attempt, round->fragment(), std::move(members),
                       message.terms, session.stall_after()});
}

void Rule::on_engine(const ExchangeDone& event) {
  RoundInHand* round = run->rounds.exchanging(event.round, event.attempt);
  if (round == nullptr) {
    return;
  }
  round->finish_exchange(Exchanged{run->terms.id, run->members.epoch(), event.round, event.attempt, event.digest, event.bytes_sent,
                                   event.bytes_received, event.seconds, event.slowest, event.arrived_seconds, event.parts});
  run->rounds.count(event);
  on_exchanged(*round, event);
}

void Rule::on_engine(const ExchangeBroke& event) {
  RoundInHand* round = run->rounds.exchanging(event.round, event.attempt);
  if (round == nullptr) {
    return;
  }
  if (commits(event.round)) {
    give_up(with_context(event.error, "round " + std::to_string(event.round.value)));
    return;
  }
  round->fail(ExchangeFailed{run->terms.id, run->members.epoch(), event.round, event.attempt, event.accused, event.error, event.missing});
  say(*round);
}

void Rule::on_abort(const Abort& message) {
  RoundInHand* round = run->rounds.find(message.round);
  if (round != nullptr && round->attempt() == message.attempt && round->in_exchange()) {
    effect(CancelExchange{run->terms.id, message.round, message.attempt});
    if (round->receives()) {
      run->rounds.forget(message.round);
      return;
    }
    round->abort();
    say(*round);
  }
}

void Rule::on_commit(const Commit& message) {
  advance_epoch(message.epoch);
  run->trainer.hear_tokens(message.tokens);
  if (message.round == Round(0)) {
    if (run->outer.initial() && !run->outer.held() && *run->outer.initial() == message.digest) {
      note_word();
      agree_on_initial(message.digest);
    }
    return;
  }
  if (!run->outer.held() || message.round != run->outer.committed().next()) {
    return;
  }
  RoundInHand* round = run->rounds.find(message.round);
  if (round == nullptr) {
    return;
  }
  if (round->is(Phase::exchanged) && round->attempt() == message.attempt &&
      (round->exchanged().digest == message.digest || ATOLL_PLANTED(digest_unchecked))) {
    round->set_checkpoint(message.checkpoint);
    if (message.copy) {
      run->checkpoints.copy(message.round, message.data);
    }
    if (message.pause) {
      run->life.stand(message.round, message.epoch);
    }
    if (message.pause || departure.asked()) {
      run->trainer.finish(message.round, false);
    }
    note_word();
    run->rounds.apply(message.round, lies_behind(*round));
    return;
  }
  if (!round->is(Phase::applying) && run->life.active() && message.epoch == run->members.epoch() && message.attempt >= round->attempt()) {
    miss_commit(message.round);
  }
}

void Rule::miss_commit(Round round) {
  send(run->outer.report(run->members.epoch(),
                         Error{Code::conflict, "this island does not hold the result of round " + std::to_string(round.value)}));
  run->life.put_out();  // until it has caught up
}

void Rule::on_engine(const ResultApplied& event) {
  if (!run->rounds.is(event.round, Phase::applying)) {
    return;
  }
  if (event.error) {
    give_up(with_context(*event.error, "the outer step of round " + std::to_string(event.round.value)));
    return;
  }
  const bool due = checkpoint_due(event.round, run->terms.last(), rounds_between_checkpoints(run->terms.spec));
  const bool checkpoint = due || run->rounds.find(event.round)->checkpoint();
  const RoundInHand round = run->rounds.take_applied(event.round, checkpoint);
  run->outer.advance(event.round, round.exchanged().digest, counted_to(round));
  run->trainer.note_progress();
  on_applied(event);
  if (checkpoint) {
    begin_checkpoint(event.round);
  }
  hand_result(round, event);
}

void Rule::begin_checkpoint(Round round) { effect(BeginCheckpoint{run->terms.id, round, run->outer.digest()}); }

void Rule::hand_result(const RoundInHand& round, const ResultApplied& event) {
  if (run->terms.composition.whole_period() && run->trainer.training()) {
    return;  // it gets the result once it has published for the next round (hand_over)
  }
  if (!run->trainer.give(event.round, round.fragment())) {
    miss_merge(event.round);  // its trainer ended meanwhile; the next one is loaded with the outer parameters
  }
}

// Where the exchange takes a whole period: the trainer gets a result once it has published for the next round of the fragment, or if it
// will not. Called after everything that happens.
void Rule::hand_over() {
  if (!run->terms.composition.whole_period()) {
    return;
  }
  const bool orders_end = run->life.standing() || departure.asked();
  run->rounds.hand_over([&](Round round, std::uint32_t fragment) {
    const std::optional<RoundPlan> next = run->trainer.schedule()->next_of(fragment, round);
    if (!next || next->round > run->terms.last_trained()) {
      return true;  // it was the fragment's last
    }
    const bool published = run->rounds.contains(next->round) && !run->rounds.is(next->round, Phase::forming);
    return published || (orders_end && next->round > run->trainer.planned());
  });
}

void Rule::on_engine(const HandedOver& event) {
  if (run->rounds.find_merging(event.round) == nullptr) {
    return;  // its trainer ended meanwhile
  }
  if (event.error) {
    give_up(with_context(*event.error, "what the trainer goes on from after round " + std::to_string(event.round.value)));
  } else if (!run->trainer.give(event.round, event.fragment)) {
    merged(event.round, TrainerSave::none);
  }
}

void Rule::on_trainer(const TrainerMerged& event) {
  if (!run->trainer.training() || event.round > run->outer.committed()) {
    return;
  }
  run->trainer.on(event);
  if (!expects(event)) {
    return;
  }
  Merged said = run->rounds.describe(event);
  said.metrics = run->trainer.take_metrics();
  send(std::move(said));
  if (!event.save_error.empty()) {
    tell_not_saved(event.round, event.save_error);
  }
  if (run->rounds.find_merging(event.round) != nullptr) {
    take_merge(event);
  }
}

void Rule::on_engine(const ParametersAdopted& event) {
  const Merging* merging = run->rounds.find_merging(event.round);
  if (merging == nullptr || !merging->adopting) {
    return;
  }
  if (event.error) {
    lose_state(with_context(*event.error, "the parameters after round " + std::to_string(event.round.value)).why);
    return;
  }
  merged(event.round, merging->saved ? TrainerSave::done : TrainerSave::none);
}

// The trainer has taken a round's result, or will not any more.
void Rule::merged(Round round, TrainerSave save) {
  const Merging merging = run->rounds.take_merging(round);
  if (merging.checkpoint) {
    for (const Merging& older : run->rounds.overtaken(round)) {  // in their order: the newest ones are kept
      finish_checkpoint(older.round, older.digest, TrainerSave::none);
    }
    finish_checkpoint(round, merging.digest, save);
  }
  on_merged();
  finish_if_done();
  core.finish_leaving();
}

// Rounds in hand lead nowhere any more.
void Rule::drop_rounds() {
  const bool step_lost = run->rounds.awaits_step();
  run->rounds.drop();
  on_dropped();
  run->trainer.drop_orders();
  run->trainer.forget_hurry();
  if (step_lost) {
    run->outer.drop();  // the parameters after the newest round would have come from the trainer
  }
  departure.contributed();
  forget_stand();
}

}  // namespace atl::agent
