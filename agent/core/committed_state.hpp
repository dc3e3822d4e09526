// The outer state of a run on this island: of which committed round it is, where it comes from, and how far the data are committed.
//
//   from the seed:       ask_initial → form_initial (the digest of round 0 is known) → agree
//   from a checkpoint:   restore → loaded, or broken
//   from its peers:      join → catch_up → caught_up, or failed
//   then, round by round: advance
// A state that was lost is said to be lost until the coordinator assigns another.
// Threads: plain values; owned by one Core.
#pragma once

#include <cstdint>
#include <optional>

#include "agent/core/effect.hpp"
#include "agent/core/run_terms.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/control/message.hpp"

namespace atl::agent {

// Who else has the state of a round.
enum class StateOf : std::uint8_t {
  everybody,  // it is the same on every island: its digest names it, and the coordinator knows which data are in it
  island,     // nobody: whatever the island holds is the state that it goes on from, and it alone knows what it trained on
};

class CommittedState {
 public:
  // terms outlives it. epoch, position and entry: of the invitation.
  CommittedState(const RunTerms& terms, StateOf of, StartFrom from, Epoch epoch, std::uint64_t position, std::uint64_t entry = 0)
      : terms_(&terms), of_(of), entry_(entry), from_(from), since_(epoch), counted_(position), assigned_(position) {}

  // In memory, and agreed on.
  [[nodiscard]] bool held() const { return held_; }
  // The round that it is of, or was when it was lost.
  [[nodiscard]] Round committed() const { return committed_; }
  [[nodiscard]] const Digest& digest() const { return digest_; }
  [[nodiscard]] bool is(Round round, const Digest& digest) const { return held_ && committed_ == round && digest_ == digest; }
  // It is what an island goes on from where the others are at this round: that very state, or the island's own.
  [[nodiscard]] bool suits(Round round, const Digest& digest) const { return of_ == StateOf::island ? held_ : is(round, digest); }
  // Held of the state that all share, and nothing said of it: the island waits to be let in.
  [[nodiscard]] bool waits() const { return held_ && of_ == StateOf::everybody && !coming() && !said_; }
  // Nothing is left to train.
  [[nodiscard]] bool at_end() const { return held_ && committed_ >= terms_->last(); }
  [[nodiscard]] StartFrom from() const { return from_; }
  // The epoch in which the island took over the state that it goes on from: what it was in groups of older epochs is void.
  [[nodiscard]] Epoch since() const { return since_; }
  // The first sequence of this island's part of the data that no committed round holds.
  [[nodiscard]] std::uint64_t counted() const { return counted_; }
  // The same, of the state that it was last assigned.
  [[nodiscard]] std::uint64_t assigned() const { return assigned_; }
  // Of round 0, formed and not yet agreed on; an empty digest where this island lacks the parameters that the run begins with.
  [[nodiscard]] const std::optional<Digest>& initial() const { return initial_; }
  [[nodiscard]] const std::optional<CatchUp>& catching_up() const { return catching_up_; }
  [[nodiscard]] std::optional<Round> restoring() const { return restoring_; }
  // A state is on its way, from the disk or from peers.
  [[nodiscard]] bool coming() const { return catching_up_ || restoring_; }
  // What the island says of its state until that is answered.
  [[nodiscard]] const std::optional<CaughtUp>& said() const { return said_; }
  // What it has, or why that is of no use.
  [[nodiscard]] CaughtUp report(Epoch epoch, std::optional<Error> error = std::nullopt) const {
    return CaughtUp{terms_->id, epoch, committed_, digest_, std::move(error), entry_};
  }

  // The coordinator tries (anew) to let this island in: why an earlier attempt failed is no answer to this one.
  void enter(std::uint64_t entry);
  // It begins with the parameters of the seed.
  void begin_anew() { from_ = StartFrom::scratch; }
  // True where the trainer's initial parameters are needed and were not asked for.
  bool ask_initial();
  // Another trainer: it has to be asked again.
  void forget_asking() { asked_ = false; }
  bool form_initial(const Digest& digest);
  void agree(const Digest& digest);

  // active: the island was in the epoch until now.
  void join(bool active);
  void restore(Round round);
  // The checkpoint being read is another one.
  void restore_older(Round round) { restoring_ = round; }
  void loaded(Round round, const Digest& digest, Epoch epoch);
  void stop_restoring() { restoring_.reset(); }
  // Returns false if one as new is under way.
  [[nodiscard]] bool needs(const CatchUp& order) const;
  // What the engine is to do for it; number: of no other order.
  CatchUpFromPeers catch_up(const CatchUp& order, std::uint64_t number = 0);
  // The engine's answer to this number is one to the newest order: what came of an older one says nothing of the state that will be here
  // once the engine has done the newest.
  [[nodiscard]] bool awaits(std::uint64_t number) const { return catching_up_ && number == catch_up_number_; }
  void caught_up(Round round, const Digest& digest, Epoch epoch, std::uint32_t part);
  // The state of this round came from others: of what is this island's alone beside it nothing came.
  [[nodiscard]] bool copied(Round round) const { return copied_ == round; }
  void stop_catching_up() { catching_up_.reset(); }

  void advance(Round round, const Digest& digest, std::uint64_t data_to);
  // What is in memory is not the state of a committed round any more.
  void drop() { held_ = false; }
  // The coordinator assigned what this island had in an earlier life. It is gone, and the coordinator has to hear of it.
  void miss(Epoch epoch, Round round, Error error) {
    from_ = StartFrom::memory;
    say_failure(epoch, round, std::move(error));
  }
  // It begins from its peers, whatever it began from; the coordinator hears why.
  void lose(Epoch epoch, Error error);

  // A place in the run, of the part of the data that it had already or of another one.
  void assign(const Invite& message, bool same_part);
  // How far the data are committed: the coordinator says so of the state that all share; of a state of its own nobody but the island does.
  void count(std::uint64_t told);
  void count_own(std::uint64_t position);

  void say(Epoch epoch) { said_ = report(epoch); }
  void say_failure(Epoch epoch, Round round, Error error) {
    said_ = CaughtUp{terms_->id, epoch, round, Digest{}, std::move(error), entry_};
  }
  void unsay() { said_.reset(); }

 private:
  const RunTerms* terms_;
  StateOf of_;
  std::uint64_t entry_;
  StartFrom from_;
  bool held_ = false;
  Round committed_;
  Digest digest_;
  Epoch since_;
  std::uint64_t counted_;
  std::uint64_t assigned_;  // what counted_ is once this island has the state that it was last assigned
  std::optional<Digest> initial_;
  bool asked_ = false;
  std::optional<CatchUp> catching_up_;
  std::uint64_t catch_up_number_ = 0;
  std::optional<Round> copied_;
  std::optional<Round> restoring_;
  std::optional<CaughtUp> said_;
};

}  // namespace atl::agent
