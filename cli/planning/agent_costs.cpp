#include "cli/planning/agent_costs.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "agent/engine/outer_buffers.hpp"
#include "strategies/codec.hpp"
#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "transport/base/check.hpp"
#include "transport/base/rng.hpp"

namespace atl {
namespace {

constexpr std::uint64_t kLeastValues = 1U << 16U;
constexpr std::uint64_t kMostValues = 1U << 22U;
constexpr int kRepeats = 5;       // in a row that are no faster than the best one before them
constexpr int kMostRepeats = 40;  // less than a second with the largest fragment

// Of this thread alone: what others do on the machine meanwhile is no cost of an agent.
double processor_seconds() {
  timespec time{};
  ATOLL_CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0, "a thread has a clock");
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename Work>
double best_seconds(const Work& work) {
  double best = 1e300;
  for (int i = 0, since = 0; i < kMostRepeats && since < kRepeats; ++i) {
    const double start = processor_seconds();
    work();
    const double took = processor_seconds() - start;
    since = took < 0.98 * best ? 0 : since + 1;
    best = std::min(best, took);
  }
  return best;
}

// To one of ten figures in a decade: plans that are made one after the other are of the same costs, though no two measurements are equal.
double rounded(double seconds) { return std::pow(10.0, std::round(10.0 * std::log10(seconds)) / 10.0); }

void must(const Status& status) { ATOLL_CHECK(status.ok(), status.ok() ? "" : status.error().why); }

// The arrays of one fragment, as an agent has them.
class Calibration {
 public:
  Calibration(const Composition& composition, std::size_t islands, std::size_t values)
      : composition_(composition),
        islands_(islands),
        outer_(OuterBuffers::make(values, composition.outer.kind, composition.outer_state).value()),
        local_(values),
        sum_(values) {
    Rng rng(1, stream_of("agent-costs"));
    for (std::size_t i = 0; i < values; ++i) {
      local_[i] = static_cast<float>(static_cast<std::int32_t>(rng.next_u32())) * 0x1p-36F;
      outer_.parameters()[i] = local_[i];
      local_[i] *= 0.99F;
    }
    encoded_ = encoding_of(composition.codec, local_).value();
    reduced_ = encoding_of(composition.reduce_codec, local_).value();
  }

  AgentCosts costs() {
    const auto values = static_cast<double>(local_.size());
    AgentCosts costs;
    costs.form_seconds_per_value = rounded(best_seconds([this] { form(); }) / values);
    // What the last one left is a difference of differences: small and finite, as a gradient is.
    must(encode(composition_.codec, local_, encoded_));
    must(encode(composition_.reduce_codec, local_, reduced_));
    costs.apply_seconds_per_value = rounded(best_seconds([this] { apply(); }) / values);
    costs.round_overhead_seconds = kRoundOverheadSeconds;
    return costs;
  }

 private:
  void form() {
    ATOLL_CHECK(form_outer_gradient(outer_.parameters(), local_).has_value(), "the values are finite");
    if (composition_.codec.kind != CodecKind::f32) {  // which is sent from where it was formed
      must(encode(composition_.codec, local_, encoded_));
    }
  }

  void apply() {
    const OuterState state = outer_.all();
    if (islands_ <= 2) {  // both sum the two contributions
      const EncodedTerm terms[2] = {{encoded_, 0.5F}, {encoded_, 0.5F}};
      must(outer_step(ReducedResult{composition_.codec, terms}, composition_.outer, state));
    } else {  // a shard of each, summed; then all shards
      std::fill(sum_.begin(), sum_.end(), 0.0F);
      must(decode_accumulate(composition_.codec, encoded_, 0.5F, sum_));
      const std::size_t shard = std::min(sum_.size(), values_at_once(sum_.size() / islands_, composition_.reduce_codec));
      const std::size_t bytes = encoded_part(composition_.reduce_codec, reduced_, 0, shard).size();
      must(encode(composition_.reduce_codec, std::span(sum_).first(shard), std::span(reduced_).first(bytes)));
      const EncodedTerm term{reduced_, 1.0F};
      must(outer_step(ReducedResult{composition_.reduce_codec, {&term, 1}}, composition_.outer, state));
    }
    std::ranges::copy(outer_.parameters(), local_.begin());
  }

  const Composition& composition_;
  std::size_t islands_;
  OuterBuffers outer_;
  std::vector<float> local_;
  std::vector<float> sum_;
  std::vector<std::byte> encoded_;
  std::vector<std::byte> reduced_;
};

}  // namespace

CostSource measured_costs() {
  using Key = std::tuple<CodecKind, CodecKind, OuterOptimizerKind, OuterStateFormat, bool, std::uint64_t>;
  auto known = std::make_shared<std::map<Key, AgentCosts>>();
  return {"measured on this machine", [known](const Composition& composition, std::size_t islands, std::uint64_t values) {
            const std::uint64_t count = std::clamp(values, kLeastValues, kMostValues);
            const Key key{
                composition.codec.kind, composition.reduce_codec.kind, composition.outer.kind, composition.outer_state, islands > 2, count};
            const auto found = known->find(key);
            return found != known->end()
                       ? found->second
                       : known->emplace(key, Calibration(composition, islands, static_cast<std::size_t>(count)).costs()).first->second;
          }};
}

Result<CostSource> given_costs(std::string_view text) {
  const auto number = [](std::string_view part) -> std::optional<double> {
    double value = 0;
    const auto [end, failure] = std::from_chars(part.data(), part.data() + part.size(), value);
    const bool good = failure == std::errc() && end == part.data() + part.size() && std::isfinite(value) && value >= 0 && value <= 1e9;
    return good ? std::optional(value) : std::nullopt;
  };
  const std::size_t comma = text.find(',');
  const auto form = number(text.substr(0, comma));
  const auto apply = comma == std::string_view::npos ? std::nullopt : number(text.substr(comma + 1));
  if (!form || !apply) {
    return Error{Code::invalid_argument, "--agent-ns " + std::string(text.substr(0, 40)) +
                                             ": two numbers are meant, the nanoseconds that an agent takes to form a value " +
                                             "of a contribution and to apply one, as 0.4,1.2"};
  }
  AgentCosts costs;
  costs.form_seconds_per_value = *form * 1e-9;
  costs.apply_seconds_per_value = *apply * 1e-9;
  costs.round_overhead_seconds = kRoundOverheadSeconds;
  return CostSource{"given", [costs](const Composition&, std::size_t, std::uint64_t) { return costs; }};
}

}  // namespace atl
