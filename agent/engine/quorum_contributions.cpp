// What an island has of rounds that close with a quorum: contributions in memory of their own, which may be formed anew or go into a later
// round, and results that are applied while the trainer has the arena.
#include <algorithm>
#include <limits>
#include <utility>

#include "agent/engine/island_run.hpp"
#include "strategies/contribution.hpp"
#include "transport/base/rng.hpp"

namespace atl {

// Where rounds close with a quorum: in memory of its own, as the trainer may take a newer result from the arena before it is exchanged.
Result<Contribution> IslandRun::form_apart(Round round, const island_link::Fragment& range, ContributionFacts facts) {
  const std::span<const float> published = arena_->range(range);
  auto values = std::make_shared<std::vector<float>>(published.begin(), published.end());
  const auto older = composition_.anchor == Anchor::own ? bases_.find(facts.fragment) : bases_.end();
  const std::span<const float> base =
      older == bases_.end() ? outer_.parameters().subspan(range.offset, range.count) : older->second.parameters.floats();
  ATOLL_ASSIGN(const ContributionSummary summary, form_outer_gradient(base, *values));
  facts.fingerprint = fingerprint_of(*values);
  facts.base = older == bases_.end() ? round_ : older->second.round;
  ATOLL_ASSIGN(Payload encoded, encode_values(round, values));
  ATOLL_ASSIGN(facts.norm, counted_norm(round, range, facts.fragment, summary.norm, encoded.bytes));
  Contribution formed{facts, std::move(encoded)};
  if (composition_.anchor == Anchor::newest) {
    formed.values = std::move(values);
  }
  return formed;
}

Result<Payload> IslandRun::encode_values(Round round, const std::shared_ptr<std::vector<float>>& values) const {
  if (composition_.codec.kind == CodecKind::f32) {
    return Payload{std::as_bytes(std::span(*values)), values};
  }
  ATOLL_ASSIGN(Bytes bytes, encoding_of(composition_.codec, *values, {0, spec_.seed ^ stream_of(island_.text, round.value)}));
  return payload_of(std::move(bytes));
}

// The fragment's outer parameters were `before` until round `round`: what the trainer published is as far from the new ones as it was, and
// as they have moved. In memory of its own: somebody may be reading what was formed before.
void IslandRun::form_anew(std::uint32_t fragment, std::span<const float> before, Round round) {
  const island_link::Fragment& range = layout_->fragments()[fragment];
  const std::span<const float> now = outer_.parameters().subspan(range.offset, range.count);
  for (auto& [number, contribution] : contributions_) {
    if (contribution.facts.fragment != fragment || number <= round || contribution.facts.base >= round || !contribution.values) {
      continue;
    }
    auto values = std::make_shared<std::vector<float>>(*contribution.values);
    for (std::size_t i = 0; i < values->size(); ++i) {
      (*values)[i] += now[i] - before[i];
    }
    const Result<ContributionSummary> summary = summarise_contribution(*values);
    Result<Payload> encoded = summary ? encode_values(number, values) : Result<Payload>(summary.error());
    const Result<double> norm = encoded ? counted_norm(number, range, fragment, summary->norm, encoded->bytes) : encoded.error();
    contribution.facts.base = round;
    if (!norm) {
      reformed_.emplace_back(number, std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    contribution.facts.norm = *norm;
    contribution.encoded = *std::move(encoded);
    contribution.values = std::move(values);
    reformed_.emplace_back(number, *norm);
  }
}

void IslandRun::postpone_contribution(Round round, Round to) {
  if (auto taken = contributions_.extract(round); taken && to > Round(0)) {
    taken.key() = to;
    contributions_.erase(to);
    contributions_.insert(std::move(taken));
  }
}

Status IslandRun::apply_behind(const RoundResult& result, const Digest& digest) {
  ATOLL_ASSIGN(const island_link::Fragment range, next_range(result));
  ATOLL_TRY(keep_base(result.fragment, range));
  ATOLL_TRY(take_step(result, range, nullptr));
  advance_to(result.round, digest, result.fragment);
  return {};
}

Status IslandRun::offer(std::uint32_t fragment) {
  if (!has_state_ || !arena_) {
    return Error{Code::conflict, "run " + id_.text + ": there is no outer state or no arena to offer parameters in"};
  }
  ATOLL_ASSIGN(const island_link::Fragment range, range_of(fragment));
  std::ranges::copy(outer_.parameters().subspan(range.offset, range.count), arena_->range(range).begin());
  bases_.erase(fragment);
  return {};
}

}  // namespace atl
