// What the sync engine does for rounds that two islands, or the few of a group, take together.
#include <algorithm>
#include <limits>

#include "agent/engine/sync_engine_state.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace {

constexpr Duration kDoubtAfter = std::chrono::seconds(2);     // a verdict comes within two round trips
constexpr Duration kSilent = std::chrono::milliseconds(900);  // a partner from which nothing comes is watched: its path may come and go

}  // namespace

void SyncEngine::State::carry_out(const PreparePair& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr || !open->run->layout() || order.fragment >= open->run->layout()->fragments().size()) {
    return;
  }
  const auto held = open->pairs.find(order.round);
  if (held != open->pairs.end() && (held->second.order || (held->second.exchange && held->second.exchange->plan().epoch >= order.epoch))) {
    return;  // it is met already, with a partner or alone
  }
  Result<Payload> parameters = open->run->encode_parameters(order.fragment);
  if (!parameters) {
    log_warning("run " + order.run.text + ": " + round_text(order.round) +
                ": the outer parameters cannot be sent: " + parameters.error().why);
    return;
  }
  const Composition& composition = open->run->composition();
  PairPlan plan{order.run,
                order.epoch,
                order.round,
                settings.self,
                order.group,
                open->run->layout()->fragments()[order.fragment].count,
                composition.codec,
                composition.parameters_codec,
                order.patient ? std::numeric_limits<std::uint64_t>::max() : composition.max_skew,
                composition.packing == Packing::zstd};
  PairRound pair;
  meet(order.run, order.group);
  pair.served_before = link->store().bytes_served(order.run);
  pair.exchange = std::make_unique<PairExchange>(std::move(plan), *std::move(parameters), link->store(), now(), wants);
  open->pairs.insert_or_assign(order.round, std::move(pair));
}

void SyncEngine::State::carry_out(const MeetPartner& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  const Contribution* contribution = open->run->contribution(order.round);
  if (!order.withdrawn && (contribution == nullptr || contribution->facts.fragment != order.fragment)) {
    say(ExchangeBroke{
        order.run, order.round, order.attempt, {}, {Code::conflict, "this island has no contribution to " + round_text(order.round)}});
    return;
  }
  if (order.group.size() < 2) {
    open->pairs.erase(order.round);
  } else {
    carry_out(PreparePair{order.run, order.epoch, order.round, order.fragment, order.group, order.patient});
  }
  PairRound& pair = open->pairs[order.round];
  if (pair.order) {
    return;  // a repeated order
  }
  pair.order = order;
  pair.met_at = now();
  if (pair.exchange && order.withdrawn) {
    pair.exchange->withdraw(now());
  } else if (pair.exchange) {
    pair.exchange->arrive(contribution->encoded, now(), order.deadline, order.guard);
  }
}

void SyncEngine::State::carry_out(const LeavePairs& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  for (auto pair = open->pairs.begin(); pair != open->pairs.end();) {
    PairExchange* exchange = pair->second.exchange.get();
    if (exchange == nullptr || exchange->plan().epoch >= order.epoch || exchange->outcome()) {
      ++pair;
      continue;
    }
    const auto gone = [&](const IslandId& island) {
      return std::find(order.members.begin(), order.members.end(), island) == order.members.end();
    };
    const std::vector<IslandId>& group = exchange->plan().group;
    exchange->change_epoch(order.epoch, order.members,
                           std::any_of(group.begin(), group.end(), gone) ? "the partner left the run" : "the membership changed");
    pair = pair->second.order ? std::next(pair) : open->pairs.erase(pair);
  }
}

void SyncEngine::State::carry_out(const HearOfPair& order) {
  if (PairExchange* exchange = exchange_of(order.run, order.epoch, order.round)) {
    exchange->hear(order.from, order.asked_in, order.word);
  }
}

void SyncEngine::State::carry_out(const RenouncePair& order) {
  PairExchange* exchange = exchange_of(order.run, order.epoch, order.round);
  if (exchange != nullptr && exchange->renounce(order.asked_in)) {
    say(PairRenounced{order.run, order.epoch, order.round, order.asker, order.asked_in});
  }
}

PairExchange* SyncEngine::State::exchange_of(const RunId& run, Epoch epoch, Round round) {
  OpenedRun* open = find(run);
  if (open == nullptr) {
    return nullptr;
  }
  const auto found = open->pairs.find(round);
  return found != open->pairs.end() && found->second.exchange && found->second.exchange->plan().epoch == epoch
             ? found->second.exchange.get()
             : nullptr;
}

void SyncEngine::State::carry_out(const FormMergeContribution& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  if (const Result<Contribution> contribution = open->run->form_merge_contribution(order.round, order.fragment); !contribution) {
    say(ContributionFailed{order.run, order.round, contribution.error()});
  } else {
    reach(RoundPhase::before_send, order.round);
    say(ContributionFormed{order.run, order.round, {.fragment = order.fragment}});
  }
}

void SyncEngine::State::settle_pairs(TimePoint at) {
  for (auto& [id, open] : runs) {
    for (auto& [round, pair] : open.pairs) {
      if (pair.reported) {
        continue;
      }
      if (pair.exchange) {
        if (!pair.order && !pair.said_ahead && pair.exchange->partner_ahead()) {
          pair.said_ahead = true;
          say(PartnerAhead{id, round});
        }
        if (pair.order && at - pair.met_at > kSilent) {
          for (const IslandId& silent : pair.exchange->silent(at, kSilent)) {
            watch.doubt(silent, at);
          }
        }
        const std::optional<TimePoint> doubt = pair.exchange->in_doubt_since();
        if (doubt && at - std::max(*doubt, pair.said_in_doubt.value_or(*doubt)) >= kDoubtAfter) {
          pair.said_in_doubt = at;
          say(PairInDoubt{id, pair.exchange->plan().epoch, round, pair.exchange->epoch(), pair.exchange->to_ask()});
        }
      }
      settle_pair(open, pair, at);
    }
  }
}

// Reports what was decided, once the state before is there.
void SyncEngine::State::settle_pair(OpenedRun& open, PairRound& pair, TimePoint at) {
  if (!pair.order || (pair.exchange && !pair.exchange->outcome()) || !open.run->has_state() ||
      open.run->round().next() != pair.order->round) {
    return;
  }
  const MeetPartner& order = *pair.order;
  const Contribution* own = open.run->contribution(order.round);
  pair.reported = true;
  if (own == nullptr && !order.withdrawn) {
    say(ExchangeBroke{
        order.run, order.round, order.attempt, {}, {Code::conflict, "the contribution to " + round_text(order.round) + " is gone"}});
    return;
  }
  if (pair.met()) {
    reach(RoundPhase::reducing, order.round);
  }
  pair.result.round = order.round;
  pair.result.fragment = order.fragment;
  pair.result.values = open.run->layout()->fragments()[order.fragment].count;
  pair.result.codec = open.run->composition().codec;
  if (pair.met()) {
    const std::vector<ByteView> gradients = pair.exchange->gradients(own->encoded.bytes);
    for (const ByteView gradient : gradients) {
      pair.result.terms.push_back({gradient, static_cast<float>(1.0 / static_cast<double>(gradients.size()))});
    }
  } else if (!order.withdrawn) {
    pair.result.terms = {{own->encoded.bytes, 1.0F}};
  }
  pair.digest = digest_after(open.run->digest(), pair.result, settings.in_parts);
  reach(RoundPhase::before_commit, order.round);
  const std::uint64_t read_so_far = link->store().bytes_served(order.run);
  const std::uint64_t in_all = pair.met() ? std::max(read_so_far, pair.served_before + pair.exchange->bytes_to_serve()) : read_so_far;
  const std::uint64_t sent = in_all - std::min(open.told_served, in_all);
  open.told_served = std::max(open.told_served, in_all);
  ExchangeDone done{order.run,
                    order.round,
                    order.attempt,
                    pair.digest,
                    sent,
                    pair.exchange ? pair.exchange->bytes_received() : 0,
                    seconds(at - pair.met_at)};
  if (pair.met()) {
    done.partner = pair.exchange->first_other();
    done.norms = pair.exchange->norms();
  } else if (pair.exchange && !order.withdrawn) {
    done.why = pair.exchange->outcome()->why;
    done.rejected = pair.exchange->outcome()->rejected;
    done.behind = pair.exchange->behind();
  }
  say(std::move(done));
}

// The outer step of a round of a pair; false if this round is none.
bool SyncEngine::State::apply_pair(OpenedRun& open, const ApplyResult& order) {
  const auto found = open.pairs.find(order.round);
  if (found == open.pairs.end() || !found->second.reported) {
    return false;
  }
  PairRound& pair = found->second;
  if (pair.digest != order.digest) {
    say(ResultApplied{order.run, order.round,
                      Error{Code::corrupt, "the result of " + round_text(order.round) + " held here is another one"}});
    return true;
  }
  Status applied;
  if (pair.met()) {
    const std::vector<ByteView> members = pair.exchange->parameters();
    const GroupParameters group{open.run->composition().parameters_codec, members, pair.exchange->place()};
    applied = open.run->apply(pair.result, order.digest, &group);
  } else {
    applied = open.run->apply(pair.result, order.digest);
  }
  tell_misuse(open);
  // Others are told that this round is over here only now: until then what they read is what was sent.
  link->store().finish_rounds_before(order.run, order.round.next());
  open.pairs.erase(open.pairs.begin(), open.pairs.upper_bound(order.round));
  open.meters.erase(open.meters.begin(), open.meters.upper_bound(order.round));
  say(ResultApplied{order.run, order.round, applied ? std::nullopt : std::optional(applied.error()),
                    applied ? open.run->projection() : std::vector<float>()});
  return true;
}

}  // namespace atl::agent
