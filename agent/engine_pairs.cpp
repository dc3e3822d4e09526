// What the sync engine does for rounds that two islands take together.
#include <algorithm>
#include <array>

#include "agent/sync_engine_state.hpp"
#include "transport/base/log.hpp"

namespace atl::agent {
namespace {

constexpr Duration kDoubtAfter = std::chrono::seconds(2);  // a verdict comes within two round trips

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
    log_warning("run " + order.run.text + ": " + round_text(order.round) + ": the outer parameters cannot be sent: " + parameters.error().why);
    return;
  }
  const Composition& composition = open->run->composition();
  PairPlan plan{order.run,
                order.epoch,
                order.round,
                settings.self,
                order.partner,
                open->run->layout()->fragments()[order.fragment].count,
                composition.codec,
                composition.parameters_codec,
                composition.max_skew};
  PairRound pair;
  pair.served_before = link->store().bytes_served(order.run);
  pair.exchange = std::make_unique<PairExchange>(std::move(plan), *std::move(parameters), link->store(), now());
  open->pairs.insert_or_assign(order.round, std::move(pair));
}

void SyncEngine::State::carry_out(const MeetPartner& order) {
  OpenedRun* open = find(order.run);
  if (open == nullptr) {
    return;
  }
  const Contribution* contribution = open->run->contribution(order.round);
  if (!order.withdrawn && (contribution == nullptr || contribution->fragment != order.fragment)) {
    say(ExchangeBroke{order.run, order.round, order.attempt, {}, {Code::conflict, "this island has no contribution to " + round_text(order.round)}});
    return;
  }
  if (order.partner.empty()) {
    open->pairs.erase(order.round);
  } else {
    carry_out(PreparePair{order.run, order.epoch, order.round, order.fragment, order.partner});
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
    const bool left = std::find(order.members.begin(), order.members.end(), exchange->plan().partner) == order.members.end();
    exchange->abandon(left, left ? "the partner left the run" : "the membership changed");
    pair = pair->second.order ? std::next(pair) : open->pairs.erase(pair);
  }
}

void SyncEngine::State::carry_out(const SettlePair& order) {
  OpenedRun* open = find(order.run);
  const auto found = open != nullptr ? open->pairs.find(order.round) : std::map<Round, PairRound>::iterator();
  if (open != nullptr && found != open->pairs.end() && found->second.exchange && found->second.exchange->plan().epoch == order.epoch) {
    found->second.exchange->settle(order.met);
  }
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
    say(ContributionFormed{order.run, order.round, 0});
  }
}

void SyncEngine::State::pump_pairs(TimePoint at) {
  for (auto& [id, open] : runs) {
    for (auto& [round, pair] : open.pairs) {
      if (pair.reported) {
        continue;
      }
      if (pair.exchange) {
        send_wants(*pair.exchange, at);
        if (!pair.order && !pair.said_ahead && pair.exchange->partner_ahead()) {
          pair.said_ahead = true;
          say(PartnerAhead{id, round});
        }
        const std::optional<TimePoint> doubt = pair.exchange->in_doubt_since();
        if (doubt && at - std::max(*doubt, pair.said_in_doubt.value_or(*doubt)) >= kDoubtAfter) {
          pair.said_in_doubt = at;
          say(PairInDoubt{id, pair.exchange->plan().epoch, round, pair.exchange->plan().partner});
        }
      }
      settle_pair(open, pair, at);
    }
  }
}

// Reports what was decided, once the state before is there.
void SyncEngine::State::settle_pair(OpenedRun& open, PairRound& pair, TimePoint at) {
  if (!pair.order || (pair.exchange && !pair.exchange->outcome()) || !open.run->has_state() || open.run->round().next() != pair.order->round) {
    return;
  }
  const MeetPartner& order = *pair.order;
  const Contribution* own = open.run->contribution(order.round);
  pair.reported = true;
  if (own == nullptr && !order.withdrawn) {
    say(ExchangeBroke{order.run, order.round, order.attempt, {}, {Code::conflict, "the contribution to " + round_text(order.round) + " is gone"}});
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
    const std::array<ByteView, 2> gradients = pair.exchange->decider() ? std::array<ByteView, 2>{own->encoded.bytes, pair.exchange->gradient()}
                                                                       : std::array<ByteView, 2>{pair.exchange->gradient(), own->encoded.bytes};
    pair.result.terms = {{gradients[0], 0.5F}, {gradients[1], 0.5F}};
  } else if (!order.withdrawn) {
    pair.result.terms = {{own->encoded.bytes, 1.0F}};
  }
  pair.chain = chain_after(open.run->chain(), pair.result);
  reach(RoundPhase::before_commit, order.round);
  const std::uint64_t read_so_far = link->store().bytes_served(order.run);
  const std::uint64_t in_all = pair.met() ? std::max(read_so_far, pair.served_before + pair.exchange->bytes_to_serve()) : read_so_far;
  const std::uint64_t sent = in_all - std::min(open.told_served, in_all);
  open.told_served = std::max(open.told_served, in_all);
  ExchangeDone done{order.run, order.round, order.attempt, pair.chain, sent, pair.exchange ? pair.exchange->bytes_received() : 0, seconds(at - pair.met_at)};
  if (pair.met()) {
    done.partner = pair.exchange->plan().partner;
    done.norm = pair.exchange->norm();
  } else if (pair.exchange && !order.withdrawn) {
    done.why = pair.exchange->outcome()->why;
    done.rejected = pair.exchange->outcome()->rejected;
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
  if (pair.chain != order.chain) {
    say(ResultApplied{order.run, order.round, Error{Code::corrupt, "the result of " + round_text(order.round) + " held here is another one"}});
    return true;
  }
  Status applied;
  if (pair.met()) {
    const PairExchange& exchange = *pair.exchange;
    const std::array<ByteView, 2> members = exchange.decider() ? std::array<ByteView, 2>{exchange.own_parameters(), exchange.parameters()}
                                                               : std::array<ByteView, 2>{exchange.parameters(), exchange.own_parameters()};
    const GroupParameters group{open.run->composition().parameters_codec, members, exchange.decider() ? std::size_t{0} : std::size_t{1}};
    applied = open.run->apply(pair.result, order.chain, &group);
  } else {
    applied = open.run->apply(pair.result, order.chain);
  }
  // Others are told that this round is over here only now: until then what they read is what was sent.
  link->store().finish_rounds_before(order.run, order.round.next());
  open.pairs.erase(open.pairs.begin(), open.pairs.upper_bound(order.round));
  open.meters.erase(open.meters.begin(), open.meters.upper_bound(order.round));
  say(ResultApplied{order.run, order.round, applied ? std::nullopt : std::optional(applied.error()), applied ? open.run->projection() : std::vector<float>()});
  return true;
}

}  // namespace atl::agent
