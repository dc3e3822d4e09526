// One round on this island, between the trainer's publish and the applied result.
//
//   forming ──formed──► formed ──exchange──► exchanging ──exchanged──► exchanged ──apply──► applying
//      └──withdraw──► withdrawn ──exchange──────┘ │  ▲└────fail────► failed
//                        formed or withdrawn ◄──abort (from exchanging, exchanged, failed)
// A round that closed without this island's contribution begins with the exchange, and is out of hand after an abort.
// What it says is what the coordinator has to hear until it answers.
// Threads: plain value; owned by one Core.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/core/pending_round.hpp"
#include "transport/base/ids.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// What is told of a contribution that its own island does not let count.
[[nodiscard]] inline Fate fate_of(const Error& error) { return error.code == Code::corrupt ? Fate::not_finite : Fate::rejected; }

class RoundInHand {
 public:
  enum class Phase : std::uint8_t {
    forming,    // the engine forms the contribution
    formed,     // Ready is said
    withdrawn,  // Withdrawn is said
    exchanging,
    exchanged,  // Exchanged is said; the result is held
    failed,     // ExchangeFailed is said
    applying,   // committed; the engine takes the outer step
  };

  RoundInHand(const RunId& run, Round number, std::uint32_t fragment);

  [[nodiscard]] Phase phase() const { return phase_; }
  [[nodiscard]] bool is(Phase phase) const { return phase_ == phase; }
  [[nodiscard]] Round number() const { return ready_.round; }
  [[nodiscard]] std::uint32_t fragment() const { return ready_.facts.fragment; }
  // The newest heard of.
  [[nodiscard]] Attempt attempt() const { return attempt_; }
  // The contribution does not count.
  [[nodiscard]] bool withdrawn() const { return withdrawn_; }
  // This island only receives its result.
  [[nodiscard]] bool receives() const { return receives_; }
  // The trainer published for this round, and waits for the result under its number; another one: that round closed without this island.
  [[nodiscard]] Round published_as() const { return published_as_; }
  // One of the outer state after this round is to be written.
  [[nodiscard]] bool checkpoint() const { return checkpoint_; }
  // In which the group was drawn, where members commit among themselves.
  [[nodiscard]] Epoch group_epoch() const { return group_epoch_; }
  // Of its contribution.
  [[nodiscard]] const ContributionFacts& facts() const { return ready_.facts; }
  // Of an exchange that is done.
  [[nodiscard]] const Exchanged& exchanged() const { return exchanged_; }
  // An exchange has begun, or is done.
  [[nodiscard]] bool in_exchange() const { return phase_ == Phase::exchanging || phase_ == Phase::exchanged || phase_ == Phase::failed; }
  // What the coordinator has to hear of it, if anything. digest: of the outer state now.
  [[nodiscard]] std::optional<Message> said(Epoch epoch, const Digest& digest) const;

  // As it was published.
  void describe(const ContributionFacts& facts) { ready_.facts = facts; }
  // base: the round whose result it is formed against, where rounds close with a quorum.
  void form(double norm, Round base = {}, std::uint64_t fingerprint = 0);
  // It is formed against a newer result, while its round is being exchanged without it.
  void reform(double norm, Round base) {
    ready_.facts.norm = norm;
    ready_.facts.base = base;
    ready_.facts.fingerprint = 0;
  }
  // It came formed, with a checkpoint.
  void resume(const PendingRound& pending);
  void withdraw(Epoch epoch, Error error);
  void publish_as(Round round) { published_as_ = round; }
  // It closed without this island's contribution.
  void receive() { receives_ = true; }
  // It closed before the contribution was there, which is one to a later round now.
  void postpone(Round to);
  // Where rounds close with a quorum: the trainer went on from the result of this round, or took part in it last, and so many rounds of the
  // fragment were missed.
  void train_from(Round base) { trained_from_ = base; }
  [[nodiscard]] Round trained_from() const { return trained_from_; }
  void age(std::uint32_t missed) { ready_.facts.staleness = missed; }
  // The attempt under way counts the contribution.
  void count(bool counts) { counts_ = counts; }
  [[nodiscard]] bool counts() const { return counts_; }
  // The samples that it holds are counted with another contribution, which the trainer made later.
  void count_data() { ready_.facts.data.from = ready_.facts.data.to; }
  // Its members commit it, and the contribution does not count.
  void reject() { withdrawn_ = true; }
  void begin_exchange(Attempt attempt, Epoch group_epoch = {});
  void finish_exchange(Exchanged exchanged);
  void fail(ExchangeFailed failure);
  // The attempt is void; the contribution stays.
  void abort();
  void set_checkpoint(bool wanted) { checkpoint_ = wanted; }
  void apply() { phase_ = Phase::applying; }

 private:
  Phase phase_ = Phase::forming;
  Attempt attempt_;
  bool withdrawn_ = false;
  bool receives_ = false;
  Round published_as_;
  Round trained_from_;
  bool counts_ = false;
  bool checkpoint_ = false;
  Epoch group_epoch_;
  atl::Ready ready_;
  Withdrawn withdrawal_;
  Exchanged exchanged_;
  ExchangeFailed failure_;
};

}  // namespace atl::agent
