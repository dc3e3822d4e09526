// A round of a pair: two islands exchange directly and come to one decision, with nobody else on the way.
//
// Who meets whom follows from strategies/pairing.hpp. Each serves its outer parameters as soon as its round before is over, and its
// outer gradient when its trainer has reached the round's step; each reads the other's as they come, so that only the gradient of
// the later one is on the path. Then the two decide: *met* (both take the step with what both sent) or *alone* (each takes its
// step with its own gradient). One of the two, the one with the lower id, is the decider; the other promises.
//
//     promiser                                             decider
//     1. has arrived at the step, has all of the decider's, finite
//        → puts promise 1: it will do what is decided
//                                                          2. has arrived, has all of the promiser's, finite, and its promise 1
//                                                             → met: puts verdict 1, takes the step
//     3. reads verdict 1 → met, takes the step
//
// Either may go alone by itself as long as it has bound nobody: the decider until it has put verdict 1, the promiser until it has put
// promise 1. It does so when the deadline after its own arrival has passed; when the other says no (promise 0, verdict 0) or refuses
// what it is asked for (it is past this round, or in a later epoch); when the other is more than max_skew rounds behind; when
// what came is not finite, or of a norm out of all proportion; when its own contribution does not count; when the epoch changes. It
// says so (verdict 0 or promise 0) and does not change its mind.
//
// After promise 1 the promiser cannot know by itself what was decided. It asks until it reads the verdict, which the decider serves as
// long as the run is open. If the path between the two is cut, the verdict comes by way of the coordinator (`settle`). If the decider
// left the epoch, the promiser goes alone (`abandon`): whoever left comes back with the state of another island and not
// with its own, so what it had decided is void. Only while the path is cut *and* the coordinator is away does the promiser wait:
// no protocol can spare it that (two generals). Its trainer goes on to the next step at which it needs the result.
//
// So for every pair of islands that are in the run: never one met and the other alone. Loss, repetition, reordering and
// delay of frames change nothing but the time. tests/sim/pair_test.cpp looks from outside.
//
// Memory: 2 encoded gradients and 2 encoded outer parameters of the fragment. Bytes: strategies/noloco.hpp; beside them 10 bytes.
// Sans-I/O: time is an argument; nothing blocks. Threads: one.
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
#include "transport/blob_store.hpp"
#include "transport/bulk_link.hpp"
#include "transport/want_schedule.hpp"

namespace atl {

struct PairPlan {
  RunId run;
  Epoch epoch;
  Round round;
  IslandId self;
  IslandId partner;
  std::uint64_t values = 0;        // of the fragment; at least 1
  CodecSettings codec;             // of outer gradients
  CodecSettings parameters_codec;  // of outer parameters
  std::uint64_t max_skew = 2;      // rounds that a partner may be behind and still be waited for
};

struct PairOutcome {
  bool met = false;
  std::string why;        // alone: why, for a person
  bool rejected = false;  // alone, because the partner's contribution cannot be used
};

class PairExchange final : public PieceReceiver {
 public:
  // Serves `parameters` (encoded) and this island's standing, and begins to read. Everything it serves stays in the store when
  // the object ends; BlobStore::finish_rounds_before takes the large ones out.
  PairExchange(PairPlan plan, Payload parameters, BlobStore& store, TimePoint now);
  ~PairExchange() override;

  // The trainer has reached the step. `gradient` (encoded) must stay unchanged until the outcome. A partner's gradient that `guard` is
  // against is not met.
  void arrive(Payload gradient, TimePoint now, TimePoint deadline, const NormGuard& guard = {});
  // The trainer has reached the step, and what it made does not count: the partner is told no, and the outcome is there.
  void withdraw(TimePoint now);
  // The partner left the epoch, or (partner_left false) the epoch changed otherwise: then a promise that was given stands.
  void abandon(bool partner_left, const std::string& why);
  // The decider's verdict, learned another way. Without effect on the decider.
  void settle(bool met);

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint now, const IslandId& peer) override;
  void not_sent(TimePoint now, const OutgoingWant& want);

  [[nodiscard]] bool reads(const BlobId& blob) const;
  // Decides what time decides, and says what to send now.
  std::vector<OutgoingWant> take_wants(TimePoint now);
  // When take_wants should be called again at the latest.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;

  // Only after `arrive`.
  [[nodiscard]] const std::optional<PairOutcome>& outcome() const { return outcome_; }
  // The partner has come to the round's step, or is past the round. Also before `arrive`.
  [[nodiscard]] bool partner_ahead() const { return ahead_ || sources_[kGradient].schedule->done(); }
  // Promised, and waits for the verdict since then.
  [[nodiscard]] std::optional<TimePoint> in_doubt_since() const { return outcome_ ? std::nullopt : promised_; }
  [[nodiscard]] bool decider() const { return plan_.self < plan_.partner; }
  [[nodiscard]] const PairPlan& plan() const { return plan_; }
  // What the partner sent, encoded; valid once met. The own parameters as they were served.
  [[nodiscard]] ByteView gradient() const { return sources_[kGradient].bytes; }
  [[nodiscard]] ByteView parameters() const { return sources_[kParameters].bytes; }
  [[nodiscard]] ByteView own_parameters() const { return own_parameters_.bytes; }
  // Of the partner's gradient; 0 without a guard.
  [[nodiscard]] double norm() const { return norm_.value_or(0); }
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  [[nodiscard]] std::uint64_t bytes_to_serve() const;

 private:
  // What is read from the partner, as indices of sources_.
  enum : std::size_t { kParameters, kGradient, kWord, kStanding, kSources };  // kWord: the promise, or the verdict
  struct Source {
    std::optional<WantSchedule> schedule;
    Bytes bytes;
  };

  [[nodiscard]] BlobId blob(BlobKind kind, std::uint32_t part) const;
  void read(std::size_t source, const BlobId& blob, std::uint64_t size, TimePoint now);
  Source* source_of(const IslandId& from, const BlobId& blob);
  void say(BlobKind kind, bool yes);
  void advance(TimePoint now);
  void go_alone(std::string why);
  void reject(const std::string& why);
  void check_standing(TimePoint now);
  [[nodiscard]] bool bound() const { return promised_.has_value(); }

  PairPlan plan_;
  BlobStore& store_;
  Payload own_parameters_;
  Payload own_gradient_;
  std::vector<Source> sources_;
  std::optional<TimePoint> deadline_;  // after arrival
  std::optional<TimePoint> promised_;
  std::optional<std::string> hopeless_;  // why it will not come to a meeting, known before the arrival
  bool rejected_ = false;                // that is because of what the partner sent
  NormGuard guard_;
  std::optional<double> norm_;  // of the partner's gradient, where it was looked at
  bool ahead_ = false;                   // the partner is done with this round, one way or the other
  std::optional<TimePoint> ask_standing_;
  std::optional<PairOutcome> outcome_;
  std::uint64_t bytes_received_ = 0;
};

}  // namespace atl
