#include "strategies/noloco.hpp"

#include <cmath>
#include <sstream>
#include <string>

namespace atl {
namespace {

std::string short_text(double value) {
  std::ostringstream out;
  out.precision(4);
  out << value;
  return out.str();
}

}  // namespace

PullInterval pull_interval(double momentum, std::uint32_t group_size) {
  const double n = group_size;
  const double factor = n / (2.0 * (n - 1.0));
  return {std::sqrt(factor) * momentum, std::sqrt(factor * (2.0 + momentum * momentum))};
}

Status check_pull(double pull, double momentum, std::uint32_t group_size) {
  const PullInterval proven = pull_interval(momentum, group_size);
  if (pull > proven.low && pull < proven.high) {
    return {};
  }
  return Error{Code::invalid_argument,
               "must be above " + short_text(proven.low) + " and below " + short_text(proven.high) + " with outer_momentum " +
                   short_text(momentum) + " and groups of " + std::to_string(group_size) + ", not " + short_text(pull) +
                   ": outside, the islands are not proven to stay together (allow_unstable = true tries it all the same)"};
}

Result<RoundCost> gossip_cost(std::uint64_t values, std::uint32_t group_size, const CodecSettings& codec,
                              const CodecSettings& parameters_codec) {
  ATOLL_TRY(check_codec(codec));
  ATOLL_TRY(check_codec(parameters_codec));
  if (group_size <= 1) {
    return RoundCost{};
  }
  const std::uint64_t others = group_size - 1;
  return RoundCost{2 * others, others * (encoded_bytes(codec, values) + encoded_bytes(parameters_codec, values))};
}

}  // namespace atl
