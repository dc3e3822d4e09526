// What the coordinator says, and what the island does about it.
#include <algorithm>

#include "agent/core/core_state.hpp"
#include "strategies/composition.hpp"
#include "transport/base/planted.hpp"

namespace atl::agent {
void Core::State::on_message(const Message& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    on_welcome(*welcome);
  } else if (const auto* refused = std::get_if<Refused>(&message)) {
    on_refused(*refused);
  } else if (const auto* invite = std::get_if<Invite>(&message)) {
    on_invite(*invite);
  } else if (const auto* serve = std::get_if<Serve>(&message)) {
    on_serve(*serve);
  } else if (const auto* ordered = std::get_if<Assignment>(&message)) {
    on_assignment(*ordered);
  } else if (const auto* release = std::get_if<Release>(&message)) {
    on_release(*release);
  } else if (const auto* drain = std::get_if<Drain>(&message)) {
    begin_leaving(drain->why);
  } else {
    std::visit(
        [&](const auto& m) {
          using M = std::decay_t<decltype(m)>;
          constexpr bool order = std::is_same_v<M, NewEpoch> || std::is_same_v<M, Exchange> || std::is_same_v<M, Commit> ||
                                 std::is_same_v<M, Abort> || std::is_same_v<M, Offer> || std::is_same_v<M, CatchUp> ||
                                 std::is_same_v<M, Cut> || std::is_same_v<M, PairQuery> || std::is_same_v<M, PairAnswer>;
          if constexpr (order) {
            if (!run || run->terms.id != m.run || run->life.ended()) {
              return;
            }
            if constexpr (requires { m.epoch; } && !std::is_same_v<M, PairQuery> && !std::is_same_v<M, PairAnswer>) {
              if (m.epoch < run->members.epoch()) {
                return;  // of an older membership
              }
            }
            if constexpr (std::is_same_v<M, NewEpoch>) {
              on_new_epoch(m);
            } else if constexpr (std::is_same_v<M, Exchange>) {
              on_exchange(m);
            } else if constexpr (std::is_same_v<M, Commit>) {
              on_commit(m);
            } else if constexpr (std::is_same_v<M, Abort>) {
              on_abort(m);
            } else if constexpr (std::is_same_v<M, Offer>) {
              on_offer(m);
            } else if constexpr (std::is_same_v<M, Cut>) {
              on_cut(m);
            } else if constexpr (std::is_same_v<M, CatchUp>) {
              on_catch_up(m);
            } else if constexpr (std::is_same_v<M, PairQuery>) {
              on_pair_query(m);
            } else if constexpr (std::is_same_v<M, PairAnswer>) {
              on_pair_answer(m);
            }
          }
        },
        message);
  }
}

void Core::State::on_welcome(const Welcome& message) {
  if (session.welcome(message)) {
    beat();
    say_all();
  }
}

void Core::State::on_refused(const Refused& message) {
  session.reset();
  if (departure.released()) {
    return;
  }
  if (worth_retrying(message.error.code)) {
    say_hello();
    return;
  }
  close_run("the coordinator refused this island: " + message.error.why);
  close_tasks("the coordinator refused this island: " + message.error.why);
  exit(message.error);
}

void Core::State::on_invite(const Invite& message) {
  if (run && run->terms.id == message.run) {
    on_invite_again(message);
    return;
  }
  if (past.was_over(message.run, message.epoch)) {
    return;
  }
  if (departure.asked()) {
    send(Leave{departure.why()});
    return;
  }
  close_run("the coordinator assigned another run");
  Result<RunSpec> spec = run_spec_from_json(message.spec);
  if (tasks && !(spec && spec->work.run == tasks->run().text)) {
    close_tasks("the coordinator assigned another run");
  }
  Result<Composition> composition = spec ? compose(spec->strategy) : Result<Composition>(spec.error());
  if (!composition) {
    send(RunEnded{message.run, Round(0), Digest{}, with_context(composition.error(), "the run's settings")});
    return;
  }
  open_run(message, RunTerms(message.run, std::move(*spec), *composition));
}

void Core::State::open_run(const Invite& message, RunTerms terms) {
  run.emplace(std::move(terms), message, settings, starts, out);
  effect(OpenRun{run->terms.id, run->terms.spec});
  run->members.announce();
  switch (message.from) {
    case StartFrom::scratch:
      run->life.enter();
      start_trainer();
      break;
    case StartFrom::checkpoint:
      restore(message);
      break;
    case StartFrom::memory:
      join();
      run->outer.miss(run->members.epoch(), message.committed, Error{Code::unavailable, "this island has the run's state no more"});
      say_all();
      break;
    case StartFrom::peers:
      join();
      break;
  }
  beat();
}

// The same run again: a repeated order, or a new place in it.
void Core::State::on_invite_again(const Invite& message) {
  if (message.epoch < run->members.epoch() || run->life.ended()) {
    return;
  }
  const bool newer = message.epoch > run->members.epoch();
  if (run->life.standing() && !run->terms.own_states()) {
    go_on_after_pause();  // nobody is assigned while a run is being paused: it was paused meanwhile, and is resumed
  }
  switch (message.from) {
    case StartFrom::scratch:
      if (run->terms.in_groups() ? !run->outer.held() && run->outer.from() != StartFrom::scratch
                                 : !run->terms.alone() && (run->outer.held() || run->outer.from() != StartFrom::scratch)) {
        // Every copy of the run's state is gone: it starts over, and what is here is of rounds that were given up, or of none.
        Invite again = message;
        const RunTerms terms = run->terms;
        close_run("the run starts over");
        open_run(again, terms);
        return;
      }
      use_epoch(message.epoch, message.members);
      if (!run->outer.held() && (newer || !run->life.active())) {
        run->outer.begin_anew();
        run->life.enter();
        take_part(message);
        say_all();
      }
      break;
    case StartFrom::memory:
      use_epoch(message.epoch, message.members);
      if (run->terms.in_groups() && run->outer.catching_up()) {
        break;  // an older order: it takes over another's state
      }
      if (run->outer.held() && (run->terms.own_states() || run->outer.committed() == message.committed)) {
        take_part(message);
      }
      if (run->terms.in_groups() && run->outer.held() && run->outer.committed() > std::max(run->terms.last_trained(), message.committed)) {
        lose_state("what this island has is of a merge that was given up");
      } else if (run->terms.own_states() ? run->outer.held() : run->outer.is(message.committed, message.digest)) {
        become_active();
      } else if (!run->terms.own_states()) {
        send(run->outer.report(run->members.epoch(), Error{Code::conflict, "this island's state is not that of round " +
                                                                               std::to_string(message.committed.value)}));
      }
      break;
    case StartFrom::checkpoint:
      if (!run->life.active() || newer) {
        use_epoch(message.epoch, message.members);
      }
      if (run->terms.own_states() && run->life.active()) {
        break;  // repeated: it has gone on from there
      }
      if ((!run->life.active() || newer) && !run->outer.restoring() &&
          !(run->outer.said() && run->outer.said()->round == message.committed && !run->outer.said()->error)) {
        take_part(message);
        restore(message);
      }
      break;
    case StartFrom::peers:
      if (!run->life.active() || newer) {
        use_epoch(message.epoch, message.members);
        take_part(message);
        join();
      }
      break;
  }
  own_up();
}

// In pairs: the coordinator counts on this island, which has not heard that it is let in, or has not the state for it.
void Core::State::own_up() {
  const bool member = run->members.includes(island());
  if (!run->terms.in_groups() || !member || run->outer.coming()) {
    return;
  }
  if (run->outer.held() && !run->life.active()) {
    become_active();
  } else if (!run->outer.held() && !run->outer.said() && !(run->life.active() && run->outer.from() == StartFrom::scratch)) {
    lose_state("this island has the run's state no more");
  }
}

// Its part of the data, and how far that is committed. On another part than before the trainer starts anew; what it has formed is of the
// old one.
void Core::State::take_part(const Invite& message) {
  const bool same = !run->members.take_part(message.part, message.parts);
  run->outer.set_assigned(message.position);
  // The position is that after the assigned round: it holds once that round's state is here. An island with rounds of its own knows best
  // what it trained on.
  const bool there = run->outer.is(message.committed, message.digest);
  if (run->terms.own_states() ? message.from == StartFrom::peers : there || !same || !run->outer.held()) {
    run->outer.set_counted(message.position);
  }
  if (same) {
    // A contribution that was counted without this island's hearing of it would be refused again and again.
    const bool counted = std::any_of(run->rounds.begin(), run->rounds.end(), [&](const auto& item) {
      const DataRange& data = item.second.ready.data;
      return data.sequences() > 0 && data.part == run->members.part() && data.from < run->outer.counted() &&
             item.second.phase != RoundInHand::Phase::applying;
    });
    if (!run->terms.own_states() && counted) {
      drop_rounds();
    }
    return;
  }
  drop_rounds();
  if (run->trainer.runs()) {
    start_trainer();
  }
}

// The first sequence of its part that no contribution in hand holds.
std::uint64_t Core::State::published() const {
  return run->rounds.empty() ? run->outer.counted() : run->rounds.rbegin()->second.ready.data.to;
}

// Not active any more, or not yet: it needs the state that the others have. What it has in memory stays.
void Core::State::join() {
  run->outer.join(run->life.active());
  run->life.put_out();
  if (!run->trainer.runs() && !run->trainer.restart_at()) {
    start_trainer();
  }
}

void Core::State::restore(const Invite& message) {
  run->life.put_out();
  drop_rounds();
  run->outer.restore(message.committed);
  effect(LoadCheckpoint{run->terms.id, message.committed, message.digest});
}

void Core::State::use_epoch(Epoch epoch, const std::vector<Member>& members) {
  if (run->members.use(epoch, members)) {
    leave_pairs();
    prepare_pair();
  }
}

void Core::State::on_new_epoch(const NewEpoch& message) {
  const bool newer = message.epoch > run->members.epoch();
  run->life.heed(message.pause_after);
  use_epoch(message.epoch, message.members);
  const bool member = std::any_of(message.members.begin(), message.members.end(), [&](const Member& m) { return m.island == island(); });
  if (run->terms.alone()) {
    heed_pause(message);
    return;  // nobody waits for anybody
  }
  if (!member) {
    run->life.put_out();
    if (run->terms.in_groups() && !message.members.empty()) {
      drop_rounds();  // what it decided with others may be void: it comes back with the state of one of them
      run->outer.drop();
      run->outer.unsay();
    } else if (run->terms.in_groups() && run->outer.held()) {
      run->outer.say(run->members.epoch());  // nobody is left: it goes on from where it is
    }
    return;
  }
  own_up();
  heed_pause(message);
  if (!run->life.active() && run->outer.held() && !run->outer.coming()) {
    const auto held = run->rounds.find(message.committed);
    const bool result_held = held != run->rounds.end() && held->second.phase == RoundInHand::Phase::exchanged;
    if (run->terms.own_states() || run->outer.committed() >= message.committed || result_held) {
      become_active();
    } else {
      send(run->outer.report(run->members.epoch(),
                             Error{Code::conflict, "this island has the state of round " + std::to_string(run->outer.committed().value) +
                                                       ", not of round " + std::to_string(message.committed.value)}));
    }
    return;
  }
  if (newer) {
    say_all();
  }
}

void Core::State::heed_pause(const NewEpoch& message) {
  if (!message.pause_after) {
    run->life.note_unpaused(message.epoch);
  }
  end_pause();
  pause_own_rounds();
}

// It takes part in a later epoch: the pause is over, though nobody told. What it was doing is finished first.
void Core::State::end_pause() {
  if (run && run->life.pause_is_over() && run->outer.committed() >= *run->life.stands_after() && !settling()) {
    go_on_after_pause();
  }
}

void Core::State::become_active() {
  if (!run->life.active()) {
    run->life.enter();
    run->outer.unsay();
    prepare_pair();
    finish_if_done();
  }
  say_all();
}

void Core::State::on_exchange(const Exchange& message) {
  if (message.round <= run->outer.committed()) {
    if (message.round == run->outer.committed()) {
      send(Exchanged{run->terms.id, run->members.epoch(), message.round, message.attempt, run->outer.digest(), 0, 0, 0, {}, 0});
    }
    return;
  }
  if (!run->life.active() || message.epoch > run->members.epoch() || message.tokens.size() != message.members.size()) {
    say_all();  // the answer to that brings the membership it belongs to
    return;
  }
  const auto refuse = [&](const std::string& why) {
    send(ExchangeFailed{run->terms.id, run->members.epoch(), message.round, message.attempt, island(), Error{Code::unavailable, why}});
  };
  const auto found = run->rounds.find(message.round);
  if (found == run->rounds.end() || found->second.phase == RoundInHand::Phase::forming) {
    refuse("this island has no contribution to round " + std::to_string(message.round.value));
    return;
  }
  RoundInHand& round = found->second;
  if (message.attempt <= round.attempt || round.phase == RoundInHand::Phase::applying) {
    return;  // begun already, or given up
  }
  std::vector<Member> members;
  for (const IslandId& island : message.members) {
    const Member* member = run->members.find(island);
    if (member == nullptr) {
      refuse("this island does not know a member of the exchange");
      return;
    }
    const bool counts = message.tokens[members.size()] > 0;
    if (island == session.island() && counts && round.withdrawn) {
      refuse("this island withdrew its contribution to round " + std::to_string(message.round.value));
      return;
    }
    members.push_back(*member);
  }
  round.attempt = message.attempt;
  round.phase = RoundInHand::Phase::exchanging;
  effect(BeginExchange{run->terms.id, run->members.epoch(), message.round, message.attempt, round.fragment, std::move(members),
                       message.tokens, session.stall_after()});
}

void Core::State::on_commit(const Commit& message) {
  use_epoch(message.epoch, run->members.members());
  if (message.round == Round(0)) {
    if (run->outer.initial() && !run->outer.held() && *run->outer.initial() == message.digest) {
      agree_on_initial(message.digest);
    }
    return;
  }
  if (!run->outer.held() || message.round != run->outer.committed().next()) {
    return;
  }
  const auto found = run->rounds.find(message.round);
  if (found == run->rounds.end()) {
    return;
  }
  RoundInHand& round = found->second;
  if (round.phase == RoundInHand::Phase::exchanged && round.attempt == message.attempt &&
      (round.exchanged.digest == message.digest || ATOLL_PLANTED(digest_unchecked))) {
    round.checkpoint = message.checkpoint;
    const bool last = message.pause || departure.asked();
    if (message.pause) {
      run->life.stand(message.round, message.epoch);
    }
    if (last) {
      run->trainer.finish(message.round, false);
    }
    apply(message.round);
    return;
  }
  if (round.phase != RoundInHand::Phase::applying && run->life.active() && message.epoch == run->members.epoch() &&
      message.attempt >= round.attempt) {
    // The others went on with a result that it does not hold.
    if (run->terms.in_groups()) {
      lose_state("this island does not hold the result of round " + std::to_string(message.round.value));
      return;
    }
    send(run->outer.report(run->members.epoch(),
                           Error{Code::conflict, "this island does not hold the result of round " + std::to_string(message.round.value)}));
    run->life.put_out();  // until it has caught up
  }
}

void Core::State::on_abort(const Abort& message) {
  const auto found = run->rounds.find(message.round);
  if (found == run->rounds.end() || found->second.attempt != message.attempt) {
    return;
  }
  RoundInHand& round = found->second;
  using Phase = RoundInHand::Phase;
  if (round.phase == Phase::exchanging || round.phase == Phase::exchanged || round.phase == Phase::failed) {
    effect(CancelExchange{run->terms.id, message.round, message.attempt});
    round.phase = round.withdrawn ? Phase::withdrawn : Phase::formed;
    say(round);
  }
}

void Core::State::on_offer(const Offer& message) {
  if (!message.offering) {
    if (run->checkpoints.end_offer()) {
      run->members.forget_readers();
    }
    return;
  }
  if (!run->life.active() || !run->outer.held()) {
    return;
  }
  const bool applying = std::any_of(run->rounds.begin(), run->rounds.end(),
                                    [](const auto& round) { return round.second.phase == RoundInHand::Phase::applying; });
  run->checkpoints.offer(applying ? run->outer.committed().next() : run->outer.committed(), now);
  // For a pause: it could not be written, or nobody heard; or this island came in after the commit that said so.
  const std::optional<Round> paused_at = run->life.stands_after()                              ? run->life.stands_after()
                                         : run->life.pause_after() && !run->terms.own_states() ? std::optional(run->outer.committed())
                                                                                               : std::nullopt;
  const bool wanted = paused_at && (!run->checkpoints.newest() || run->checkpoints.newest()->round < *paused_at);
  if (run->checkpoints.serves(run->outer.committed(), run->outer.digest(), wanted)) {
    run->checkpoints.tell(now);
  } else if (const auto merging = run->merging.find(run->outer.committed());
             !applying && !run->checkpoints.writing() &&
             (merging == run->merging.end() || (!merging->second.checkpoint && !run->terms.lockstep()))) {
    write_checkpoint();
  }
}

void Core::State::on_catch_up(const CatchUp& message) {
  if (run->life.active() || run->outer.restoring()) {
    return;
  }
  if (!run->terms.own_states() && message.part != run->members.part()) {
    return;  // the order that gives it this part is on its way; this one comes again
  }
  use_epoch(message.epoch, run->members.members());
  if (!run->outer.catching_up() && run->outer.is(message.committed, message.digest)) {
    if (!run->terms.own_states()) {
      run->outer.set_counted(message.position);
    }
    run->outer.say(run->members.epoch());
    send(*run->outer.said());
    return;
  }
  if (!run->outer.needs(message)) {
    return;
  }
  drop_rounds();
  run->outer.catch_up(message);
  effect(CatchUpFromPeers{message, run->outer.held() && !run->terms.own_states(), run->outer.committed(), run->outer.digest()});
}

void Core::State::on_cut(const Cut& message) {
  if (run->life.active() && message.round > run->outer.committed() && run->rounds.count(message.round) == 0) {
    run->trainer.hurry(message.round, run->outer.committed());
  }
}

// Rounds in hand lead nowhere any more.
void Core::State::drop_rounds() {
  for (const auto& [number, round] : run->rounds) {
    if (round.phase == RoundInHand::Phase::exchanging || round.phase == RoundInHand::Phase::exchanged ||
        round.phase == RoundInHand::Phase::failed) {
      effect(CancelExchange{run->terms.id, number, round.attempt});
    }
  }
  run->rounds.clear();
  run->resuming = false;
  run->trainer.drop_orders();
  if (run->terms.lockstep() && !run->merging.empty()) {
    run->outer.drop();  // the parameters after the newest round would have come from the trainer
  }
  run->merging.clear();
  run->trainer.forget_hurry();
  departure.contributed();
  forget_stand();
}

void Core::State::on_serve(const Serve& message) {
  if (run && run->terms.id == message.run) {
    if (message.allowed) {
      run->checkpoints.keep_for_reader(message.round, now);
    }
    run->members.heed(message);
  } else if (tasks && tasks->run() == message.run) {
    tasks->heed(message);
  } else if (std::optional<AllowPeers> allowed = stored.heed(message)) {
    effect(std::move(*allowed));
  }
}

void Core::State::on_release(const Release& message) {
  const auto is_late = [&](Epoch told) { return message.epoch != Epoch(0) && message.epoch < told; };
  if (tasks && tasks->run() == message.run) {
    if (is_late(tasks->epoch())) {
      return;
    }
    close_tasks(message.why);
    if (departure.asked()) {
      exit(std::nullopt);
    }
    return;
  }
  if (!run || run->terms.id != message.run || is_late(run->members.epoch())) {
    return;
  }
  if (departure.asked() && settling()) {
    departure.release();
    return;
  }
  close_run(message.why);
  if (departure.asked()) {
    exit(std::nullopt);
  }
}

}  // namespace atl::agent
