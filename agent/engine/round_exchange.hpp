// One attempt of a round on this island: the contribution goes out, the result comes in, the digest is taken.
//
// Wraps transport's ExchangeAttempt with the run's codecs and weights. It holds the result until the round is committed or the attempt is
// void; until then others may still read this island's part of it.
// Threads: one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "agent/core/effect.hpp"
#include "agent/engine/island_run.hpp"
#include "agent/engine/result_digest.hpp"
#include "transport/bulk/exchange_attempt.hpp"

namespace atl {

class RoundExchange {
 public:
  // Errors: those of ExchangeAttempt::begin; conflict if this island has a weight but no contribution.
  static Result<std::unique_ptr<RoundExchange>> begin(const agent::BeginExchange& order, const IslandRun& run, const IslandId& self,
                                                      BlobStore& store, TimePoint now, const ExchangeAttempt::Settings& settings,
                                                      std::size_t one_level_members = kOneLevelMembers);

  [[nodiscard]] ExchangeAttempt& attempt() { return *attempt_; }
  [[nodiscard]] const agent::BeginExchange& order() const { return order_; }
  // Valid once the attempt is done: the result, and its digest after `previous`.
  [[nodiscard]] const RoundResult& result();
  // That its terms can be used. `contributor` is whose contribution cannot be; none where the terms are sums.
  [[nodiscard]] Status check_result(std::optional<std::size_t>& contributor, const InParts& in_parts);
  [[nodiscard]] Digest digest(const Digest& previous, const InParts& in_parts);
  // Of what each member gave to the result, in the order's order, so that a result that differs from another's names who made the
  // difference; an empty one: nothing. On two levels: of each column's strip, and, of a member of a column, of the shards of its strip
  // in the order of the groups. Once the digest was taken.
  [[nodiscard]] std::vector<Digest> part_digests() const;
  // Hashes some of what has come of the result; false: there is nothing to hash.
  bool hash_some();
  // By which this island's own contribution counts; 0: it does not.
  [[nodiscard]] float own_weight(const IslandId& self) const;
  [[nodiscard]] TimePoint started() const { return started_; }
  // Payload bytes that the others read from this island in this attempt, all of them together; 0 where they are packed, and nobody
  // knows how many there will be: what others read after the attempt is over counts with a later round then.
  [[nodiscard]] std::uint64_t bytes_to_serve() const { return bytes_to_serve_; }
  [[nodiscard]] std::uint64_t served_before() const { return served_before_; }

  bool reported = false;  // the core was told how it ended

 private:
  RoundExchange(agent::BeginExchange order, TimePoint started) : order_(std::move(order)), started_(started) {}

  // How much each contributor counts. Errors: as contribution_weights; conflict without the numbers that the strategy needs.
  Status weigh(const IslandRun& run);
  // Whether its norm is compared with what was said.
  [[nodiscard]] bool judges(std::size_t contributor) const;
  // Of a contribution, or of a part of one, which can be used: its norm if that is judged, else 0. Cost: one pass.
  [[nodiscard]] Result<double> look_at(std::size_t contributor, ByteView bytes, std::uint64_t values,
                                       const InParts& in_parts = one_after_another) const;
  // That its norm is not beyond what was said. Takes the norm of a part of it.
  [[nodiscard]] Status check_told(std::size_t contributor, double norm) const;
  // Puts one piece of all contributions together, or of a group's, or of the groups' sums, and encodes it.
  std::optional<ReduceFailure> reduce(const ReducePiece& piece);
  std::optional<ReduceFailure> sum_contributions(const ReducePiece& piece);
  std::optional<ReduceFailure> sum_groups(const ReducePiece& piece);

  agent::BeginExchange order_;
  TimePoint started_;
  std::uint64_t served_before_ = 0;
  std::uint64_t bytes_to_serve_ = 0;
  CodecSettings codec_;         // of contributions
  CodecSettings reduce_codec_;  // of sums
  std::uint64_t values_ = 0;
  std::vector<BufferRange> buffers_;
  std::vector<float> weights_;      // of the contributors
  std::vector<double> norms_;       // theirs, where the aggregator counts them
  std::optional<std::size_t> own_;  // this island's place among the contributors; nothing: it only receives
  double most_ = 0;                 // no contribution has a larger norm, as far as was said; 0: nothing was
  std::vector<double> squares_;     // of the contributors: of what was summed of each, so far
  double length_ = 0;               // the R of all of them (radial_length)
  Aggregator aggregator_ = Aggregator::weighted_mean;
  std::vector<float> sum_;      // one piece
  std::vector<float> scratch_;  // of the aggregator
  std::unique_ptr<ExchangeAttempt> attempt_;
  ExchangeResult outcome_;
  std::optional<RoundResult> result_;
  std::vector<ByteView> parts_;         // of the result, where they lie or will
  std::optional<ResultDigest> hashes_;  // what of them was hashed while they came
  std::optional<Digest> digest_;
  std::vector<ResultBytes> parts_given_;  // of a sum: those of part_digests()
};

}  // namespace atl
