// What the checkers are told of an island: what its engine is asked to do, what comes of it, and the state that it then has.
#include <cstring>

#include "strategies/aggregate.hpp"
#include "tests/sim/cluster.hpp"
#include "transport/identity/sha256.hpp"

namespace atl::sim {
namespace {

Vector values_of(ByteView bytes) {
  Vector values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

// Names what a contribution holds wherever the island has it from.
Digest key_of(Round round, ByteView bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&round.value, 1)));
  hash.update(bytes);
  return hash.finish();
}

bool own(const IslandRun& run, Round round) { return run.composition().has_own_outer_state() && !run.merges(round); }

Vector copy_of(std::span<const float> values) { return {values.begin(), values.end()}; }

}  // namespace

Checkers& IslandHost::checkers(const RunId& run) const { return cluster_.checkers().of(run); }

void IslandHost::before(const agent::EngineCommand& command) {
  if (const auto* apply = std::get_if<agent::ApplyResult>(&command)) {
    const IslandRun* run = open_run(apply->run);
    applying_.reset();
    decided_ = {};
    if (run == nullptr) {
      return;
    }
    applying_ = Applying{run->round(), apply->round, apply->digest};
    const PairRound* pair = process_->engine->pair(apply->run, apply->round);
    if (pair == nullptr || !pair->exchange) {
      return;
    }
    Vector result;
    if (pair->met()) {
      result.resize(static_cast<std::size_t>(pair->result.values));
      std::vector<float> scratch;
      aggregate(Aggregator::weighted_mean, pair->result.codec, pair->result.terms, 0, result, scratch);
    }
    decided_ = [this, id = apply->run, plan = pair->exchange->plan(), met = pair->met(), result = std::move(result)] {
      checkers(id).paired(id_, plan.group, plan.epoch, plan.round, met, result);
    };
  } else if (const auto* form = std::get_if<agent::FormContribution>(&command)) {
    if (process_->spec.strategy.quorum > 0) {  // its own round may have closed without it
      process_->published[form->round] = process_->newest_published[form->facts.fragment];
      process_->formed_from[form->round] = process_->newest_parameters[form->facts.fragment];
    }
  } else if (const auto* postpone = std::get_if<agent::PostponeContribution>(&command)) {
    if (postpone->to > Round(0)) {
      process_->published[postpone->to] = process_->published[postpone->round];
      process_->formed_from[postpone->to] = process_->formed_from[postpone->round];
      const IslandRun* run = open_run(postpone->run);
      if (const Contribution* held = run == nullptr ? nullptr : run->contribution(postpone->round)) {
        contributions_[key_of(postpone->to, held->encoded.bytes)] = contributions_[key_of(postpone->round, held->encoded.bytes)];
      }
      checkers(postpone->run).postponed(id_, postpone->round, postpone->to);
    }
  } else if (const auto* begin = std::get_if<agent::BeginCheckpoint>(&command)) {
    const IslandRun* run = open_run(begin->run);
    if (run != nullptr && (run->round() != begin->round || run->digest() != begin->digest)) {
      checkers(begin->run)
          .fail(name_ + " was told to begin a checkpoint of round " + std::to_string(begin->round.value) + " while its state is another");
    }
  } else if (const auto* adopt = std::get_if<agent::AdoptParameters>(&command)) {
    const IslandRun* run = open_run(adopt->run);
    if (run != nullptr && run->round() != adopt->round) {
      checkers(adopt->run)
          .fail(name_ + " adopts the parameters of round " + std::to_string(adopt->round.value) + " while its state is another");
    }
  } else if (const auto* drop = std::get_if<agent::DropContent>(&command)) {
    bool held = false;
    for (std::size_t i = 0; i < cluster_.islands(); ++i) {
      held = held || (&cluster_.host(i) != this && cluster_.host(i).holds_content(drop->run, drop->digest));
    }
    if (!held && holds_content(drop->run, drop->digest)) {
      cluster_.checkers().last_copy_dropped(id_, drop->digest);
    }
  }
}

// A contribution was formed, or came back from a checkpoint.
void IslandHost::saw_contribution(const IslandRun& run, Round round, const ContributionFacts* facts) {
  const Contribution* contribution = run.contribution(round);
  if (contribution == nullptr) {
    checkers(run.id()).fail(name_ + " has formed a contribution to round " + std::to_string(round.value) + " and does not have it");
    return;
  }
  Trained& trained = contributions_[key_of(round, contribution->encoded.bytes)];
  if (facts == nullptr && !run.merges(round)) {
    trained = process_->published[round];
  } else if (facts != nullptr) {
    process_->published[round] = trained;
  }
  Checkers& told = checkers(run.id());
  Digest base = run.digest_before(round);
  if (run.spec().strategy.quorum > 0) {
    base = told.digest_of(contribution->facts.base);
    const auto local = process_->formed_from.find(round);
    if (facts == nullptr && local != process_->formed_from.end() && !local->second.empty()) {  // else it came with a checkpoint
      told.formed_behind(id_, round, base, values_of(contribution->encoded.bytes), local->second);
    }
  }
  const Composition& parts = run.composition();
  const bool overwritten = parts.group == Group::all && parts.payload == PayloadKind::outer_gradient && parts.merge_alpha == 0.0;
  if (facts == nullptr && overwritten && run.spec().strategy.quorum == 0 && process_->moved.contains(round)) {
    told.moved(id_, round, values_of(contribution->encoded.bytes), process_->moved[round]);
  }
  told.contribution(id_, round, base, values_of(contribution->encoded.bytes), contribution->facts, trained);
}

void IslandHost::saw_state(const IslandRun& run) {
  Checkers& told = checkers(run.id());
  if (run.composition().group == Group::all) {
    told.outer_state(id_, run.round(), run.digest(), copy_of(run.parameters()), run.outer().momentum());
  } else if (run.composition().group == Group::pairs && run.round() == Round(run.spec().rounds)) {
    told.outer_state(id_, run.round(), run.digest(), copy_of(run.parameters()), {});  // one model; each its own momentum
  }
}

void IslandHost::after(const agent::Event& event) {
  std::visit(
      [&](const auto& e) {
        using E = std::decay_t<decltype(e)>;
        if constexpr (E::kTo == agent::Addressee::engine) {
          const IslandRun* run = open_run(e.run);
          const auto fail = [&](const std::string& what) { checkers(e.run).fail(name_ + " " + what); };
          if (run == nullptr) {
            return;
          }
          if constexpr (std::is_same_v<E, agent::InitialState>) {
            saw_state(*run);
            checkers(e.run).void_pairs(id_, Round(0));
          } else if constexpr (std::is_same_v<E, agent::ContributionFormed>) {
            saw_contribution(*run, e.round, nullptr);
            std::size_t retained = 0;
            for (Round round = run->round().next(); round.value <= run->spec().rounds; round = round.next()) {
              retained += run->contribution(round) != nullptr ? 1U : 0U;
            }
            checkers(e.run).retained(id_, run->round(), retained);
          } else if constexpr (std::is_same_v<E, agent::ExchangeBroke>) {
            if (e.error.code == Code::conflict && e.accused.empty() && run->composition().group == Group::all) {
              fail("was asked to exchange what it does not have: " + e.error.why);
            }
          } else if constexpr (std::is_same_v<E, agent::ResultApplied>) {
            if (e.error || !applying_) {
              fail("was asked to apply a result of round " + std::to_string(e.round.value) +
                   " that it does not hold: " + (e.error ? e.error->why : ""));
              return;
            }
            checkers(e.run).applied(id_, applying_->from, applying_->to, applying_->digest, own(*run, e.round));
            if (decided_) {
              decided_();
            }
            if (run->composition().payload != PayloadKind::gradient) {
              saw_state(*run);
            }
            for (const auto& [number, norm] : e.reformed) {
              saw_contribution(*run, number, nullptr);
            }
          } else if constexpr (std::is_same_v<E, agent::ParametersAdopted>) {
            saw_state(*run);
          } else if constexpr (std::is_same_v<E, agent::CheckpointFailed>) {
            if (e.error.code == Code::conflict) {
              fail("was asked for a checkpoint of round " + std::to_string(e.round.value) + " while its state is another");
            }
          } else if constexpr (std::is_same_v<E, agent::CheckpointWritten>) {
            if (e.trainer_state && !run->spec().work.run.empty() && e.round == Round(run->spec().rounds)) {
              const TrainerState saved = saved_trainer(e.run, e.round).value();
              checkers(e.run).trainer_saved(id_, e.digest, saved.step, saved.parameters);
            }
          } else if constexpr (std::is_same_v<E, agent::CheckpointLoaded>) {
            // It had left, or everybody was lost: what it decided with others before counts no more.
            checkers(e.run).void_pairs(id_, Round(0));
            process_->newest_parameters.clear();
            process_->formed_from.clear();
            for (const PendingRound& pending : e.pending) {
              saw_contribution(*run, pending.round, &pending.facts);
            }
            saw_state(*run);
          } else if constexpr (std::is_same_v<E, agent::CatchUpDone>) {
            checkers(e.run).void_pairs(id_, Round(0));
            saw_state(*run);
          }
        }
      },
      event);
}

}  // namespace atl::sim
