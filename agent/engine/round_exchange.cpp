#include "agent/engine/round_exchange.hpp"

#include <algorithm>

#include "strategies/aggregate.hpp"
#include "transport/base/planted.hpp"

namespace atl {
namespace {

// See the cost lines of transport/bulk/exchange_attempt.hpp.
std::uint64_t bytes_others_read(const ExchangePlan& plan, std::size_t self) {
  const std::vector<std::size_t>& shards = plan.layout.shards;
  const auto shard_bytes = [&](const std::vector<std::uint64_t>& ends, std::size_t member) {
    return ends[shards[member + 1]] - ends[shards[member]];
  };
  const std::size_t members = plan.members.size();
  const bool contributes = plan.weights[self] > 0;
  if (members <= 2) {
    return contributes ? (members - 1) * plan.layout.contribution.back() : 0;
  }
  const std::uint64_t others = contributes ? plan.layout.contribution.back() - shard_bytes(plan.layout.contribution, self) : 0;
  return others + (members - 1) * shard_bytes(plan.layout.reduced, self);
}

}  // namespace

Result<std::unique_ptr<RoundExchange>> RoundExchange::begin(const agent::BeginExchange& order, const IslandRun& run, const IslandId& self,
                                                            BlobStore& store, TimePoint now) {
  std::unique_ptr<RoundExchange> round(new RoundExchange(order, now));
  const Composition& composition = run.composition();
  if (!run.layout() || order.fragment >= run.layout()->fragments().size() || order.members.size() != order.tokens.size()) {
    return Error{Code::internal, "the exchange of round " + std::to_string(order.round.value) + " does not fit the run"};
  }
  const bool merges = run.merges(order.round);  // exactly, and by tokens
  round->codec_ = merges ? CodecSettings{} : composition.codec;
  round->reduce_codec_ = merges ? CodecSettings{} : composition.reduce_codec;
  round->values_ = run.layout()->fragments()[order.fragment].count;
  std::vector<std::uint64_t> contributors;
  std::copy_if(order.tokens.begin(), order.tokens.end(), std::back_inserter(contributors), [](std::uint64_t tokens) { return tokens > 0; });
  round->aggregator_ = merges ? Aggregator::weighted_mean : composition.aggregator;
  ATOLL_ASSIGN(round->weights_, contribution_weights(contributors, merges ? Weighting::tokens : composition.weighting));

  ExchangePlan plan;
  plan.run = order.run;
  plan.epoch = order.epoch;
  plan.round = order.round;
  plan.attempt = order.attempt;
  plan.self = self;
  plan.weights = order.tokens;
  Payload own;
  for (std::size_t i = 0; i < order.members.size(); ++i) {
    plan.members.push_back(order.members[i].island);
    if (order.members[i].island == self && order.tokens[i] > 0) {
      const Contribution* contribution = run.contribution(order.round);
      if (contribution == nullptr || contribution->fragment != order.fragment) {
        return Error{Code::conflict, "this island has no contribution to round " + std::to_string(order.round.value)};
      }
      own = contribution->encoded;
    }
  }
  const auto bytes_in = [](const CodecSettings& codec) { return [codec](std::uint64_t count) { return encoded_bytes(codec, count); }; };
  plan.layout = cut_pieces(round->values_, plan.members.size(), shard_granularity(round->codec_, round->reduce_codec_),
                           bytes_in(round->codec_), bytes_in(round->reduce_codec_));
  const auto own_place = std::find(plan.members.begin(), plan.members.end(), self);
  if (own_place == plan.members.end()) {
    return Error{Code::internal, "this island is not a member of the exchange of round " + std::to_string(order.round.value)};
  }
  round->bytes_to_serve_ = bytes_others_read(plan, static_cast<std::size_t>(own_place - plan.members.begin()));
  round->served_before_ = store.bytes_served(order.run);
  RoundExchange* self_pointer = round.get();
  const auto reduce = [self_pointer](const ReducePiece& piece) { return self_pointer->reduce(piece); };
  ATOLL_ASSIGN(round->attempt_, ExchangeAttempt::begin(std::move(plan), std::move(own), reduce, store, now));
  return round;
}

std::optional<ReduceFailure> RoundExchange::reduce(const ReducePiece& piece) {
  std::vector<EncodedTerm> terms;
  for (std::size_t i = 0; i < piece.contributions.size(); ++i) {
    if (const Status checked = check_encoded(codec_, piece.contributions[i], piece.elements); !checked) {
      return ReduceFailure{i, checked.error()};
    }
    terms.push_back({piece.contributions[i], weights_[i]});
  }
  sum_.resize(static_cast<std::size_t>(piece.elements));
  aggregate(aggregator_, codec_, terms, 0, sum_, scratch_);
  if (const Status encoded = encode(reduce_codec_, sum_, piece.reduced); !encoded) {
    return ReduceFailure{0, with_context(encoded.error(), "the sum of the contributions")};
  }
  return std::nullopt;
}

const RoundResult& RoundExchange::result() {
  if (!result_) {
    ATOLL_CHECK(attempt_->done(), "the result of an exchange is asked for once it is there");
    outcome_ = attempt_->result();
    RoundResult result;
    result.round = order_.round;
    result.fragment = order_.fragment;
    result.values = values_;
    result.codec = outcome_.gathered ? codec_ : reduce_codec_;
    for (std::size_t i = 0; i < outcome_.parts.size(); ++i) {
      const float weight = outcome_.gathered && !ATOLL_PLANTED(weights_forgotten) ? weights_[i] : 1.0F;
      result.terms.push_back({outcome_.parts[i].bytes, weight});
    }
    result_ = std::move(result);
  }
  return *result_;
}

Digest RoundExchange::digest(const Digest& previous) {
  if (!digest_) {
    digest_ = digest_after(previous, result());
  }
  return *digest_;
}

}  // namespace atl
