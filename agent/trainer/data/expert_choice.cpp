#include "agent/trainer/data/expert_choice.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <optional>
#include <string>

namespace atl {
namespace {

std::optional<double> probability_after(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) {
    return std::nullopt;
  }
  text.remove_prefix(prefix.size());
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && value > 0 && value <= 1 ? std::optional(value) : std::nullopt;
}

// How many of the likeliest experts are run.
std::size_t kept(const ExpertChoice& choice, std::span<const double> probabilities, const std::vector<std::size_t>& order) {
  switch (choice.kind) {
    case ExpertChoice::Kind::full:
      return order.size();
    case ExpertChoice::Kind::top:
      return std::min<std::size_t>(choice.k, order.size());
    case ExpertChoice::Kind::threshold: {
      const auto below = std::ranges::find_if(order, [&](std::size_t expert) { return probabilities[expert] < choice.probability; });
      return std::max<std::size_t>(1, static_cast<std::size_t>(below - order.begin()));
    }
    case ExpertChoice::Kind::nucleus: {
      double mass = 0;
      for (std::size_t i = 0; i < order.size(); ++i) {
        mass += probabilities[order[i]];
        if (mass >= choice.probability) {
          return i + 1;
        }
      }
      return order.size();
    }
  }
  return order.size();
}

}  // namespace

Result<ExpertChoice> expert_choice_named(std::string_view text) {
  if (text == "full") {
    return ExpertChoice{ExpertChoice::Kind::full, 0, 0};
  }
  if (text.starts_with("top-")) {
    std::uint32_t k = 0;
    const auto read = std::from_chars(text.data() + 4, text.data() + text.size(), k);
    if (read.ec == std::errc() && read.ptr == text.data() + text.size() && k > 0) {
      return ExpertChoice{ExpertChoice::Kind::top, k, 0};
    }
  }
  if (const auto probability = probability_after(text, "threshold:")) {
    return ExpertChoice{ExpertChoice::Kind::threshold, 0, *probability};
  }
  if (const auto probability = probability_after(text, "nucleus:")) {
    return ExpertChoice{ExpertChoice::Kind::nucleus, 0, *probability};
  }
  return Error{
      Code::invalid_argument,
      "'" + std::string(text) + "' is no choice of experts; there are full, top-K (top-1), threshold:P and nucleus:P with P above 0 to 1"};
}

Status check_choice(const ExpertChoice& choice, std::size_t experts) {
  if (choice.kind == ExpertChoice::Kind::top && choice.k > experts) {
    return Error{Code::invalid_argument, "--router top-" + std::to_string(choice.k) + ": the ensemble has " + std::to_string(experts) +
                                             (experts == 1 ? " expert" : " experts; full runs all of them")};
  }
  return {};
}

void choose_experts(const ExpertChoice& choice, const std::vector<bool>& present, std::span<double> probabilities) {
  ATOLL_CHECK(present.size() == probabilities.size() && std::ranges::find(present, true) != present.end(), "an ensemble has an expert");
  double mass = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    probabilities[i] = present[i] ? probabilities[i] : 0.0;
    mass += probabilities[i];
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (present[i]) {
      probabilities[i] = mass > 0 ? probabilities[i] / mass : 1.0;
      order.push_back(i);
    }
  }
  if (mass <= 0) {
    std::ranges::for_each(order, [&](std::size_t i) { probabilities[i] = 1.0 / static_cast<double>(order.size()); });
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return probabilities[a] > probabilities[b]; });
  const std::size_t count = kept(choice, probabilities, order);
  double left = 0;
  for (std::size_t i = 0; i < count; ++i) {
    left += probabilities[order[i]];
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    probabilities[order[i]] = i < count ? probabilities[order[i]] / left : 0.0;
  }
}

}  // namespace atl
