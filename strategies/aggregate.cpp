#include "strategies/aggregate.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "strategies/codec_kernels.hpp"
#include "strategies/invalid.hpp"

namespace atl {
namespace {

void weighted_mean(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  for (const EncodedTerm& term : terms) {
    kernels::decode_accumulate(codec, encoded_from(codec, term.bytes, first).data(), term.weight, out.size(), out.data());
  }
}

// The s of radial_directional, or what these terms add to it: `length` is the R of all.
void directions(const CodecSettings& codec, std::span<const EncodedTerm> terms, double length, std::uint64_t first, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  for (const EncodedTerm& term : terms) {
    if (const float weight = weight_in_sum(term, length); weight != 0.0F) {
      kernels::decode_accumulate(codec, encoded_from(codec, term.bytes, first).data(), weight, out.size(), out.data());
    }
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

void trimmed_mean(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first, std::span<float> out,
                  std::vector<float>& scratch) {
  scratch.resize(terms.size() * out.size());
  for (std::size_t member = 0; member < terms.size(); ++member) {
    kernels::decode(codec, encoded_from(codec, terms[member].bytes, first).data(), out.size(), scratch.data() + member * out.size());
  }
  std::vector<std::pair<float, std::uint32_t>> column(terms.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::uint32_t member = 0; member < terms.size(); ++member) {
      column[member] = {scratch[member * out.size() + i], member};
    }
    out[i] = mean_of_middle(column, terms);
  }
}

// `first`: the value of each term that the first of `out` is.
void put_shares(Aggregator aggregator, std::span<const BufferRange> buffers, const CodecSettings& codec, std::span<const EncodedTerm> terms,
                std::uint64_t first, std::uint64_t position, std::span<float> out, std::vector<float>& scratch) {
  const std::uint64_t end = position + out.size();
  for (const BufferShare share : {BufferShare::one, BufferShare::mean}) {
    if (share == BufferShare::mean && aggregator != Aggregator::radial_directional) {
      continue;  // `aggregate` has put them together
    }
    bool decoded = false;
    for (const BufferRange& range : buffers) {
      const std::uint64_t from = std::max(range.offset, position);
      const std::uint64_t to = std::min(range.offset + range.count, end);
      if (range.share != share || from >= to) {
        continue;
      }
      if (!decoded) {
        scratch.resize(out.size());
        if (share == BufferShare::one) {
          kernels::decode(codec, encoded_from(codec, terms[0].bytes, first).data(), out.size(), scratch.data());
        } else {
          weighted_mean(codec, terms, first, scratch);
        }
        decoded = true;
      }
      std::copy_n(scratch.begin() + static_cast<std::ptrdiff_t>(from - position), to - from,
                  out.begin() + static_cast<std::ptrdiff_t>(from - position));
    }
  }
}

std::vector<float> shares_of(std::span<const double> counts) {
  double sum = 0.0;
  for (const double count : counts) {
    sum += count;
  }
  std::vector<float> shares;
  shares.reserve(counts.size());
  for (const double count : counts) {
    shares.push_back(static_cast<float>(count / sum));
  }
  return shares;
}

Result<std::vector<float>> by_tokens_squared(std::span<const std::uint64_t> tokens, std::span<const std::uint64_t> steps) {
  if (steps.size() != tokens.size()) {
    return invalid("weights by tokens²/steps need the steps of all " + std::to_string(tokens.size()) + " members, and those of " +
                   std::to_string(steps.size()) + " are known");
  }
  std::vector<double> counts;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto count = static_cast<double>(tokens[i]);
    counts.push_back(count * count / static_cast<double>(std::max<std::uint64_t>(steps[i], 1)));
  }
  return shares_of(counts);
}

// A contribution of one token and no step is an answer that holds nothing. Where all are such they weigh alike.
std::vector<std::uint64_t> without_empty_ones(std::span<const std::uint64_t> tokens, std::span<const std::uint64_t> steps) {
  std::vector<std::uint64_t> held(tokens.begin(), tokens.end());
  if (steps.size() != tokens.size()) {
    return held;
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    held[i] = tokens[i] == 1 && steps[i] == 0 ? 0 : tokens[i];
  }
  const bool any = std::ranges::any_of(held, [](std::uint64_t count) { return count > 0; });
  return any ? held : std::vector<std::uint64_t>(tokens.begin(), tokens.end());
}

std::vector<float> alike(std::span<const std::uint64_t> tokens, std::span<const std::uint64_t> held) {
  const bool all = std::ranges::equal(tokens, held);
  const auto count = all ? static_cast<std::ptrdiff_t>(tokens.size()) : std::ranges::count_if(held, [](std::uint64_t n) { return n > 0; });
  std::vector<float> weights;
  for (const std::uint64_t of_member : held) {
    weights.push_back(all || of_member > 0 ? static_cast<float>(1.0 / static_cast<double>(count)) : 0.0F);
  }
  return weights;
}

}  // namespace

Result<std::vector<float>> contribution_weights(std::span<const std::uint64_t> told, Weighting weighting,
                                                std::span<const std::uint64_t> steps) {
  if (told.empty()) {
    return invalid("a mean needs at least one contribution");
  }
  const std::vector<std::uint64_t> tokens = without_empty_ones(told, steps);
  if (weighting == Weighting::uniform) {
    return alike(told, tokens);
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
  if (weighting == Weighting::tokens_squared_per_step) {
    return by_tokens_squared(tokens, steps);
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
    case Aggregator::radial_directional:
      break;
    case Aggregator::trimmed_mean:
      return 4;
  }
  return 1;
}

double radial_length(std::span<const EncodedTerm> terms) {
  double lengths = 0.0;
  double weights = 0.0;
  for (const EncodedTerm& term : terms) {
    lengths += static_cast<double>(term.weight) * term.norm;
    weights += static_cast<double>(term.weight);
  }
  return lengths > 0.0 ? lengths / weights : 0.0;
}

float weight_in_sum(const EncodedTerm& term, double radial_length) {
  if (radial_length == 0.0) {
    return term.weight;
  }
  return term.norm > 0.0 ? static_cast<float>(static_cast<double>(term.weight) * (radial_length / term.norm)) : 0.0F;
}

float radial_factor(double radial_length, double norm_of_s) {
  constexpr double kCancelled = 0x1p-10;
  return radial_length > 0.0 && norm_of_s > radial_length * kCancelled ? static_cast<float>(radial_length / norm_of_s) : 1.0F;
}

Status check_norm(const CodecSettings& codec, std::span<const std::byte> bytes, std::uint64_t count, double norm) {
  ATOLL_ASSIGN(const float largest, encoded_bound(codec, bytes, count));
  constexpr double kRounding = 1.0 + 0x1p-10;
  if (!(std::isfinite(norm) && norm >= 0.0) || static_cast<double>(largest) > norm * kRounding) {
    return Error{Code::corrupt,
                 "the contribution has a value of " + std::to_string(largest) + ", and its norm was said to be " + std::to_string(norm)};
  }
  return {};
}

void aggregate(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, std::uint64_t first,
               std::span<float> out, std::vector<float>& scratch) {
  if (terms.size() == 1 && terms[0].weight == 1.0F) {
    kernels::decode(codec, encoded_from(codec, terms[0].bytes, first).data(), out.size(), out.data());
    return;
  }
  switch (aggregator) {
    case Aggregator::weighted_mean:
      break;
    case Aggregator::trimmed_mean:
      if (trimmed(terms.size()) == 0) {
        break;
      }
      trimmed_mean(codec, terms, first, out, scratch);
      return;
    case Aggregator::radial_directional:
      directions(codec, terms, radial_length(terms), first, out);
      return;
  }
  weighted_mean(codec, terms, first, out);
}

bool needs_norms(Aggregator aggregator) { return aggregator == Aggregator::radial_directional; }

bool sums_by_groups(Aggregator aggregator) {
  switch (aggregator) {
    case Aggregator::weighted_mean:
    case Aggregator::radial_directional:
      return true;
    case Aggregator::trimmed_mean:
      return false;
  }
  return false;
}

void aggregate_group(Aggregator aggregator, const CodecSettings& codec, std::span<const EncodedTerm> terms, double length,
                     std::span<const BufferRange> buffers, std::uint64_t position, std::span<float> out, std::vector<float>& scratch) {
  if (aggregator == Aggregator::radial_directional) {
    directions(codec, terms, length, 0, out);
  } else {
    weighted_mean(codec, terms, 0, out);
  }
  put_shares(aggregator, buffers, codec, terms, 0, position, out, scratch);
}

void aggregate_groups(const CodecSettings& codec, std::span<const EncodedTerm> terms, std::span<const BufferRange> buffers,
                      std::uint64_t position, std::span<float> out, std::vector<float>& scratch) {
  weighted_mean(codec, terms, 0, out);
  put_shares(Aggregator::weighted_mean, buffers, codec, terms, 0, position, out, scratch);
}

void share_buffers(Aggregator aggregator, std::span<const BufferRange> buffers, const CodecSettings& codec,
                   std::span<const EncodedTerm> terms, std::uint64_t first, std::uint64_t position, std::span<float> out,
                   std::vector<float>& scratch) {
  if (terms.size() > 1) {
    put_shares(aggregator, buffers, codec, terms, first, position, out, scratch);
  }
}

}  // namespace atl
