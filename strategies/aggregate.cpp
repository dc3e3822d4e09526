#include "strategies/aggregate.hpp"

#include <algorithm>
#include <string>

#include "strategies/codec_kernels.hpp"

namespace atl {
namespace {

Error invalid(std::string why) { return {Code::invalid_argument, std::move(why)}; }

void weighted_mean(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t at, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  for (const EncodedTerm& term : terms) {
    kernels::decode_accumulate(codec, term.bytes.data() + at, term.weight, out.size(), out.data());
  }
}

}  // namespace

Result<std::vector<float>> contribution_weights(std::span<const std::uint64_t> tokens, Weighting weighting) {
  if (tokens.empty()) {
    return invalid("a mean needs at least one contribution");
  }
  if (weighting == Weighting::uniform) {
    return std::vector<float>(tokens.size(), static_cast<float>(1.0 / static_cast<double>(tokens.size())));
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t count : tokens) {
    if (sum + count < sum) {
      return invalid("the members' tokens sum to more than 64 bits hold");
    }
    sum += count;
  }
  if (sum == 0) {
    return invalid("no member has trained on any token since the last round, so their contributions have no weights");
  }
  std::vector<float> weights;
  weights.reserve(tokens.size());
  for (const std::uint64_t count : tokens) {
    weights.push_back(static_cast<float>(static_cast<double>(count) / static_cast<double>(sum)));
  }
  return weights;
}

std::uint32_t least_contributions(Aggregator aggregator) {
  switch (aggregator) {
    case Aggregator::weighted_mean:
      break;
  }
  return 1;
}

void aggregate(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first,
               std::span<float> out, std::vector<float>& /*scratch*/) {
  const std::uint64_t at = encoded_bytes(codec, first);
  if (terms.size() == 1 && terms[0].weight == 1.0F) {
    kernels::decode(codec, terms[0].bytes.data() + at, out.size(), out.data());
    return;
  }
  switch (aggregator) {
    case Aggregator::weighted_mean:
      break;
  }
  weighted_mean(codec, terms, at, out);
}

}  // namespace atl
