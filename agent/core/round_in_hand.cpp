#include "agent/core/round_in_hand.hpp"

namespace atl::agent {

RoundInHand::RoundInHand(const RunId& run, Round number, std::uint32_t fragment) {
  ready_.run = run;
  ready_.round = number;
  ready_.facts.fragment = fragment;
  published_as_ = number;
}

std::optional<Message> RoundInHand::said(Epoch epoch, const Digest& digest) const {
  const auto of = [&](auto message) {
    message.epoch = epoch;
    return std::optional<Message>(std::move(message));
  };
  switch (phase_) {
    case Phase::formed: {
      atl::Ready ready = ready_;
      ready.digest = digest;
      return of(std::move(ready));
    }
    case Phase::withdrawn:
      return of(withdrawal_);
    case Phase::exchanged:
      return of(exchanged_);
    case Phase::failed:
      return of(failure_);
    case Phase::forming:
    case Phase::exchanging:
    case Phase::applying:
      break;
  }
  return std::nullopt;
}

void RoundInHand::form(double norm, Round base, std::uint64_t fingerprint) {
  phase_ = Phase::formed;
  reform(norm, base);
  ready_.facts.fingerprint = fingerprint;
}

void RoundInHand::resume(const PendingRound& pending) {
  describe(pending.facts);
  phase_ = Phase::formed;
  trained_from_ = pending.facts.base;
}

void RoundInHand::withdraw(Epoch epoch, Error error) {
  phase_ = Phase::withdrawn;
  withdrawn_ = true;
  const Fate fate = fate_of(error);
  withdrawal_ = Withdrawn{ready_.run, epoch, ready_.round, std::move(error), fate, accounted(ready_.facts)};
}

void RoundInHand::postpone(Round to) {
  ready_.round = to;
  withdrawal_.round = to;
  attempt_ = Attempt();
}

void RoundInHand::begin_exchange(Attempt attempt, Epoch group_epoch) {
  attempt_ = attempt;
  group_epoch_ = group_epoch;
  phase_ = Phase::exchanging;
}

void RoundInHand::finish_exchange(Exchanged exchanged) {
  phase_ = Phase::exchanged;
  exchanged_ = std::move(exchanged);
}

void RoundInHand::fail(ExchangeFailed failure) {
  phase_ = Phase::failed;
  failure_ = std::move(failure);
}

void RoundInHand::abort() { phase_ = withdrawn_ ? Phase::withdrawn : Phase::formed; }

}  // namespace atl::agent
