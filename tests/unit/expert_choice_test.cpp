// Which experts run: each rule by hand, absent experts, and that the weights always add up to 1.
#include "agent/trainer/data/expert_choice.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_expert_choice_test {

using namespace atl;

namespace {

std::vector<double> chosen(const std::string& rule, std::vector<double> probabilities, std::vector<bool> present = {}) {
  if (present.empty()) {
    present.assign(probabilities.size(), true);
  }
  const auto choice = expert_choice_named(rule);
  REQUIRE(choice);
  choose_experts(*choice, present, probabilities);
  return probabilities;
}

bool can_choose(const std::string& rule, std::size_t experts) { return check_choice(expert_choice_named(rule).value(), experts).ok(); }

void check_close(const std::vector<double>& got, const std::vector<double>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i] == Approx(wanted[i]).margin(1e-15));
  }
}

}  // namespace

TEST_CASE("each rule keeps what it says and scales the rest") {
  const std::vector<double> p = {0.1, 0.5, 0.25, 0.15};
  check_close(chosen("full", p), p);
  check_close(chosen("top-1", p), {0, 1, 0, 0});
  check_close(chosen("top-2", p), {0, 2.0 / 3, 1.0 / 3, 0});
  check_close(chosen("top-9", p), p);
  check_close(chosen("threshold:0.15", p), {0, 0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9});
  check_close(chosen("threshold:0.6", p), {0, 1, 0, 0});  // none is that likely: the likeliest
  check_close(chosen("nucleus:0.5", p), {0, 1, 0, 0});
  check_close(chosen("nucleus:0.6", p), {0, 2.0 / 3, 1.0 / 3, 0});
  check_close(chosen("nucleus:1", p), p);
  check_close(chosen("top-1", {0.5, 0.5}), {1, 0});  // of equals the first
}

TEST_CASE("absent experts have no weight, and those present make up for them") {
  check_close(chosen("full", {0.1, 0.5, 0.4}, {true, false, true}), {0.2, 0, 0.8});
  check_close(chosen("top-1", {0.1, 0.5, 0.4}, {true, false, true}), {0, 0, 1});
  check_close(chosen("threshold:0.3", {0.1, 0.5, 0.4}, {true, false, true}), {0, 0, 1});
  check_close(chosen("full", {0, 1, 0}, {true, false, true}), {0.5, 0, 0.5});  // the router is sure of one that is not there
}

TEST_CASE("weights add up to 1 under every rule") {
  Rng rng(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> p(1 + rng.below(9));
    std::generate(p.begin(), p.end(), [&] { return rng.uniform(); });
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    std::for_each(p.begin(), p.end(), [&](double& value) { value /= sum; });
    for (const char* rule : {"full", "top-1", "top-3", "threshold:0.2", "nucleus:0.7"}) {
      const std::vector<double> w = chosen(rule, p);
      CHECK(std::accumulate(w.begin(), w.end(), 0.0) == Approx(1.0));
    }
  }
}

TEST_CASE("rules that are none are refused with those there are") {
  for (const char* rule : {"", "top", "top-0", "top-x", "best", "threshold:0", "threshold:1.5", "nucleus:", "nucleus:x"}) {
    const auto choice = expert_choice_named(rule);
    REQUIRE_FALSE(choice);
    CHECK(choice.error().why.find("nucleus:P") != std::string::npos);
  }
}

TEST_CASE("more experts than an ensemble has cannot be chosen") {
  CHECK_FALSE(can_choose("top-9", 2));
  CHECK(can_choose("top-2", 2));
  CHECK(can_choose("full", 2));
  CHECK(check_choice(expert_choice_named("top-9").value(), 2).error().why ==
        "--router top-9: the ensemble has 2 experts; full runs all of them");
}

}  // namespace of_expert_choice_test
