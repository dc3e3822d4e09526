#include "strategies/aggregate.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "strategies/codec_kernels.hpp"
#include "strategies/invalid.hpp"

namespace atl {
namespace {

void weighted_mean(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t at, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  for (const EncodedTerm& term : terms) {
    kernels::decode_accumulate(codec, term.bytes.data() + at, term.weight, out.size(), out.data());
  }
}

// At each end.
std::size_t trimmed(std::size_t contributions) { return contributions == 0 ? 0 : (contributions - 1) / 3; }

// Before another in the order of values; what is no number is the largest.
bool less(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

// `column`: one value of each term. Its order is given up.
float mean_of_middle(std::span<std::pair<float, std::uint32_t>> column, std::span<const EncodedTerm> terms) {
  const std::size_t k = trimmed(column.size());
  std::sort(column.begin(), column.end(),
            [](const auto& a, const auto& b) { return less(a.first, b.first) || (!less(b.first, a.first) && a.second < b.second); });
  const std::span<std::pair<float, std::uint32_t>> kept = column.subspan(k, column.size() - 2 * k);
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  float weighted = 0.0F;
  float plain = 0.0F;
  float weights = 0.0F;
  for (const auto& [value, member] : kept) {
    weighted += terms[member].weight * value;
    plain += value;
    weights += terms[member].weight;
  }
  return weights > 0.0F ? weighted / weights : plain / static_cast<float>(kept.size());
}

void trimmed_mean(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t at, std::span<float> out,
                  std::vector<float>& scratch) {
  scratch.resize(terms.size() * out.size());
  for (std::size_t member = 0; member < terms.size(); ++member) {
    kernels::decode(codec, terms[member].bytes.data() + at, out.size(), scratch.data() + member * out.size());
  }
  std::vector<std::pair<float, std::uint32_t>> column(terms.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::uint32_t member = 0; member < terms.size(); ++member) {
      column[member] = {scratch[member * out.size() + i], member};
    }
    out[i] = mean_of_middle(column, terms);
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
    case Aggregator::trimmed_mean:
      return 4;
  }
  return 1;
}

void aggregate(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first,
               std::span<float> out, std::vector<float>& scratch) {
  const std::uint64_t at = encoded_bytes(codec, first);
  if (terms.size() == 1 && terms[0].weight == 1.0F) {
    kernels::decode(codec, terms[0].bytes.data() + at, out.size(), out.data());
    return;
  }
  switch (aggregator) {
    case Aggregator::weighted_mean:
      break;
    case Aggregator::trimmed_mean:
      if (trimmed(terms.size()) == 0) {
        break;
      }
      trimmed_mean(codec, terms, at, out, scratch);
      return;
  }
  weighted_mean(codec, terms, at, out);
}

void take_from_one(std::span<const BufferRange> buffers, const CodecSettings& codec, std::span<const EncodedTerm> terms,
                   std::uint64_t first, std::uint64_t position, std::span<float> out, std::vector<float>& scratch) {
  if (terms.size() < 2) {
    return;
  }
  const std::uint64_t end = position + out.size();
  bool decoded = false;
  for (const BufferRange& range : buffers) {
    const std::uint64_t from = std::max(range.offset, position);
    const std::uint64_t to = std::min(range.offset + range.count, end);
    if (range.share != BufferShare::one || from >= to) {
      continue;
    }
    if (!decoded) {
      scratch.resize(out.size());
      kernels::decode(codec, terms[0].bytes.data() + encoded_bytes(codec, first), out.size(), scratch.data());
      decoded = true;
    }
    std::copy_n(scratch.begin() + static_cast<std::ptrdiff_t>(from - position), to - from,
                out.begin() + static_cast<std::ptrdiff_t>(from - position));
  }
}

}  // namespace atl
