// The attempts of a round: what islands say of one, what it came to, and when the next one may begin.
#include <algorithm>

#include "coordinator/core/core_state.hpp"
#include "coordinator/core/rules/round_rule.hpp"
#include "transport/base/planted.hpp"

namespace atl::coordinator {

void RoundRule::hear(Run& run, Membership& membership, const Exchanged& message) {
  if (islands_commit(run, message.round)) {
    note_bytes(membership, message);
    return;
  }
  if (!run.lineage.initialised()) {
    return;
  }
  if (message.round <= run.lineage.committed()) {
    answer_committed(run, membership, message.round, message.digest);
    return;
  }
  if (!ATOLL_PLANTED(stale_attempt) && !current(run, membership, message.epoch)) {
    return;
  }
  OpenRound* round = run.rounds().find(message.round);
  if (round == nullptr) {
    return;
  }
  const OpenRound::Report report = round->exchanged(membership.record.island, message, now());
  if (report == OpenRound::Report::stale) {
    send(membership.record.island, Abort{run.about.id, run.epoch, message.round, message.attempt, "the attempt was given up"});
  } else if (report == OpenRound::Report::counted) {
    note_bytes(membership, message);
    touch(run);
  }
}

// What the round's exchange moved, for the metrics of it.
void RoundRule::note_bytes(Membership& membership, const Exchanged& message) const {
  if (const auto found = membership.progress.unmerged.find(message.round); found != membership.progress.unmerged.end()) {
    found->second.bytes_sent = message.bytes_sent;
    found->second.bytes_received = message.bytes_received;
  }
}

void RoundRule::hear(Run& run, Membership& membership, const ExchangeFailed& message) {
  if (islands_commit(run, message.round) || message.round <= run.lineage.committed() || !current(run, membership, message.epoch)) {
    return;
  }
  OpenRound* round = run.rounds().find(message.round);
  const std::string text = islands_.name_of(membership.record.island) + ": " + bounded(message.error.why, 512);
  if (round == nullptr || round->failed(membership.record.island, message, text, now()) == OpenRound::Report::stale) {
    send(membership.record.island, Abort{run.about.id, run.epoch, message.round, message.attempt, "the attempt was given up"});
    return;
  }
  if (message.accused == membership.record.island) {
    closing_.on_own_fault(*round, membership.record.island);
  }
  touch(run);
}

void RoundRule::advance_exchanging(Run& run, Round number) {
  OpenRound& round = run.rounds().at(number);
  send_exchange(run, number, round.silent_and_due(out_), true);
  if (!round.recovered()) {
    wake_at(round.next_resend());
  }
  AttemptInput input;
  round.describe(input);
  input.now = now();
  input.round = number;
  input.grace = settings_.accusation_grace;
  input.limit = std::max<Duration>(run.spec.islands.deadline, std::chrono::minutes(1));
  for (AttemptMember& member : input.members) {
    member.name = islands_.name_of(member.island);
  }
  const AttemptDecision decision = decide_attempt(input);
  wait_for(run, decision.wait);
  if (decision.kind == AttemptDecision::Kind::retry) {
    const std::string why = round.blame(decision, now());
    const OpenRound::Failures failures = *round.failures_among(round.plan().members);
    for (const auto& [reader, senders] : round.missing()) {
      for (const IslandId& from : senders) {
        if (from != reader && round.exchanges(from)) {
          // Who misses a contribution tries the path at once, and may have told already that it passes again.
          const bool passes = core_.data_paths.paths().passed_since(reader, from, now() - settings_.accusation_grace);
          core_.data_paths.note_broken(reader, from, "in round " + std::to_string(number.value) + " nothing of its contribution came");
          if (passes) {
            core_.data_paths.note_whole(reader, from);
          }
        }
      }
    }
    abort(run, number, why);
    stand(run, number, failures.why);
    if (failures.own_fault >= kMostOwnFailures) {
      fail_round(run, number, failures);
      return;
    }
    leave_out_differing(run, number, decision, why);
  } else if (decision.kind == AttemptDecision::Kind::commit && number == run.lineage.next()) {
    commit(run, number, decision.digest);
    leave_out_differing(run, number, decision, decision.why);
  }
}

// Whose result is another one catches up from the others. Whose doing that is counts as an offence, where it can be told.
void RoundRule::leave_out_differing(Run& run, Round number, const AttemptDecision& decision, const std::string& why) {
  std::vector<Offence> offences = decision.offences;
  for (const Dispute& dispute : decision.disputes) {
    const std::vector<IslandId> named = run.guards.dispute(dispute, number, decision.accusers_needed);
    for (const IslandId& id : named) {
      offences.push_back(
          {id, "it did not agree with several islands on what was given to rounds, last to round " + std::to_string(number.value)});
    }
    const std::string giver = islands_.name_of(dispute.giver);
    const std::string reader = islands_.name_of(dispute.reader);
    event(run.about.id, dispute.reader, "warning", "result_disputed",
          "what " + giver + " gave to round " + std::to_string(number.value) + " is another at " + reader + " than at " + giver +
              ": either " + giver + " gives one thing to some and another to others, or what " + reader + " holds or says is wrong. " +
              (named.empty() ? "Which of them it is cannot be told: neither is kept out for it" +
                                   (!decision.accusers_needed ? std::string()
                                    : dispute.trusted.empty() ? ", and both sum nothing for the others for a while"
                                                              : ", and the one that is at odds with more sums nothing for a while")
                             : "By what happened before it is " + list_of(islands_.names_of(named))),
          {Field{"round", static_cast<std::int64_t>(number.value)}});
  }
  const auto why_of = [&](const IslandId& id) {
    const auto found = std::ranges::find(offences, id, &Offence::island);
    return found == offences.end() ? why : found->why;
  };
  for (const IslandId& id : decision.left_out) {
    core_.leave_epoch(run, id, why_of(id), true);
  }
  for (const Offence& offence : offences) {
    if (run.is_member(offence.island)) {
      core_.leave_epoch(run, offence.island, offence.why, true);
    }
    core_.offend(run, offence.island, offence.why);
  }
}

// The same members fail again and again, and no path and no peer is to blame: to go on would change nothing.
void RoundRule::fail_round(Run& run, Round number, const OpenRound::Failures& failures) {
  const std::vector<std::string> names = islands_.names_of(run.rounds().at(number).plan().members);
  const std::string reason = "round " + std::to_string(number.value) + " failed in " + std::to_string(failures.own_fault) +
                             " attempts in a row of " + list_of(names) + ": " + failures.why + "; the log of the agent there says more";
  core_.end_run(run, RunState::failed, reason, Error{Code::internal, reason});
}

// The round's members cannot exchange it. Rounds after the next one cannot be over before it.
void RoundRule::stand(Run& run, Round number, const std::string& why) {
  if (run.lineage.initialised() && number != run.lineage.next()) {
    return;
  }
  std::optional<Stand>& stand = run.in_rounds().stand;
  const std::string what =
      run.lineage.initialised() ? "round " + std::to_string(number.value) + " cannot be exchanged: " : "the run cannot begin: ";
  stand = Stand{stand ? stand->since : now(), what + why};
  if (const TimePoint told = stand->since + settings_.stands_after; now() < told) {
    wake_at(told);
  }
}

// Why the run stands, once it has for long; empty: it does not.
std::string RoundRule::why_it_stands(const Run& run) const {
  if (!run.in_rounds().stand || now() < run.in_rounds().stand->since + settings_.stands_after) {
    return "";
  }
  return run.in_rounds().stand->why;
}

// The next attempt among members that have failed waits a while, longer each time.
std::optional<Wait> RoundRule::pause_before(const Run& run, Round number, const std::vector<IslandId>& participants) const {
  const OpenRound::Failures* failures = run.rounds().find(number)->failures_among(participants);
  const TimePoint until = failures == nullptr ? now() : failures->newest + decide_pause(failures->attempts);
  if (now() >= until) {
    return std::nullopt;
  }
  return Wait{"round " + std::to_string(number.value) + " failed " + std::to_string(failures->attempts) + " times among " +
                  list_of(islands_.names_of(participants)) + ", and waits before the next attempt: " + failures->why,
              until};
}

void RoundRule::abort(Run& run, Round number, const std::string& why) {
  OpenRound& round = run.rounds().at(number);
  round.give_up();
  RoundRecord given_up = record_of(run, number, round);
  given_up.members.clear();
  given_up.contributions.clear();
  record(std::move(given_up));
  event(run.about.id, {}, "warning", "round_retried",
        "round " + std::to_string(number.value) + " of run " + run.about.name + " is tried again: " + why,
        {Field{"round", static_cast<std::int64_t>(number.value)}, Field{"attempt", static_cast<std::int64_t>(round.attempt().value)}});
  for (const IslandId& id : round.plan().members) {
    send(id, Abort{run.about.id, run.epoch, number, round.attempt(), why});
  }
  touch(run);
}

}  // namespace atl::coordinator
