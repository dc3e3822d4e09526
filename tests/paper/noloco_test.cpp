// NoLoCo, arXiv:2506.10911: the update on models of one to a thousand weights, the limits in which it must equal others, and its theory.
#include "strategies/noloco.hpp"

#include <cmath>
#include <map>
#include <span>
#include <vector>

#include "strategies/contribution.hpp"
#include "strategies/outer_optimizer.hpp"
#include "strategies/pairing.hpp"
#include "strategies/projection.hpp"
#include "tests/catch.hpp"
#include "tests/outer_steps.hpp"
#include "transport/base/bytes.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

using Weights = std::vector<float>;

// An island with an outer state of its own.
struct Island {
  Weights parameters;
  Weights momentum;
};

constexpr OuterOptimizer kPaper{OuterOptimizerKind::heavy_ball, 0.7, 0.5, 0.7};
constexpr CodecSettings kExact{};

// One round of a group: every member's outer gradient and outer parameters in; every member's step taken.
void meet(std::vector<Island*> group, const std::vector<Weights>& locals, const OuterOptimizer& optimizer,
          const CodecSettings& codec = kExact) {
  std::vector<Bytes> gradients;
  std::vector<Bytes> outers;
  const auto encoded = [](const CodecSettings& with, std::span<const float> values) {
    Bytes bytes(encoded_bytes(with, values.size()));
    REQUIRE(encode(with, values, bytes));
    return bytes;
  };
  for (std::size_t i = 0; i < group.size(); ++i) {
    Weights gradient = locals[i];
    REQUIRE(form_outer_gradient(group[i]->parameters, gradient));
    gradients.push_back(encoded(kExact, gradient));
    outers.push_back(encoded(codec, group[i]->parameters));
  }
  std::vector<EncodedTerm> terms;
  std::vector<std::span<const std::byte>> members;
  for (std::size_t i = 0; i < group.size(); ++i) {
    terms.push_back({gradients[i], static_cast<float>(1.0 / static_cast<double>(group.size()))});
    members.emplace_back(outers[i]);
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    REQUIRE(outer_step(ReducedResult{kExact, terms}, GroupParameters{codec, members, i}, optimizer,
                       {group[i]->parameters, group[i]->momentum}));
  }
}

// What H inner steps of an island make of its outer parameters: towards a target of its own, and a little noise.
Weights trained(const Weights& outer, std::uint64_t island, std::uint64_t round) {
  Rng rng(7, stream_of("trained", island * 1000 + round));
  Weights local = outer;
  for (std::size_t i = 0; i < local.size(); ++i) {
    const auto target = static_cast<float>(island) + static_cast<float>(i) * 0.25F;
    local[i] -= 0.1F * (local[i] - target) + static_cast<float>(0.01 * rng.normal());
  }
  return local;
}

Weights drawn(std::size_t count, std::uint64_t stream) {
  Rng rng(3, stream);
  Weights values(count);
  for (float& value : values) {
    value = static_cast<float>(rng.normal());
  }
  return values;
}

double distance_squared(const Weights& a, const Weights& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum;
}

}  // namespace

TEST_CASE("NoLoCo eq. 74: the interval of the pull", "[noloco]") {
  const PullInterval two = pull_interval(0.5, 2);
  CHECK(two.low == Approx(0.5));
  CHECK(two.high == Approx(1.5));
  const PullInterval four = pull_interval(0.5, 4);  // n/(2(n-1)) = 2/3
  CHECK(four.low == Approx(std::sqrt(2.0 / 3.0) * 0.5));
  CHECK(four.high == Approx(std::sqrt(2.0 / 3.0 * 2.25)));
  CHECK(check_pull(0.7, 0.5, 2));
  CHECK_FALSE(check_pull(0.5, 0.5, 2));  // open
  CHECK_FALSE(check_pull(1.5, 0.5, 2));
  const Status refused = check_pull(0.3, 0.5, 2);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().why.find("above 0.5 and below 1.5") != std::string::npos);
}

TEST_CASE("NoLoCo §3.2: in a group of all with equal outer states it is heavy-ball DiLoCo, to the last bit", "[noloco]") {
  for (const std::size_t islands : {std::size_t{2}, std::size_t{3}, std::size_t{5}, std::size_t{8}}) {
    CAPTURE(islands);
    const Weights start = drawn(1000, 1);
    std::vector<Island> group(islands, Island{start, Weights(start.size())});
    Island diloco{start, Weights(start.size())};
    for (std::uint64_t round = 1; round <= 20; ++round) {
      std::vector<Weights> locals;
      std::vector<Bytes> gradients;
      std::vector<EncodedTerm> terms;
      for (std::size_t i = 0; i < islands; ++i) {
        locals.push_back(trained(diloco.parameters, i, round));
        Weights gradient = locals.back();
        REQUIRE(form_outer_gradient(diloco.parameters, gradient));
        gradients.emplace_back(gradient.size() * 4);
        REQUIRE(encode(kExact, gradient, gradients.back()));
      }
      for (const Bytes& gradient : gradients) {
        terms.push_back({gradient, static_cast<float>(1.0 / static_cast<double>(islands))});
      }
      std::vector<Island*> members;
      for (Island& island : group) {
        members.push_back(&island);
      }
      meet(members, locals, kPaper);
      REQUIRE(outer_step(ReducedResult{kExact, terms}, {OuterOptimizerKind::heavy_ball, 0.7, 0.5}, {diloco.parameters, diloco.momentum}));
      for (const Island& island : group) {
        REQUIRE(island.parameters == diloco.parameters);
        REQUIRE(island.momentum == diloco.momentum);
      }
    }
  }
}

TEST_CASE("NoLoCo: without exchange it is momentum on a single island", "[noloco]") {
  Island alone{drawn(100, 2), Weights(100)};
  std::vector<double> phi(alone.parameters.begin(), alone.parameters.end());
  std::vector<double> m(100);
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const Weights local = trained(alone.parameters, 1, round);
    for (std::size_t i = 0; i < m.size(); ++i) {
      m[i] = 0.5 * m[i] + 0.7 * (static_cast<double>(local[i]) - static_cast<double>(alone.parameters[i]));
    }
    Weights gradient = local;
    REQUIRE(form_outer_gradient(alone.parameters, gradient));
    REQUIRE(heavy_ball_step(gradient, 0.7, 0.5, {alone.parameters, alone.momentum}));
    for (std::size_t i = 0; i < m.size(); ++i) {
      phi[i] += m[i];
      REQUIRE(static_cast<double>(alone.parameters[i]) == Approx(phi[i]).margin(1e-5));
    }
  }
}

TEST_CASE("NoLoCo eq. 2 and 3: three rounds of four islands with one weight, by hand", "[noloco]") {
  // α = 1/2, β = 1/2, γ = 1; islands a b c d begin at 0, 8, 16, 24; all of these numbers are exact in float32.
  const OuterOptimizer optimizer{OuterOptimizerKind::heavy_ball, 0.5, 0.5, 1.0};
  std::vector<Island> at{{{0}, {0}}, {{8}, {0}}, {{16}, {0}}, {{24}, {0}}};
  const auto pair = [&](std::size_t i, std::size_t j, float moved_i, float moved_j) {
    meet({&at[i], &at[j]}, {{at[i].parameters[0] + moved_i}, {at[j].parameters[0] + moved_j}}, optimizer);
  };
  const auto check = [&](std::vector<float> phi, std::vector<float> m) {
    for (std::size_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      CHECK(at[i].parameters[0] == phi[i]);
      CHECK(at[i].momentum[0] == m[i]);
    }
  };
  // Round 1, a–b and c–d. Trained by +4, +12 (mean 8) and −4, +4 (mean 0).
  // a: m = ½·8 + (4 − 0) = 8;  b: 4 + (4 − 8) = 0;  c: 0 + (20 − 16) = 4;  d: 0 + (20 − 24) = −4.
  pair(0, 1, 4, 12);
  pair(2, 3, -4, 4);
  check({8, 8, 20, 20}, {8, 0, 4, -4});
  // Round 2, a–c and b–d. Trained by +2, +6 (mean 4) and 0, −8 (mean −4).
  // a: 4 + 2 + (14 − 8) = 12;  c: 2 + 2 + (14 − 20) = −2;  b: 0 − 2 + (14 − 8) = 4;  d: −2 − 2 + (14 − 20) = −10.
  pair(0, 2, 2, 6);
  pair(1, 3, 0, -8);
  check({20, 12, 18, 10}, {12, 4, -2, -10});
  // Round 3, a–d meet; b is left over and c's partner died: both take their step alone. a, d by +8, 0 (mean 4); b by −4, c by +2.
  // a: 6 + 2 + (15 − 20) = 3;  d: −5 + 2 + (15 − 10) = 2;  b: 2 − 2 = 0;  c: −1 + 1 = 0.
  pair(0, 3, 8, 0);
  REQUIRE(heavy_ball_step(Weights{4}, 0.5, 0.5, {at[1].parameters, at[1].momentum}));
  REQUIRE(heavy_ball_step(Weights{-2}, 0.5, 0.5, {at[2].parameters, at[2].momentum}));
  check({23, 12, 18, 12}, {3, 0, 0, 2});
}

TEST_CASE("NoLoCo: the sign that works, with the printed one islands would walk away from what they learned", "[noloco]") {
  std::vector<Island> two{{{0}, {0}}, {{0}, {0}}};
  for (int round = 0; round < 60; ++round) {  // both train towards 5
    std::vector<Weights> locals;
    for (const Island& island : two) {
      locals.push_back({island.parameters[0] - 0.5F * (island.parameters[0] - 5.0F)});
    }
    meet({&two[0], &two[1]}, locals, kPaper);
  }
  CHECK(two[0].parameters[0] == Approx(5.0F).margin(1e-3));
  CHECK(two[1].parameters[0] == two[0].parameters[0]);
}

TEST_CASE("NoLoCo: the pull neither creates nor destroys: the sum of a pair is kept, with a coarse codec too", "[noloco]") {
  for (const CodecKind kind : {CodecKind::f32, CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    CAPTURE(name_of(kind));
    std::vector<Island> two{{drawn(512, 5), Weights(512)}, {drawn(512, 6), Weights(512)}};
    const std::vector<Weights> locals{two[0].parameters, two[1].parameters};  // nothing was trained
    const std::vector<Island> before = two;
    meet({&two[0], &two[1]}, locals, kPaper, CodecSettings{kind});
    for (std::size_t i = 0; i < 512; ++i) {
      REQUIRE(two[0].momentum[i] == -two[1].momentum[i]);
      REQUIRE(two[0].parameters[i] + two[1].parameters[i] == Approx(before[0].parameters[i] + before[1].parameters[i]).margin(1e-6));
    }
    CHECK(distance_squared(two[0].parameters, two[1].parameters) < distance_squared(before[0].parameters, before[1].parameters));
  }
}

namespace {

// The mean squared distance of islands to their mean, after many rounds on a quadratic with noisy gradients: θ <- θ − ω·(θ + noise), H
// times.
double spread_after(double inner_rate, double pull, std::size_t islands, std::uint64_t rounds, std::uint64_t seed, std::uint64_t measured) {
  constexpr std::size_t kWeights = 16;
  constexpr int kSteps = 10;
  std::vector<IslandId> ids;
  std::map<IslandId, std::size_t> place;
  for (std::size_t i = 0; i < islands; ++i) {
    ids.emplace_back(std::string(1, static_cast<char>('a' + i)));
    place[ids.back()] = i;
  }
  std::vector<Island> at(islands, Island{Weights(kWeights), Weights(kWeights)});
  Rng rng(seed, stream_of("gradient noise"));
  const OuterOptimizer optimizer{OuterOptimizerKind::heavy_ball, 0.7, 0.5, pull};
  double sum = 0;
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (const std::vector<IslandId>& group : pairing(seed, Round(round), ids)) {
      std::vector<Island*> members;
      std::vector<Weights> locals;
      for (const IslandId& id : group) {
        members.push_back(&at[place[id]]);
        Weights local = members.back()->parameters;
        for (int step = 0; step < kSteps; ++step) {
          for (float& value : local) {
            value -= static_cast<float>(inner_rate * (static_cast<double>(value) + rng.normal()));
          }
        }
        locals.push_back(std::move(local));
      }
      meet(members, locals, optimizer);
    }
    if (round + measured > rounds) {
      for (std::size_t w = 0; w < kWeights; ++w) {
        double mean = 0;
        for (const Island& island : at) {
          mean += static_cast<double>(island.parameters[w]) / static_cast<double>(islands);
        }
        for (const Island& island : at) {
          const double difference = static_cast<double>(island.parameters[w]) - mean;
          sum += difference * difference / static_cast<double>(islands * measured);
        }
      }
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("NoLoCo Theorem 1: the variance between islands is bounded and goes with the square of the inner learning rate", "[noloco]") {
  // A fit of log(variance) over log(learning rate): slope 2, that is 1 for the standard deviation.
  std::vector<double> x;
  std::vector<double> y;
  for (const double rate : {0.0005, 0.001, 0.002, 0.004, 0.008}) {
    const double early = spread_after(rate, 0.7, 8, 200, 11, 100);
    const double late = spread_after(rate, 0.7, 8, 500, 11, 100);
    CAPTURE(rate, early, late);
    CHECK(late < 2 * early);  // it does not grow with the rounds
    x.push_back(std::log(rate));
    y.push_back(std::log(late));
  }
  double mean_x = 0;
  double mean_y = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / static_cast<double>(x.size());
    mean_y += y[i] / static_cast<double>(y.size());
  }
  double above = 0;
  double below = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    above += (x[i] - mean_x) * (y[i] - mean_y);
    below += (x[i] - mean_x) * (x[i] - mean_x);
  }
  const double slope = above / below;
  WARN("slope of log(variance between islands) over log(inner learning rate): " << slope << " (theory: 2)");
  CHECK(slope == Approx(2.0).margin(0.15));
}

TEST_CASE("NoLoCo eq. 74: outside the interval the islands drift apart", "[noloco]") {
  const double inside = spread_after(0.002, 0.7, 8, 300, 5, 20);
  const double above = spread_after(0.002, 2.2, 8, 300, 5, 20);
  const double none = spread_after(0.002, 0.0, 8, 300, 5, 20);
  CAPTURE(inside, above, none);
  CHECK(above > 1e6 * inside);  // grows without bound
  CHECK(none > 5 * inside);     // nothing pulls: a random walk, held by the quadratic alone
}

TEST_CASE("projections: the distance between islands without sending parameters, with the stated variance", "[noloco]") {
  const Weights a = drawn(3001, 20);
  Weights b = a;
  Rng rng(9, 9);
  for (float& value : b) {
    value += static_cast<float>(0.01 * rng.normal());
  }
  const double truth = distance_squared(a, b);
  double norm4 = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    norm4 += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 4.0);
  }
  constexpr int kSeeds = 2000;
  double sum = 0;
  double squares = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    Projection of_a{};
    Projection of_b{};
    project(static_cast<std::uint64_t>(seed), 0, a, of_a);
    project(static_cast<std::uint64_t>(seed), 0, b, of_b);
    double estimate = 0;
    for (std::size_t k = 0; k < kProjections; ++k) {
      const double difference = static_cast<double>(static_cast<float>(of_a[k])) - static_cast<double>(static_cast<float>(of_b[k]));
      estimate += difference * difference;
    }
    sum += estimate / truth;
    squares += estimate * estimate / (truth * truth);
  }
  const double mean = sum / kSeeds;
  const double variance = squares / kSeeds - mean * mean;
  const double stated = 2.0 / kProjections * (1.0 - norm4 / (truth * truth));
  CAPTURE(mean, variance, stated);
  CHECK(mean == Approx(1.0).margin(5 * std::sqrt(stated / kSeeds)));  // unbiased
  CHECK(variance == Approx(stated).epsilon(0.15));
}

TEST_CASE("projections: parts add up to the whole, wherever a fragment begins", "[noloco]") {
  const Weights values = drawn(1000, 4);
  Projection whole{};
  project(5, 0, values, whole);
  Projection parts{};
  project(5, 400, std::span(values).subspan(400), parts);
  project(5, 0, std::span(values).first(400), parts);
  for (std::size_t k = 0; k < kProjections; ++k) {
    REQUIRE(parts[k] == Approx(whole[k]).margin(1e-9));
  }
}
