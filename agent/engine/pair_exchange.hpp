// A round of a pair: two islands exchange directly and come to one decision, with nobody else on the way. A group of n > 2 does alike.
//
// Who meets whom follows from strategies/pairing.hpp. Each serves its outer parameters as soon as its round before is over, and its
// outer gradient when its trainer has reached the round's step; each reads the others' as they come, so that only the gradient of
// the last one is on the path. Then they decide: *met* (all take the step with what all sent) or *alone* (each takes its
// step with its own gradient). One of them, the first in the order of the members, is the decider; the others promise.
//
//     promiser                                             decider
//     1. has arrived at the step, has everything of all
//        others, finite
//        → puts promise 1: it will do what is decided
//                                                          2. has arrived, has everything of all others, finite, and all their promises 1
//                                                             → met: puts verdict 1, takes the step
//     3. reads verdict 1 → met, takes the step
//
// Any may go alone by itself as long as it has bound nobody: the decider until it has put verdict 1, a promiser until it has put
// promise 1. It does so when the deadline after its own arrival has passed; when another says no (promise 0, verdict 0) or refuses
// what it is asked for (it is past this round, or in a later epoch); when another is more than max_skew rounds behind; when
// what came is not finite, or of a norm out of all proportion; when its own contribution does not count; when the epoch changes. It
// says so (verdict 0 or promise 0) and does not change its mind.
//
// After promise 1 a promiser cannot know by itself what was decided. It asks until it reads the verdict, which the decider serves as
// long as the run is open. If it does not hear (the path is cut, the decider is dead), it asks all others by way of the coordinator,
// for in a group of more than two another may have read what it has not. Each of them says
//     met, alone   what was decided, and that ends it
//     doubt        that it promised too, and knows no more. It renounces the verdict, should that still come: from then on it believes
//                  only what it hears by this way. Said only in a later epoch than the group's; in that one the decider is to decide
//     voided       that what it was in the group is gone: whoever left the epoch comes back with the state of another island,
//                  or, where everybody was lost, with its own checkpoint
// An island answers in the epoch in which it is asked, or not at all, and an answer counts as long as that is the asker's. Once all others
// that are members have said doubt or voided, or none of them is one, the asker goes alone. For nobody then knows of a meeting, and nobody
// can learn of one: suppose that X, which stays, became met later, the first to do so of those that had said doubt. Not by the verdict,
// which it had renounced, but by the answer of some Y that had not, in an epoch not before the asker's; so Y was a member there already
// with what it had been in the group, the asker had to hear of it, and Y, which knew or was silent, cannot have said doubt. So only while
// the others cannot be reached *and* the coordinator is away does a promiser wait: no protocol can spare it that (two generals). Its
// trainer goes on to the next step at which it needs the result.
//
// So for any two islands of a group that are in the run: never one met and the other alone. Loss, repetition, reordering and
// delay of frames change nothing but the time. tests/sim/pair_test.cpp looks from outside.
//
// Memory: n encoded gradients and n encoded outer parameters of the fragment. Bytes: strategies/noloco.hpp; beside them 10 bytes for each
// other. Sans-I/O: time is an argument; nothing blocks. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/codec.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/base/usual_norms.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/bulk/transfer.hpp"
#include "transport/bulk/want_schedule.hpp"
#include "transport/control/message.hpp"

namespace atl {

struct PairPlan {
  RunId run;
  Epoch epoch;
  Round round;
  IslandId self;
  std::vector<IslandId> group;     // in the order of the members, the same for all of them, this island among them; at least two
  std::uint64_t values = 0;        // of the fragment; at least 1
  CodecSettings codec;             // of outer gradients
  CodecSettings parameters_codec;  // of outer parameters
  std::uint64_t max_skew = 2;      // rounds that another may be behind and still be waited for
  bool packed = false;             // gradients and parameters travel packed (transport/bulk/packing.hpp)

  [[nodiscard]] const IslandId& decider() const { return group.front(); }
};

struct PairOutcome {
  bool met = false;
  std::string why;        // alone: why, for a person
  bool rejected = false;  // alone, because another's contribution cannot be used
};

class PairExchange final : public Transfer {
 public:
  // Serves `parameters` (encoded) and this island's standing, and begins to read. Everything it serves stays in the store when
  // the object ends; BlobStore::finish_rounds_before takes the large ones out.
  PairExchange(PairPlan plan, Payload parameters, BlobStore& store, TimePoint now, WantSettings wants = {});
  ~PairExchange() override;

  // The trainer has reached the step. `gradient` (encoded) must stay unchanged until the outcome. A partner's gradient that `guard` is
  // against is not met.
  void arrive(Payload gradient, TimePoint now, TimePoint deadline, const NormGuard& guard = {});
  // The trainer has reached the step, and what it made does not count: the partner is told no, and the outcome is there.
  void withdraw(TimePoint now);
  // The epoch is another: whoever is not bound goes alone. So does whoever is, if this island is a member and no other of the group is.
  void change_epoch(Epoch epoch, std::span<const IslandId> members, const std::string& why);
  // Another's answer to the question what was decided, asked in this epoch. Without effect on whoever is not in doubt.
  void hear(const IslandId& from, Epoch asked_in, PairWord word);
  // Another asks in this epoch. True if this island is in doubt itself, and may say so: it believes no verdict any more that it reads
  // itself.
  bool renounce(Epoch asked_in);

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint now, const IslandId& peer) override;
  void not_sent(TimePoint now, const OutgoingWant& want) override;
  [[nodiscard]] bool reads(const BlobId& blob) const override;
  std::vector<OutgoingWant> take_wants(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const override;

  // Only after `arrive`.
  [[nodiscard]] const std::optional<PairOutcome>& outcome() const { return outcome_; }
  // One of the others has come to the round's step, or is past the round. Also before `arrive`.
  [[nodiscard]] bool partner_ahead() const;
  // Who was too far behind to wait for; empty: nobody.
  [[nodiscard]] const IslandId& behind() const { return behind_; }
  // Promised, and waits for the verdict since then.
  [[nodiscard]] std::optional<TimePoint> in_doubt_since() const { return outcome_ ? std::nullopt : promised_; }
  // Whom to ask then, and in which epoch.
  [[nodiscard]] std::vector<IslandId> to_ask() const;
  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] const IslandId& first_other() const { return others_.front().id; }
  [[nodiscard]] bool decider() const { return plan_.self == plan_.decider(); }
  [[nodiscard]] const PairPlan& plan() const { return plan_; }
  // What all sent, encoded, in the order of the group, with `own` in this island's place; valid once met.
  [[nodiscard]] std::vector<ByteView> gradients(ByteView own) const;
  [[nodiscard]] std::vector<ByteView> parameters() const;
  // From whom nothing came for so long though this island waits for it: it is late, or its path is away.
  [[nodiscard]] std::vector<IslandId> silent(TimePoint now, Duration longer_than) const;
  // This island's place in the group.
  [[nodiscard]] std::size_t place() const;
  // Of the others' gradients, where there is a guard.
  [[nodiscard]] std::vector<double> norms() const;
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  [[nodiscard]] std::uint64_t bytes_to_serve() const;

 private:
  struct Source {
    std::optional<WantSchedule> schedule;
    Bytes bytes;
    [[nodiscard]] bool done() const { return schedule && schedule->done(); }
  };
  // Another member, and what is read from it.
  struct Other {
    IslandId id;
    Source parameters;
    Source gradient;
    Source word;  // its promise, or of the decider its verdict; of other promisers nothing
    Source standing;
    std::optional<TimePoint> ask_standing;
    std::optional<double> norm;  // of its gradient, where it was looked at
    bool member = true;          // of the newest epoch
    bool knows_nothing = false;  // what it said in that epoch

    template <typename F>
    void each(F&& f) {
      for (Source* source : {&parameters, &gradient, &word, &standing}) {
        if (source->schedule) {
          f(*source);
        }
      }
    }
  };

  [[nodiscard]] BlobId blob(BlobKind kind, std::uint32_t part) const;
  void read(Other& other, Source& source, const BlobId& blob, std::uint64_t size, TimePoint now);
  Other* other_of(const IslandId& from);
  static Source* source_of(Other& other, const BlobId& blob);
  void say(BlobKind kind, bool yes);
  void advance(TimePoint now);
  void go_alone(std::string why);
  void reject(const std::string& why);
  void settle(bool met, std::string why);
  void check_standing(Other& other, TimePoint now);
  bool guards_agree();
  [[nodiscard]] bool bound() const { return promised_.has_value(); }

  PairPlan plan_;
  BlobStore& store_;
  WantSettings wants_;
  Payload own_parameters_;
  Payload own_gradient_;
  std::vector<Other> others_;          // in order
  std::optional<TimePoint> deadline_;  // after arrival
  std::optional<TimePoint> promised_;
  std::optional<std::string> hopeless_;  // why it will not come to a meeting, known before the arrival
  IslandId behind_;
  bool rejected_ = false;  // that is because of what another sent
  NormGuard guard_;
  bool ahead_ = false;  // another is done with this round, one way or the other
  Epoch epoch_;         // newest
  bool renounced_ = false;
  std::optional<PairOutcome> outcome_;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace atl
