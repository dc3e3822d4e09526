// Sums that are taken of groups first: the same as of all at once, but for the rounding of what travels between.
#include <algorithm>
#include <cmath>
#include <vector>

#include "strategies/aggregate.hpp"
#include "strategies/contribution.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_aggregate_groups_test {

using namespace atl;

namespace {

constexpr std::size_t kValues = 4096;
constexpr std::size_t kMembers = 36;
constexpr std::size_t kGroups = 6;

using Values = std::vector<float>;
using Encoded = std::vector<std::byte>;

Encoded encoded(const CodecSettings& codec, const Values& values) {
  Encoded bytes(encoded_bytes(codec, values.size()));
  REQUIRE(encode(codec, values, bytes).ok());
  return bytes;
}

struct Members {
  CodecSettings codec;
  std::vector<Values> values;
  std::vector<Encoded> bytes;
  std::vector<float> weights;
  std::vector<double> norms;

  // `alike`: how much of each is the same in all.
  explicit Members(CodecKind kind, double alike = 0.5) : codec{kind, 256, Rounding::nearest} {
    Rng rng(7);
    Values common(kValues);
    std::ranges::generate(common, [&] { return static_cast<float>(alike * rng.normal()); });
    std::vector<std::uint64_t> tokens;
    for (std::size_t member = 0; member < kMembers; ++member) {
      Values own = common;
      for (float& value : own) {
        value += static_cast<float>((1.0 - alike) * rng.normal());
      }
      bytes.push_back(encoded(codec, own));
      values.push_back(std::move(own));
      tokens.push_back(1 + rng.below(1000));
      norms.push_back(encoded_norm(codec, bytes.back(), kValues, {}).value());
    }
    weights = contribution_weights(tokens, Weighting::tokens).value();
  }
  [[nodiscard]] std::vector<EncodedTerm> terms(bool radial) const {
    std::vector<EncodedTerm> all;
    for (std::size_t member = 0; member < kMembers; ++member) {
      all.push_back({bytes[member], weights[member], radial ? norms[member] : 0.0});
    }
    return all;
  }
};

Values at_once(const Members& members, Aggregator aggregator, const std::vector<BufferRange>& buffers = {}) {
  const std::vector<EncodedTerm> terms = members.terms(aggregator == Aggregator::radial_directional);
  Values sum(kValues);
  std::vector<float> scratch;
  aggregate(aggregator, members.codec, terms, 0, sum, scratch);
  share_buffers(aggregator, buffers, members.codec, terms, 0, 0, sum, scratch);
  return sum;
}

Values by_groups(const Members& members, Aggregator aggregator, const CodecSettings& between,
                 const std::vector<BufferRange>& buffers = {}) {
  const std::vector<EncodedTerm> all = members.terms(aggregator == Aggregator::radial_directional);
  std::vector<Encoded> sums;
  std::vector<float> scratch;
  for (std::size_t group = 0; group < kGroups; ++group) {
    std::vector<EncodedTerm> terms;
    for (std::size_t member = group; member < kMembers; member += kGroups) {
      terms.push_back(all[member]);
    }
    Values sum(kValues);
    aggregate_group(aggregator, members.codec, terms, radial_length(all), buffers, 0, sum, scratch);
    sums.push_back(encoded(between, sum));
  }
  std::vector<EncodedTerm> terms;
  std::ranges::transform(sums, std::back_inserter(terms), [](const Encoded& sum) { return EncodedTerm{sum}; });
  Values sum(kValues);
  aggregate_groups(between, terms, buffers, 0, sum, scratch);
  return sum;
}

double distance(const Values& a, const Values& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  }
  return std::sqrt(squares);
}

double length_of(const Values& values) { return distance(values, Values(values.size())); }

Values decoded(const CodecSettings& codec, const Values& values) {
  Values out(values.size());
  REQUIRE(decode(codec, encoded(codec, values), out).ok());
  return out;
}

}  // namespace

TEST_CASE("groups: sums that travel in float32 are those of all at once, but for the order of summation") {
  for (const CodecKind kind : {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    const Members members(kind);
    for (const Aggregator aggregator : {Aggregator::weighted_mean, Aggregator::radial_directional}) {
      CAPTURE(name_of(kind), name_of(aggregator));
      const Values direct = at_once(members, aggregator);
      CHECK(distance(by_groups(members, aggregator, {}), direct) < 1e-6 * length_of(direct));
    }
  }
}

TEST_CASE("groups: rounding the groups' sums errs no more than about the last rounding does") {
  for (const double alike : {0.0, 0.5, 1.0}) {
    const Members members(CodecKind::f32, alike);
    const Values exact = at_once(members, Aggregator::weighted_mean);
    for (const CodecKind kind : {CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
      const CodecSettings between{kind, 256, Rounding::nearest};
      const double last = distance(decoded(between, exact), exact);
      const double sums = distance(by_groups(members, Aggregator::weighted_mean, between), exact);
      const double both = distance(decoded(between, by_groups(members, Aggregator::weighted_mean, between)), exact);
      CAPTURE(alike, name_of(kind), last, sums, both);
      CHECK(sums < 1.15 * last);
      CHECK(both < 1.6 * last);
    }
  }
}

TEST_CASE("groups: buffers come to what their share says") {
  const Members members(CodecKind::f32);
  const std::vector<BufferRange> buffers = {{100, 50, BufferShare::one}, {1000, 64, BufferShare::mean}};
  for (const Aggregator aggregator : {Aggregator::weighted_mean, Aggregator::radial_directional}) {
    const Values direct = at_once(members, aggregator, buffers);
    const Values grouped = by_groups(members, aggregator, {}, buffers);
    CHECK(std::equal(grouped.begin() + 100, grouped.begin() + 150, members.values[0].begin() + 100));
    CHECK(distance(grouped, direct) < 1e-6 * length_of(direct));
  }
}

TEST_CASE("groups: what looks at all values of a coordinate at once does not sum by groups") {
  CHECK(sums_by_groups(Aggregator::weighted_mean));
  CHECK(sums_by_groups(Aggregator::radial_directional));
  CHECK_FALSE(sums_by_groups(Aggregator::trimmed_mean));
}

}  // namespace of_aggregate_groups_test
