// One attempt of one round, for one member: from everyone's encoded contribution to the same result on every island.
//
// The exchanged vector is cut into pieces and shards (exchange_plan.hpp).
//   gather (P ≤ 2): everyone reads the other's whole contribution; the result is the contributions themselves, in member order.
//   direct (P > 2): member j reads its shard from every contributor, reduces it piece by piece in member order as soon as a piece
//     is there from all, and serves the encoded sum; everyone reads the shards of the others from their owners.
//   two levels (where the plan has a grid): member j reads its column's strip from every contributor of its group and sums it, and serves
//     the encoded sum to its column; it reads its shard of those sums from the other groups, sums them in the order of the groups' first
//     contributors, and serves the encoded sum; what its column has of the strip it reads and serves on to its group; everyone reads the
//     other strips from its own group. Sums of groups travel in the codec of results: a value is rounded once more than on one level, about
//     as much as the last rounding does.
// Members with weight 0 contribute nothing, own a shard like everyone, and receive.
// The machine asks (Wants) and serves (its link's BlobStore); losing, repeating, delaying and reordering frames changes nothing but
// the time. Frames of another run, epoch, round or attempt are not its own and are dropped.
//
// Copies of a parameter's bytes: none here. Contributions are read in place by the store; what arrives is written by the link
// to a slot (to be reduced) or to its place in the result; `reduce` writes to the result, from which it is served.
// Each contributor is read ahead of what is reduced by as much as the path to it holds (path_window.hpp), so that one that is near does not
// wait for one that is far. A slot is taken when a piece arrives and given back when it is reduced; the one used last is used next, while
// it is in the cache. Memory (direct): the result + what arrived and is not reduced yet, at most (contributors − 1) ·
// `reduce_window_bytes`; where windows follow the paths, at most their budget, but two pieces of each contributor. On two
// levels the terms are the group's contributions and the other groups' sums, and the sum of the own group takes a strip more.
// Cost, payload bytes received by member j, S_j being its shard, E the encoded contribution, R the encoded result:
//   gather: E of the other contributor;  direct: (contributors other than j) · E(S_j) + R − R(S_j).
//   Equal shards, all contributing, E = R = b·N/8: 2·(P−1)/P · b·N/8, the same as sent; two hops for any P.
//   two levels, C columns, G groups, T_j its strip:
//     (contributors in the group other than j) · E(T_j) + (G − 1) · R(S_j) + R(T_j) − R(S_j) + R − R(T_j).
//   P = C·G, all contributing, E = R: 2·(P−1)/P · b·N/8, the same as on one level; four hops, and at most 2·√P + 3 peers.
//
// Sans-I/O: time is an argument; nothing blocks but `reduce`. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/bytes.hpp"
#include "transport/base/ids.hpp"
#include "transport/base/result.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/bulk/exchange_plan.hpp"
#include "transport/bulk/receive_buffers.hpp"
#include "transport/bulk/transfer.hpp"
#include "transport/bulk/want_schedule.hpp"

namespace atl {

// What is summed.
enum class SumOf : std::uint8_t {
  all,     // the contributions of all members
  group,   // on two levels: the contributions of the own group
  groups,  // and then the sums of all groups that contribute, encoded as results are
};

// What `reduce` gets: one piece of every term, in member order; of groups' sums in the order of the groups' first contributors.
struct ReducePiece {
  std::size_t piece = 0;
  std::uint64_t first_element = 0;
  std::uint64_t elements = 0;
  std::span<const ByteView> contributions;
  std::span<const std::uint64_t> weights;  // same order; a group's sum counts once
  std::span<std::byte> reduced;            // to be filled: the encoded sum
  SumOf of = SumOf::all;
  std::span<const std::size_t> contributors = {};  // of contributions: which each is among those of the attempt
};

// Bytes of a part of the result that are there, and will not change while the exchange goes on.
struct ResultBytes {
  std::size_t part = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// A term that cannot be used, and which of the piece's it is.
struct ReduceFailure {
  std::size_t term = 0;
  Error error;
};
using Reduce = std::function<std::optional<ReduceFailure>(const ReducePiece&)>;

// What an exchange ends with. Views live as long as `owner`s.
struct ExchangeResult {
  bool gathered = false;  // parts are contributions, still to be summed in order; else one part, the encoded sum
  std::vector<Payload> parts;
  std::vector<std::uint64_t> weights;  // of the contributors, in member order (gathered: of the parts)
};

struct ExchangeFailure {
  IslandId accused;  // who sent what cannot be used or refused; may be empty
  Error error;
};

struct Stall {
  IslandId accused;
  TimePoint since;
  bool contribution = false;  // its own, which depends on nobody else
  std::string why;            // "no piece of its contribution for 12 s"
};

struct ExchangeProgress {
  std::uint64_t bytes_received = 0;  // payload, as it travelled
  // Who delivered the last piece of a contribution, and when: what is summed from them comes later from whoever sums it, who waits for
  // the same slow link. Where this member reads no contributions: of all pieces.
  IslandId slowest = {};
  TimePoint slowest_at;
  std::uint64_t bytes_to_receive = 0;  // unpacked
  std::size_t pieces_reduced = 0;
  std::size_t pieces_to_reduce = 0;
};

class ExchangeAttempt final : public Transfer {
 public:
  struct Settings {
    WantSettings wants;                              // per peer and blob
    std::shared_ptr<ReceiveBuffers> buffers;         // of earlier rounds, for what is received; empty: fresh ones
    std::uint64_t reduce_window_bytes = 8ULL << 20;  // read ahead per contributor where windows are fixed; at least two pieces
  };

  // Begins the attempt: puts the contribution (size layout.contribution's total; empty if this member's weight is 0) and the own reduced
  // shard into the store, where they stay when the object ends: others may still read them. A later attempt of the round or
  // BlobStore::finish_rounds_before takes them out. `reduce` is called only in the direct form.
  // Errors: invalid_argument (self not a member, sizes that do not fit, no contributor).
  static Result<std::unique_ptr<ExchangeAttempt>> begin(ExchangePlan plan, Payload contribution, Reduce reduce, BlobStore& store,
                                                        TimePoint now, const Settings& settings);
  static Result<std::unique_ptr<ExchangeAttempt>> begin(ExchangePlan plan, Payload contribution, Reduce reduce, BlobStore& store,
                                                        TimePoint now) {
    return begin(std::move(plan), std::move(contribution), std::move(reduce), store, now, Settings{});
  }
  ~ExchangeAttempt() override;

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint now, const IslandId& peer) override;
  void not_sent(TimePoint now, const OutgoingWant& want) override;
  [[nodiscard]] bool reads(const BlobId& blob) const override;
  std::vector<OutgoingWant> take_wants(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const override;

  // Reduces at most one piece; false if none is complete.
  bool reduce_one();

  [[nodiscard]] bool on_two_levels() const;
  [[nodiscard]] bool done() const;
  [[nodiscard]] const std::optional<ExchangeFailure>& failure() const;
  // Valid once done.
  [[nodiscard]] ExchangeResult result() const;
  // The memory of its parts, which stays where it is from the beginning on; of what is there `take_ready` tells, each byte once.
  [[nodiscard]] std::vector<Payload> parts() const;
  [[nodiscard]] std::vector<ResultBytes> take_ready();
  [[nodiscard]] ExchangeProgress progress() const;
  // Who has delivered nothing for `longer_than` though asked. A missing contribution comes first: it depends on nobody else, whereas
  // a sum may itself wait for a third member. On two levels sums are given twice as long: most of those who wait for one have nothing to do
  // with the member that does not deliver, and would accuse another.
  [[nodiscard]] std::vector<Stall> stalled(TimePoint now, Duration longer_than) const;

 private:
  struct State;
  explicit ExchangeAttempt(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace atl
