// What a committed round must be: the means of its members' contributions, and the outer step with it.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "strategies/aggregate.hpp"
#include "strategies/composition.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/specification/model_kind.hpp"
#include "tests/sim/checkers.hpp"
#include "tests/sim/island_host.hpp"
#include "tests/sim/scenario.hpp"

namespace atl::sim {
namespace {

double norm_of(const Vector& values) {
  double squares = 0;
  for (const float value : values) {
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares);
}

// The radial-directional mean, by its definition and in double.
Vector radial_mean(const std::vector<EncodedTerm>& terms, const std::vector<const Vector*>& contributions) {
  std::vector<double> sum(contributions.front()->size());
  double length = 0;
  double weights = 0;
  for (std::size_t k = 0; k < terms.size(); ++k) {
    const auto weight = static_cast<double>(terms[k].weight);
    const double norm = norm_of(*contributions[k]);
    length += weight * norm;
    weights += weight;
    for (std::size_t i = 0; i < sum.size() && norm > 0; ++i) {
      sum[i] += weight * static_cast<double>((*contributions[k])[i]) / norm;
    }
  }
  length /= weights;
  double squares = 0;
  for (double& value : sum) {
    value /= weights;
    squares += value * value;
  }
  const bool cancelled = std::sqrt(squares) < 0x1p-10;
  Vector mean(sum.size());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    mean[i] = static_cast<float>(length * sum[i] / (cancelled ? 1.0 : std::sqrt(squares)));
  }
  return mean;
}

}  // namespace

// Of the contributions that count, with weights and, where the aggregator looks at them, norms.
std::vector<EncodedTerm> Checkers::terms_of(const coordinator::RoundRecord& record, const std::vector<const Vector*>& contributions) const {
  std::vector<std::uint64_t> tokens;
  std::vector<std::uint64_t> steps;
  std::vector<double> norms;
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    if (record.contributions[i].tokens > 0) {
      tokens.push_back(record.contributions[i].tokens);
      steps.push_back(record.contributions[i].steps);
      norms.push_back(record.contributions[i].norm);
    }
  }
  if (tokens.empty()) {
    return {};
  }
  const Weighting weighting = merges(record.round) ? Weighting::tokens : spec_.strategy.weighting;
  const std::vector<float> weights = contribution_weights(tokens, weighting, steps).value();
  const bool radial = aggregator_of(record) == Aggregator::radial_directional;
  std::vector<EncodedTerm> terms;
  for (const Vector* values : contributions) {
    if (values != nullptr) {
      const std::size_t k = terms.size();
      terms.push_back({std::as_bytes(std::span(*values)), weights[k], radial ? norms[k] : 0.0});
    }
  }
  return terms;
}

Aggregator Checkers::aggregator_of(const coordinator::RoundRecord& record) const {
  const auto contributors = std::ranges::count_if(record.contributions, [](const ContributionFacts& each) { return each.tokens > 0; });
  return merges(record.round) || contributors == 1 ? Aggregator::weighted_mean : spec_.strategy.aggregator;
}

// What an exchange on two levels comes to; empty if it has one.
Vector Checkers::sum_by_groups(const coordinator::RoundRecord& record, const std::vector<EncodedTerm>& terms,
                               const std::vector<const Vector*>& contributions) const {
  const std::optional<ExchangeGrid> grid = cut_grid(record.members.size(), {}, one_level_members_);
  if (!grid || contributions.empty() || aggregator_of(record) == Aggregator::trimmed_mean) {
    return {};
  }
  std::vector<std::pair<std::size_t, Vector>> groups;  // in the order of their first contributors
  std::size_t k = 0;
  for (std::size_t member = 0; member < record.members.size(); ++member) {
    if (record.contributions[member].tokens == 0) {
      continue;
    }
    const std::size_t number = grid->group[member];
    auto group = std::ranges::find(groups, number, [](const auto& one) { return one.first; });
    if (group == groups.end()) {
      group = groups.emplace(groups.end(), number, Vector(contributions[k]->size()));
    }
    const float weight = weight_in_sum(terms[k], radial_length(terms));
    for (std::size_t i = 0; i < group->second.size(); ++i) {
      group->second[i] += weight * (*contributions[k])[i];
    }
    ++k;
  }
  Vector sum(contributions.front()->size());
  for (const auto& [number, group] : groups) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += group[i];
    }
  }
  return sum;
}

// As the engine names it: two members read each other's contribution, more of them what others summed.
RoundResult Checkers::result_of(const coordinator::RoundRecord& record, const std::vector<EncodedTerm>& terms, const Vector& sum) const {
  const Composition composition = compose(spec_.strategy).value();
  const bool gathered = record.members.size() <= 2;
  RoundResult result;
  result.round = record.round;
  result.fragment = merges(record.round) ? static_cast<std::uint32_t>(record.round.value - schedule_.rounds() - 1)
                                         : schedule_.round_at(record.round).value().fragment;
  result.values = sum.size();
  result.codec = merges(record.round) ? CodecSettings{} : gathered ? composition.codec : composition.reduce_codec;
  result.terms = terms;
  if (!gathered) {
    result.terms = {{std::as_bytes(std::span(sum)), 1.0F, radial_length(terms)}};
  }
  return result;
}

// Of a round to which nobody contributed.
RoundResult Checkers::result_of_nothing(const coordinator::RoundRecord& record, const Digest& base) const {
  RoundResult result = result_of(record, {}, {});
  result.codec = compose(spec_.strategy).value().codec;
  result.terms.clear();
  const auto before = states_.find(base);
  const std::size_t all = before == states_.end() ? 0 : before->second.first.size();
  while (result.values < all && place_of(schedule_.fragments() - 1, result.values) + result.values != all) {
    ++result.values;  // the fragments are of one size
  }
  return result;
}

void Checkers::check_step(Round round, const Digest& digest, const Vector& parameters) {
  const auto mean = means_.find(digest);
  const auto before = mean == means_.end() ? states_.end() : states_.find(parents_[digest]);
  if (skipped_.contains(digest)) {
    const auto parent = states_.find(parents_[digest]);
    if (parent != states_.end() && parent->second.first != parameters) {
      fail("round " + std::to_string(round.value) + " had no contribution, and changed the outer state");
    }
    return;
  }
  if (before == states_.end() || merges(round) || spec_.strategy.payload == PayloadKind::gradient) {
    return;
  }
  auto [expected, momentum] = before->second;
  const Composition composition = compose(spec_.strategy).value();
  const std::size_t size = mean->second.size();
  const std::size_t place = place_of(schedule_.round_at(round).value().fragment, size);
  const OuterState state{std::span(expected).subspan(place, size),
                         momentum.empty() ? std::span<float>() : std::span(momentum).subspan(place, size)};
  const Status stepped = outer_step(mean->second, composition.outer, state);
  for (std::size_t i = 0; i < expected.size() && stepped; ++i) {
    if (std::abs(expected[i] - parameters[i]) > 1e-4F * (1.0F + std::abs(expected[i]))) {
      fail("the outer state of round " + std::to_string(round.value) + " is not that of the round before and one outer step by the mean");
      return;
    }
  }
}

void Checkers::check_commit(const coordinator::RoundRecord& record) {
  const std::string name = "round " + std::to_string(record.round.value) + " of lineage " + std::to_string(record.lineage);
  const auto [known, inserted] = committed_.emplace(std::tuple(record.run, record.lineage, record.round), record.digest);
  if (!inserted && (!older_ledger_ || known->second != record.digest)) {
    fail(name + " was committed twice" + (known->second != record.digest ? ", with two digests" : ""));
    return;
  }
  if (!inserted) {
    forget_samples(Round(record.round.value - 1));
  }
  committed_digests_.insert(record.digest);
  history_.erase(history_.upper_bound(record.round), history_.end());
  history_[record.round] = record.digest;
  newest_[record.round] = record.digest;
  if (record.members.empty()) {
    forget_samples(record.round);
    // The samples are those of the state's own history, which may be another one than that of the rounds before it here.
    if (const auto place = positions_at_.find(record.digest); place != positions_at_.end()) {
      positions_ = place->second;
      std::erase_if(sequences_, [&](const auto& item) { return item.second.place.from >= positions_[item.second.place.part]; });
      for (auto& [part, samples] : samples_) {
        samples.erase(samples.lower_bound(positions_[part]), samples.end());
      }
    }
    Digest digest = record.digest;
    for (std::uint64_t round = record.round.value; round > 0 && parents_.contains(digest); --round) {
      digest = parents_.at(digest);
      history_[Round(round - 1)] = digest;
    }
  }
  if (record.round == Round(0) || record.members.empty()) {
    return;  // the initial state, or the base of a new lineage
  }
  ++commits_;
  last_members_ = record.members;
  const bool first_merge = merges(record.round) && !merges(Round(record.round.value - 1));
  Digest base;  // of the first merge: the same on all islands
  if (!first_merge) {
    const auto before = committed_.find({record.run, record.lineage, Round(record.round.value - 1)});
    if (before == committed_.end()) {
      fail(name + " was committed before the round before it");
      return;
    }
    base = before->second;
  }
  std::vector<const Vector*> contributions;
  for (std::size_t i = 0; i < record.members.size(); ++i) {
    const auto formed = formed_.find({record.members[i], record.round});
    if (record.contributions[i].tokens == 0) {
      check_samples(record, i, {});
      contributions.push_back(nullptr);
      continue;
    }
    if (formed == formed_.end() ||
        (!merges(record.round) && !belongs(record.round, formed->second.base, base, spec_.strategy.quorum > 0))) {
      fail(name + " counts a contribution that " + name_of(record.members[i]) + " never formed from the state of its fragment before it");
      return;
    }
    check_weight(record, i, formed->second);
    check_samples(record, i, formed->second.trained);
    late_ += !merges(record.round) && !belongs(record.round, formed->second.base, base, false) ? 1U : 0U;
    if (first_merge && base != Digest{} && base != formed->second.base) {
      fail(name + " begins differently on its members");
    }
    base = first_merge ? formed->second.base : base;
    contributions.push_back(&formed->second.values);
  }
  parents_[record.digest] = base;
  const std::vector<EncodedTerm> terms = terms_of(record, contributions);
  std::erase(contributions, nullptr);
  if (contributions.empty() && !merges(record.round)) {
    if (digest_after(base, result_of_nothing(record, base)) != record.digest) {
      fail(name + ": nobody's contribution counts, and its result is not empty");
    }
    skipped_.insert(record.digest);
    positions_at_[record.digest] = positions_;
    return;
  }
  Vector sum = sum_by_groups(record, terms, contributions);
  const bool by_groups = !sum.empty() && digest_after(base, result_of(record, terms, sum)) == record.digest;
  two_levels_ += by_groups ? 1U : 0U;
  if (!contributions.empty() && !by_groups) {  // also where nobody in a group reaches everybody
    sum.resize(contributions.front()->size());
    std::vector<float> scratch;
    aggregate(aggregator_of(record), CodecSettings{}, terms, 0, sum, scratch);
  }
  if (sum.empty() || digest_after(base, result_of(record, terms, sum)) != record.digest) {
    fail(name + ": its result is not the mean of its members' contributions (a stale one was counted)");
    return;
  }
  means_[record.digest] = aggregator_of(record) == Aggregator::radial_directional ? radial_mean(terms, contributions) : sum;
  positions_at_[record.digest] = positions_;
}

// What a committed contribution counts by is what its island trained and formed.
void Checkers::check_weight(const coordinator::RoundRecord& record, std::size_t member, const Formed& formed) {
  if (merges(record.round)) {
    return;
  }
  const std::string name = "round " + std::to_string(record.round.value) + " counts ";
  const std::string whose = " of " + name_of(record.members[member]) + ", which ";
  if (formed.facts.tokens != record.contributions[member].tokens || formed.facts.steps != record.contributions[member].steps) {
    fail(name + std::to_string(record.contributions[member].tokens) + " tokens in " + std::to_string(record.contributions[member].steps) +
         " steps" + whose + "trained on " + std::to_string(formed.facts.tokens) + " in " + std::to_string(formed.facts.steps));
  }
  const double norm = norm_of(formed.values);
  if (!(std::abs(record.contributions[member].norm - norm) <= 1e-9 * norm)) {
    fail(name + "a norm of " + std::to_string(record.contributions[member].norm) + whose + "formed one of " + std::to_string(norm));
  }
}

}  // namespace atl::sim
