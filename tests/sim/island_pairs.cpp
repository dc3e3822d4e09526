// Pairs on a simulated island: the real protocol over a simulated link, and the arithmetic of their rounds.
#include <algorithm>
#include <array>
#include <cstring>

#include "strategies/outer_optimizer.hpp"
#include "tests/sim/cluster.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::sim {
namespace {

constexpr Duration kDoubtAfter = std::chrono::seconds(2);

Payload payload_of(std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  auto owner = std::make_shared<const Bytes>(bytes.begin(), bytes.end());
  return Payload{*owner, owner};
}

Vector values_of(ByteView bytes) {
  Vector values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

bool IslandHost::own(Round round) const {
  const Engine& engine = *process_->engine;
  return engine.composition.private_states() && round.value + engine.spec.merge_rounds <= engine.spec.rounds;
}

// The first round that merges all islands begins with the same digest everywhere.
Digest IslandHost::digest_before(Round round) const {
  const Engine& engine = *process_->engine;
  return engine.composition.private_states() && !own(round) && own(engine.round) ? Digest{} : engine.digest;
}

void IslandHost::prepare_pair(const agent::PreparePair& effect) {
  Engine& engine = *process_->engine;
  const auto held = engine.pairs.find(effect.round);
  if (!engine.has_state || (held != engine.pairs.end() &&
                            (held->second.order || (held->second.exchange && held->second.exchange->plan().epoch >= effect.epoch)))) {
    return;
  }
  const std::span<float> parameters = range(engine.parameters, effect.fragment);
  PairInHand pair;
  pair.exchange = std::make_unique<PairExchange>(
      PairPlan{effect.run, effect.epoch, effect.round, id_, effect.group, parameters.size(), {}, {}, engine.composition.max_skew},
      payload_of(parameters), *engine.store, now());
  engine.pairs.insert_or_assign(effect.round, std::move(pair));
  pump_pairs();
}

void IslandHost::meet(const agent::MeetPartner& effect) {
  Engine& engine = *process_->engine;
  if (engine.contributions.count(effect.round) == 0 && !effect.withdrawn) {
    feed(agent::ExchangeBroke{effect.run, effect.round, effect.attempt, {}, Error{Code::conflict, "there is no contribution"}});
    return;
  }
  if (effect.group.size() < 2) {
    engine.pairs.erase(effect.round);
  } else {
    prepare_pair(agent::PreparePair{effect.run, effect.epoch, effect.round, effect.fragment, effect.group});
  }
  PairInHand& pair = engine.pairs[effect.round];
  if (!pair.order) {
    pair.order = effect;
    if (pair.exchange && effect.withdrawn) {
      pair.exchange->withdraw(now());
    } else if (pair.exchange) {
      pair.exchange->arrive(payload_of(engine.contributions.at(effect.round).values), now(), effect.deadline, effect.guard);
    }
  }
  pump_pairs();
}

void IslandHost::leave_pairs(const agent::LeavePairs& effect) {
  std::map<Round, PairInHand>& pairs = process_->engine->pairs;
  for (auto pair = pairs.begin(); pair != pairs.end();) {
    PairExchange* exchange = pair->second.exchange.get();
    if (exchange == nullptr || exchange->plan().epoch >= effect.epoch || exchange->outcome()) {
      ++pair;
      continue;
    }
    exchange->change_epoch(effect.epoch, effect.members, "the membership changed");
    pair = pair->second.order ? std::next(pair) : pairs.erase(pair);
  }
  pump_pairs();
}

void IslandHost::hear_of_pair(const agent::HearOfPair& effect) {
  if (PairExchange* exchange = exchange_of(effect.epoch, effect.round)) {
    exchange->hear(effect.from, effect.asked_in, effect.word);
  }
  pump_pairs();
}

void IslandHost::renounce_pair(const agent::RenouncePair& effect) {
  PairExchange* exchange = exchange_of(effect.epoch, effect.round);
  if (exchange != nullptr && exchange->renounce(effect.asked_in)) {
    feed(agent::PairRenounced{effect.run, effect.epoch, effect.round, effect.asker, effect.asked_in});
  }
}

PairExchange* IslandHost::exchange_of(Epoch epoch, Round round) {
  const auto found = process_->engine->pairs.find(round);
  return found != process_->engine->pairs.end() && found->second.exchange && found->second.exchange->plan().epoch == epoch
             ? found->second.exchange.get()
             : nullptr;
}

void IslandHost::form_merge(const agent::FormMergeContribution& effect) {
  Engine& engine = *process_->engine;
  const std::span<float> parameters = range(engine.parameters, effect.fragment);
  const Vector values(parameters.begin(), parameters.end());
  checkers().contribution(id_, effect.round, engine.digest, values, 0, {});
  engine.contributions[effect.round] = FormedContribution{{effect.round, effect.fragment, 0, {}}, values, {}};
  feed(agent::ContributionFormed{effect.run, effect.round, 0});
}

// Asks, answers, and reports what is decided; again in a while as long as something is open.
void IslandHost::pump_pairs() {
  Engine& engine = *process_->engine;
  std::vector<agent::Event> events;
  for (auto& [round, pair] : engine.pairs) {
    if (pair.reported) {
      continue;
    }
    if (pair.exchange) {
      for (const OutgoingWant& want : pair.exchange->take_wants(now())) {
        cluster_.carry(id_.text, want.to.text, [&cluster = cluster_, from = id_, want] {
          if (IslandHost* peer = cluster.find(want.to)) {
            peer->serve(from, want.want);
          }
        });
      }
      if (!pair.order && !pair.said_ahead && pair.exchange->partner_ahead()) {
        pair.said_ahead = true;
        events.emplace_back(agent::PartnerAhead{process_->run, round});
      }
      const std::optional<TimePoint> doubt = pair.exchange->in_doubt_since();
      if (doubt && now() - std::max(*doubt, pair.said_in_doubt.value_or(*doubt)) >= kDoubtAfter) {
        pair.said_in_doubt = now();
        events.emplace_back(
            agent::PairInDoubt{process_->run, pair.exchange->plan().epoch, round, pair.exchange->epoch(), pair.exchange->to_ask()});
      }
    }
    if (std::optional<agent::Event> done = decided(round, pair)) {
      events.push_back(std::move(*done));
    }
  }
  for (const ParkedWant& parked : engine.store->take_unparked()) {
    serve(parked.reader, parked.want);
  }
  poll_pairs();
  for (const agent::Event& event : events) {
    if (process_ && process_->engine) {
      feed(event);
    }
  }
}

void IslandHost::poll_pairs() {
  Engine& engine = *process_->engine;
  const bool open = std::any_of(engine.pairs.begin(), engine.pairs.end(), [](const auto& pair) { return !pair.second.reported; });
  if (!open || engine.polling) {
    return;
  }
  engine.polling = true;
  cluster_.timeline().after(cluster_.scenario().pair_poll, [this, boot = process_->boot, engines = process_->engines] {
    if (process_ && process_->boot == boot && process_->engines == engines && process_->engine) {
      process_->engine->polling = false;
      pump_pairs();
    }
  });
}

// What the core hears of a round, once the state before it is there.
std::optional<agent::Event> IslandHost::decided(Round round, PairInHand& pair) {
  Engine& engine = *process_->engine;
  const bool withdrawn = pair.order && pair.order->withdrawn;
  if (!pair.order || (pair.exchange && !pair.exchange->outcome()) || !engine.has_state || engine.round.next() != round ||
      (engine.contributions.count(round) == 0 && !withdrawn)) {
    return std::nullopt;
  }
  pair.reported = true;
  agent::ExchangeDone done{process_->run, round, pair.order->attempt, {}, 100, 100, 0.1};
  const Vector own = withdrawn ? Vector{} : engine.contributions.at(round).values;
  pair.result = own;
  if (pair.exchange && pair.exchange->outcome()->met) {
    const std::vector<ByteView> gradients = pair.exchange->gradients(std::as_bytes(std::span(own)));
    const float weight = 1.0F / static_cast<float>(gradients.size());
    std::fill(pair.result.begin(), pair.result.end(), 0.0F);
    for (const ByteView gradient : gradients) {
      const Vector values = values_of(gradient);
      for (std::size_t i = 0; i < own.size(); ++i) {
        pair.result[i] += weight * values[i];
      }
    }
    done.partner = pair.exchange->first_other();
    done.norms = pair.exchange->norms();
  } else if (pair.exchange && !withdrawn) {
    done.why = pair.exchange->outcome()->why;
    done.rejected = pair.exchange->outcome()->rejected;
  }
  pair.digest = digest_after(engine.digest, pair.result);
  done.digest = pair.digest;
  return done;
}

void IslandHost::serve(const IslandId& reader, const Want& want) {
  if (!process_ || !process_->engine) {
    return;
  }
  const StoreAnswer answer = process_->engine->store->answer(reader, want);
  if (std::holds_alternative<Parked>(answer)) {
    return;
  }
  cluster_.carry(id_.text, reader.text, [&cluster = cluster_, from = id_, reader, answer] {
    if (IslandHost* host = cluster.find(reader)) {
      host->receive(from, answer);
    }
  });
}

void IslandHost::receive(const IslandId& from, const StoreAnswer& answer) {
  if (!process_ || !process_->engine) {
    return;
  }
  const auto* served = std::get_if<Served>(&answer);
  const BlobId& blob = served != nullptr ? served->piece.blob : std::get<Gone>(answer).blob;
  for (auto& [round, pair] : process_->engine->pairs) {
    if (!pair.exchange || !pair.exchange->reads(blob)) {
      continue;
    }
    if (served == nullptr) {
      pair.exchange->gone(now(), from, std::get<Gone>(answer));
    } else if (const std::span<std::byte> place = pair.exchange->destination(from, served->piece);
               place.size() == served->payload.bytes.size()) {
      std::copy(served->payload.bytes.begin(), served->payload.bytes.end(), place.begin());
      pair.exchange->arrived(now(), from, served->piece);
    }
    break;
  }
  pump_pairs();
}

// False if this round is not one of a pair.
bool IslandHost::apply_pair(const agent::ApplyResult& effect) {
  Engine& engine = *process_->engine;
  const auto found = engine.pairs.find(effect.round);
  if (found == engine.pairs.end() || !found->second.reported) {
    return false;
  }
  PairInHand& pair = found->second;
  if (pair.digest != effect.digest || engine.round.next() != effect.round) {
    checkers().fail(id_.text + " was asked to apply a round of a pair that it does not hold");
    return true;
  }
  checkers().applied(id_, engine.round, effect.round, effect.digest, true);
  const OuterState state{range(engine.parameters, effect.fragment), range(engine.momentum, effect.fragment)};
  const ByteView bytes = std::as_bytes(std::span(pair.result));
  const std::array<EncodedTerm, 1> terms = {{{bytes, 1.0F}}};
  Status stepped;
  if (pair.exchange) {
    const bool met = pair.exchange->outcome()->met;
    checkers().paired(id_, pair.exchange->plan().group, pair.exchange->plan().epoch, effect.round, met, met ? pair.result : Vector{});
  }
  if (pair.order->withdrawn) {
    // Nobody's contribution counts: the outer state stays.
  } else if (pair.exchange && pair.exchange->outcome()->met) {
    const std::vector<ByteView> members = pair.exchange->parameters();
    stepped = outer_step(ReducedResult{{}, terms}, GroupParameters{{}, members, pair.exchange->place()}, engine.composition.outer, state);
  } else {
    stepped = outer_step(ReducedResult{{}, terms}, engine.composition.outer, state);
  }
  if (!stepped) {
    checkers().fail("the outer step of a pair failed: " + stepped.error().why);
  }
  engine.round = effect.round;
  engine.digest = effect.digest;
  const std::span<float> outer = range(engine.parameters, effect.fragment);
  std::copy(outer.begin(), outer.end(), range(engine.arena, effect.fragment).begin());
  engine.contributions.erase(engine.contributions.begin(), engine.contributions.upper_bound(effect.round));
  engine.store->finish_rounds_before(effect.run, effect.round.next());
  engine.pairs.erase(engine.pairs.begin(), engine.pairs.upper_bound(effect.round));
  feed(agent::ResultApplied{effect.run, effect.round, std::nullopt, {1.0F}});
  if (process_ && process_->engine) {
    pump_pairs();
  }
  return true;
}

}  // namespace atl::sim
