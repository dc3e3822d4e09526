// Which contributions the guard of norms rejects, row by row.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "coordinator/core/decide.hpp"
#include "tests/catch.hpp"
#include "tests/unit/coordinator/rows.hpp"
#include "transport/base/usual_norms.hpp"

namespace of_coordinator_norms_decide_test {

using namespace atl;
using namespace atl::coordinator;
using namespace atl_test;

TEST_CASE("decide_norms rejects what is out of all proportion, and nothing else") {
  const double inf = std::numeric_limits<double>::infinity();
  struct Case {
    const char* what;
    std::vector<double> usual;
    std::vector<double> now;
    double factor;
    std::vector<std::size_t> rejected;
  };
  const std::vector<double> ones(kUsualNorms, 1.0);
  const std::vector<Case> cases = {{"all usual", ones, {1, 2, 9.9}, 10, {}},
                                   {"one of three", ones, {1, 11, 1}, 10, {1}},
                                   {"one of two", ones, {100, 1}, 10, {0}},
                                   {"alone", ones, {11}, 10, {}},
                                   {"most of them: that is a change, no offence", ones, {50, 60, 1}, 10, {}},
                                   {"not finite", ones, {1, inf, 1}, 10, {1}},
                                   {"too little is known", std::vector<double>(kUsualNorms - 1, 1.0), {1, 1000, 1}, 10, {}},
                                   {"no guard", ones, {1, 1000, 1}, 0, {}},
                                   {"another factor", ones, {1, 4, 1}, 3, {1}},
                                   {"nothing ever moved", std::vector<double>(kUsualNorms, 0.0), {0, 5}, 10, {}},
                                   {"an outlier of the past does not move the median", {1, 1, 1, 1, 1, 1, 1, 1e6}, {1, 20, 1}, 10, {1}}};
  for (const Case& c : cases) {
    INFO(c.what);
    NormInput input;
    for (const double norm : c.usual) {
      input.usual.push_back({norm});
    }
    input.factor = c.factor;
    for (std::size_t i = 0; i < c.now.size(); ++i) {
      input.norms.push_back({island(i), c.now[i]});
    }
    std::vector<IslandId> expected;
    for (const std::size_t i : c.rejected) {
      expected.push_back(island(i));
    }
    std::vector<IslandId> rejected;
    for (const auto& [id, usual, why] : decide_norms(input).rejected) {
      rejected.push_back(id);
      const auto norm = std::ranges::find(input.norms, id, &JudgedNorm::island);
      REQUIRE(norm != input.norms.end());
      REQUIRE(why.find(std::isfinite(norm->norm) ? "usual" : "not finite") != std::string::npos);
    }
    REQUIRE(rejected == expected);
  }
}

TEST_CASE("decide_norms gives a contribution that missed rounds as many times the room") {
  NormInput input;
  input.usual = std::vector<KnownNorm>(kUsualNorms, KnownNorm{1});
  input.norms = {{island(0), 1}, {island(1), 40, 3}, {island(2), 1}};
  REQUIRE(decide_norms(input).rejected.empty());
  input.norms[1].norm = 41;
  const NormDecision decision = decide_norms(input);
  REQUIRE(decision.rejected.size() == 1);
  REQUIRE(decision.rejected[0].island == island(1));
  REQUIRE(decision.rejected[0].why == "its norm of 41 is more than 10 times the usual 1, also for each of the 3 rounds that it missed");
}

TEST_CASE("decide_norms gives a contribution of more steps than others as much more room, one of fewer no less") {
  NormInput input;  // four slow islands contribute two steps each, a fast one sixty
  input.usual = std::vector<KnownNorm>(kUsualNorms, KnownNorm{1, 2});
  for (unsigned i = 0; i < 4; ++i) {
    input.norms.push_back({island(i), 1, 0, 2});
  }
  input.norms.push_back({island(4), 30, 0, 60});
  REQUIRE(decide_norms(input).rejected.empty());
  input.norms[4].norm = 301;
  REQUIRE(decide_norms(input).rejected.size() == 1);
  REQUIRE(decide_norms(input).rejected[0].island == island(4));
  REQUIRE(decide_norms(input).rejected[0].usual == 30);
  input.norms[4].norm = 30;
  input.norms[0].norm = 11;  // of two steps: eleven times the others
  REQUIRE(decide_norms(input).rejected.size() == 1);
  REQUIRE(decide_norms(input).rejected[0].island == island(0));
  input.usual.assign(kUsualNorms, KnownNorm{30, 60});
  for (unsigned i = 0; i < 4; ++i) {
    input.norms[i].norm = 9;  // what one batch did may be as large as what sixty did
  }
  REQUIRE(decide_norms(input).rejected.empty());
}

}  // namespace of_coordinator_norms_decide_test
