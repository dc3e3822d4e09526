// The path of a round: published by the trainer, formed, exchanged, committed by whoever its commit rule names, applied, merged.
//
//   publish ─► form ─┬─ coordinator: Ready ─► Exchange ─► Exchanged ─► Commit ─┐
//                    ├─ members:     meet the group (group_rounds.cpp) ────────┼─► apply ─► merge
//                    └─ self:        an exchange with one member ──────────────┘
#include <algorithm>
#include <cmath>
#include <limits>

#include "agent/core/core_state.hpp"
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
  fill(order.tokens, order.members.size());
  fill(order.steps, order.members.size());
  fill(order.norms, order.members.size());
  return order;
}

// Everybody has a weight, and somebody owns a shard.
bool fits(const Exchange& order) {
  const auto owns = [](std::uint8_t share) { return share != 0; };
  return order.tokens.size() == order.members.size() &&
         (order.shares.empty() || (order.shares.size() == order.members.size() && std::ranges::any_of(order.shares, owns)));
}

// What an island contributes to the exchange; 0: nothing, or it is no member.
std::uint64_t tokens_of(const Exchange& order, const IslandId& island) {
  const auto place = std::ranges::find(order.members, island);
  return place == order.members.end() ? 0 : order.tokens[static_cast<std::size_t>(place - order.members.begin())];
}

// Whether it is this contribution of the island that counts, and none that it made before.
bool counts(const Exchange& order, const IslandId& island, const atl::Ready& ready) {
  const auto place = static_cast<std::size_t>(std::ranges::find(order.members, island) - order.members.begin());
  return tokens_of(order, island) == std::max<std::uint64_t>(1, ready.tokens) &&
         (place >= order.norms.size() || order.norms[place] == ready.norm);
}

}  // namespace

using Phase = RoundInHand::Phase;

void Core::State::on_trainer(const TrainerPublished& event) {
  if (!run->trainer.training() || event.round > run->trainer.planned()) {
    return;
  }
  if (run->terms.closes_with_quorum() && !run->turns.is(event.fragment, ArenaTurns::Turn::publishing)) {
    return;
  }
  const std::optional<Schedule>& schedule = run->trainer.schedule();
  if (const Result<RoundPlan> plan = schedule ? schedule->round_at(event.round) : Error{Code::not_found, ""};
      plan && plan->fragment != event.fragment) {
    give_up(Error{Code::invalid_argument, "the trainer published fragment " + std::to_string(event.fragment) + " for round " +
                                              std::to_string(event.round.value) + ", which is of fragment " +
                                              std::to_string(plan->fragment) + ": its program does not answer what it is asked for"});
    return;
  }
  const std::optional<Round> round = open_round(event.round, event.fragment);
  if (!round) {
    if (run->terms.closes_with_quorum()) {
      overrun(event);
    }
    return;
  }
  run->trainer.on(event);
  if (departure.cut_short() && event.steps == 0) {
    departure.contributed();  // it had only just begun: there is nothing to contribute
    say_leave();
    return;
  }
  run->partners.publish(event.tokens);
  const DataRange data{run->members.part(), run->rounds.published_to(run->outer.counted()), event.position};
  PublishFacts facts{event.tokens, event.steps, event.training_loss, data};
  RoundInHand& in_hand = run->rounds.add(*round, event.fragment);
  if (run->terms.closes_with_quorum()) {
    in_hand.train_from(run->turns.took_part_in(event.fragment));
    facts = run->turns.published(event.fragment, event.step, event.position, facts);
  }
  in_hand.describe(facts, run->trainer.sequences());
  in_hand.publish_as(event.round);
  run->rounds.note_local_loss(*round, event.local_loss);
  if (event.nonfinite) {
    const std::string what = event.bad_step ? "the loss of step " + std::to_string(event.bad_step->value)
                                            : "a loss or gradient before step " + std::to_string(event.step.value);
    withdraw(*round, Error{Code::corrupt, what + " was not finite"});
    go_back(what + " was not finite");
  } else {
    effect(FormContribution{run->terms.id, *round, event.fragment, facts});
  }
}

// Into which round a contribution goes that the trainer was told to publish for round `from`: that one; where it may have closed already,
// the next of its fragment that has not. Nothing: the contribution is not needed.
std::optional<Round> Core::State::open_round(Round from, std::uint32_t fragment) {
  if (run->terms.closes_with_quorum()) {
    const std::optional<RoundPlan> plan = first_open(Round(from.value - 1), fragment);
    return plan ? std::optional(plan->round) : std::nullopt;
  }
  return from > run->outer.committed() && !run->rounds.contains(from) ? std::optional(from) : std::nullopt;
}

void Core::State::on_engine(const ContributionFormed& event) {
  RoundInHand* round = run->rounds.find(event.round, Phase::forming);
  if (round == nullptr) {
    return;
  }
  round->form(event.norm, event.base, event.fingerprint);
  if (run->terms.closes_with_quorum() && !date(event.round)) {
    return;
  }
  if (!run->turns.publishing()) {
    departure.contributed();
  }
  if (!run->terms.islands_commit(event.round)) {
    say(*round);
    return;
  }
  if (const std::optional<std::string> exploded = run->partners.guard(round->fragment()).verdict(event.norm)) {
    reject_own(event.round, Error{Code::corrupt, *exploded});
    return;
  }
  send(*round->said(run->members.epoch(), run->outer.digest()));
  begin_commit(event.round);
}

// What comes after a contribution is formed, where the coordinator has no part in it.
void Core::State::begin_commit(Round round) {
  if (run->terms.rounds.terms(round).commit == CommitRule::members) {
    meet_partner(round);
  } else {
    begin_alone(round);
  }
}

void Core::State::on_engine(const ContributionFailed& event) {
  withdraw(event.round, event.error);
  if (event.error.code == Code::corrupt) {
    go_back(event.error.why);
  }
}

void Core::State::withdraw(Round number, Error error) {
  RoundInHand* round = run->rounds.find(number, Phase::forming);
  if (round == nullptr) {
    return;
  }
  if (run->terms.rounds.terms(number).commit == CommitRule::members && error.code == Code::corrupt) {
    reject_own(number, error);
    return;
  }
  if (run->terms.has_own_outer_state()) {
    give_up(with_context(std::move(error), "round " + std::to_string(number.value)));
    return;
  }
  if (run->terms.closes_with_quorum()) {
    run->turns.distrust(round->fragment());
    drop_contribution(number, error, fate_of(error));
    return;
  }
  round->withdraw(run->members.epoch(), std::move(error));
  departure.contributed();
  say(*round);
}

// A group of one: the exchange has one member, and nobody else commits it.
void Core::State::begin_alone(Round number) {
  RoundInHand& round = *run->rounds.find(number);
  round.begin_exchange(Attempt(1));
  const Identity& identity = session.identity();
  BeginExchange order;
  order.run = run->terms.id;
  order.epoch = run->members.epoch();
  order.round = number;
  order.attempt = round.attempt();
  order.fragment = round.fragment();
  order.members = {Member{identity.island, identity.name, "", identity.bulk_address}};
  order.tokens = {std::max<std::uint64_t>(round.ready().tokens, 1)};
  order.steps = {round.ready().steps};
  order.stall_after = session.stall_after();
  effect(std::move(order));
}

void Core::State::on_exchange(const Exchange& order) {
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
  RoundInHand* round = run->rounds.find(message.round);
  if (run->terms.closes_with_quorum() && tokens_of(message, island()) == 0) {
    if (round != nullptr && round->is(Phase::forming)) {
      return;  // the coordinator says it again; by then it is known whether there is a contribution
    }
    round = receive(message, round);
  }
  if (round == nullptr || round->is(Phase::forming)) {
    refuse("this island has no contribution to round " + std::to_string(message.round.value));
    return;
  }
  if (message.attempt <= round->attempt() || round->is(Phase::applying)) {
    return;  // begun already, or given up
  }
  const std::uint64_t own = tokens_of(message, island());
  if (run->terms.closes_with_quorum() && own > 0 && (round->receives() || !counts(message, island(), round->ready()))) {
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
    const bool counts = message.tokens[members.size()] > 0;
    if (each == island() && counts && round->withdrawn()) {
      refuse("this island withdrew its contribution to round " + std::to_string(message.round.value));
      return;
    }
    members.push_back(*member);
  }
  round->begin_exchange(message.attempt);
  effect(BeginExchange{run->terms.id, run->members.epoch(), message.round, message.attempt, round->fragment(), std::move(members),
                       message.tokens, session.stall_after(), message.shares, message.steps, message.norms});
}

// The round closes without this island's contribution, and the island receives its result. A contribution that is there already goes into
// the next round that is open, unless the coordinator rejected it: then the trainer takes the newest result before it publishes again.
RoundInHand* Core::State::receive(const Exchange& message, RoundInHand* late) {
  if (message.rejected && late != nullptr && late->is(Phase::formed)) {
    run->turns.distrust(message.fragment);
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

void Core::State::on_engine(const ExchangeDone& event) {
  RoundInHand* round = run->rounds.exchanging(event.round, event.attempt);
  if (round == nullptr) {
    return;
  }
  round->finish_exchange(Exchanged{run->terms.id, run->members.epoch(), event.round, event.attempt, event.digest, event.bytes_sent,
                                   event.bytes_received, event.seconds, event.slowest, event.arrived_seconds});
  run->rounds.count(event);
  if (!run->terms.islands_commit(event.round)) {
    say(*round);
    return;
  }
  round->set_checkpoint(checkpoint_due(event.round, run->terms.last_trained(), run->terms.spec.checkpoint.every_rounds));
  if (run->terms.gossips()) {
    note_met(*round, event);
  }
  if (run->life.pause_after() && !run->life.standing() && event.round >= *run->life.pause_after()) {
    stand_after(event.round);
  }
  if (!run->life.standing() || event.round <= *run->life.stands_after()) {
    run->rounds.apply(event.round);  // else it is held: it is of after the pause
  }
}

void Core::State::on_engine(const ExchangeBroke& event) {
  RoundInHand* round = run->rounds.exchanging(event.round, event.attempt);
  if (round == nullptr) {
    return;
  }
  if (run->terms.islands_commit(event.round)) {
    give_up(with_context(event.error, "round " + std::to_string(event.round.value)));
    return;
  }
  round->fail(ExchangeFailed{run->terms.id, run->members.epoch(), event.round, event.attempt, event.accused, event.error, event.missing});
  say(*round);
}

void Core::State::on_abort(const Abort& message) {
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

void Core::State::on_commit(const Commit& message) {
  advance_epoch(message.epoch);
  run->trainer.hear_tokens(message.tokens);
  if (message.round == Round(0)) {
    if (run->outer.initial() && !run->outer.held() && *run->outer.initial() == message.digest) {
      run->word = {session.identity().generation, run->members.epoch()};
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
    run->word = {session.identity().generation, run->members.epoch()};
    run->rounds.apply(message.round, lies_behind(*round));
    return;
  }
  if (!round->is(Phase::applying) && run->life.active() && message.epoch == run->members.epoch() && message.attempt >= round->attempt()) {
    miss_commit(message.round);
  }
}

// The others went on with a result that this island does not hold.
void Core::State::miss_commit(Round round) {
  const std::string why = "this island does not hold the result of round " + std::to_string(round.value);
  if (run->terms.gossips()) {
    lose_state(why);
    return;
  }
  send(run->outer.report(run->members.epoch(), Error{Code::conflict, why}));
  run->life.put_out();  // until it has caught up
}

void Core::State::on_engine(const ResultApplied& event) {
  if (!run->rounds.is(event.round, Phase::applying)) {
    return;
  }
  if (event.error) {
    give_up(with_context(*event.error, "the outer step of round " + std::to_string(event.round.value)));
    return;
  }
  const bool due = checkpoint_due(event.round, run->terms.last(), run->terms.spec.checkpoint.every_rounds);
  const bool checkpoint = due || run->rounds.find(event.round)->checkpoint();
  const RoundInHand round = run->rounds.take_applied(event.round, checkpoint);
  // Where rounds close with a quorum, what did not count is counted with the island's next contribution that does.
  const bool counts = !run->terms.closes_with_quorum() || round.counts();
  run->outer.advance(event.round, round.exchanged().digest, counts ? round.ready().data.to : 0);
  run->trainer.note_progress();
  if (run->terms.gossips()) {
    run->rounds.note_projection(event.round, event.projection);
    prepare_pair();
  }
  if (checkpoint && !run->terms.lockstep()) {
    effect(BeginCheckpoint{run->terms.id, event.round, run->outer.digest()});  // in lockstep the outer state comes with the merge
  }
  if (run->terms.closes_with_quorum()) {
    go_on_after(round, event);
    return;
  }
  if (run->terms.composition.whole_period() && run->trainer.training()) {
    return;  // it gets the result once it has published for the next round (hand_over)
  }
  if (run->trainer.give(event.round, round.fragment())) {
    return;
  }
  if (!run->terms.lockstep()) {
    // Its trainer ended meanwhile. The next one is loaded with the outer parameters.
    merged(event.round, false);
  } else {
    // The parameters of this round would have come from an optimiser's step that only the trainer could take.
    lose_state("the trainer ended before it took the step of round " + std::to_string(event.round.value));
  }
}

// Where the exchange takes a whole period: the trainer gets a result once it has published for the next round of the fragment, or if it
// will not. Called after everything that happens.
void Core::State::hand_over() {
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

void Core::State::on_engine(const HandedOver& event) {
  if (run->rounds.find_merging(event.round) == nullptr) {
    return;  // its trainer ended meanwhile
  }
  if (event.error) {
    give_up(with_context(*event.error, "what the trainer goes on from after round " + std::to_string(event.round.value)));
  } else if (!run->trainer.give(event.round, event.fragment)) {
    merged(event.round, false);
  }
}

void Core::State::on_trainer(const TrainerMerged& event) {
  if (!run->trainer.training() || event.round > run->outer.committed()) {
    return;
  }
  run->trainer.on(event);
  if (run->terms.closes_with_quorum() &&
      !run->turns.merged(event.fragment, event.round, event.step, event.position, run->trainer.tokens())) {
    return;
  }
  Merged said = run->rounds.describe(event);
  said.metrics = run->trainer.take_metrics();
  send(std::move(said));
  if (!event.save_error.empty()) {
    tell("warning", "trainer_state_not_saved",
         "the trainer could not save its state at round " + std::to_string(event.round.value) + ": " + event.save_error);
  }
  if (run->rounds.find_merging(event.round) == nullptr) {
    return;
  }
  if (run->terms.lockstep()) {
    run->rounds.adopt(event.round, event.saved);
  } else {
    merged(event.round, event.saved);
  }
}

void Core::State::on_engine(const ParametersAdopted& event) {
  const Merging* merging = run->rounds.find_merging(event.round);
  if (merging == nullptr || !merging->adopting) {
    return;
  }
  if (event.error) {
    lose_state(with_context(*event.error, "the parameters after round " + std::to_string(event.round.value)).why);
    return;
  }
  merged(event.round, merging->saved);
}

// The trainer has taken a round's result, or will not any more.
void Core::State::merged(Round round, bool saved) {
  const Merging merging = run->rounds.take_merging(round);
  if (merging.checkpoint) {
    for (const Merging& older : run->rounds.overtaken(round)) {  // in their order: the newest ones are kept
      finish_checkpoint(older.round, older.digest, false);
    }
    finish_checkpoint(round, merging.digest, saved);
  }
  const CommittedState& outer = run->outer;
  if (run->terms.lockstep() && outer.held() && run->checkpoints.offered() && !run->checkpoints.writing() &&
      !run->checkpoints.serves(outer.committed(), outer.digest(), false)) {
    write_checkpoint();  // it was offered while the step was under way
  }
  finish_if_done();
  finish_leaving();
}

// Rounds in hand lead nowhere any more.
void Core::State::drop_rounds() {
  const bool step_lost = run->rounds.awaits_step();
  run->rounds.drop();
  run->turns.stop();
  run->trainer.drop_orders();
  run->trainer.forget_hurry();
  if (step_lost) {
    run->outer.drop();  // the parameters after the newest round would have come from the trainer
  }
  departure.contributed();
  forget_stand();
}

}  // namespace atl::agent
