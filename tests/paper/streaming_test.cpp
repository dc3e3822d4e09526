// Streaming DiLoCo, arXiv:2501.18512: its schedule, its merge and its number format.
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "strategies/codec.hpp"
#include "strategies/composition.hpp"
#include "strategies/fragments.hpp"
#include "strategies/schedule.hpp"
#include "tests/catch.hpp"
#include "tests/merge.hpp"
#include "tests/streaming_cost.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

std::vector<ParameterInfo> layers(std::int32_t count) {
  std::vector<ParameterInfo> manifest{{"embedding", {7}, kEmbeddings, 7}};
  for (std::int32_t layer = 0; layer < count; ++layer) {
    manifest.push_back({"layer" + std::to_string(layer), {5}, layer, 5});
  }
  manifest.push_back({"norm", {3}, count, 3});
  return manifest;
}

}  // namespace

TEST_CASE("Streaming DiLoCo §2.2: strided fragments of three layers, and how often one is sent with H = 100") {
  struct Scale {
    std::int32_t layers;
    std::size_t fragments;
    std::uint64_t every;  // inner steps between two rounds, rounded down
  };
  for (const Scale& scale : {Scale{24, 8, 11}, Scale{48, 16, 5}, Scale{108, 36, 2}}) {
    const auto layout = lay_out(layers(scale.layers), {FragmentKind::strided, 0, 3}).value();
    REQUIRE(layout.fragments.size() == scale.fragments + 1);  // the embeddings are one more
    const auto schedule = Schedule::make(1000, 100, static_cast<std::uint32_t>(layout.fragments.size())).value();
    std::set<std::uint64_t> gaps;
    for (std::uint64_t round = 1; round + layout.fragments.size() < schedule.rounds(); ++round) {
      gaps.insert(schedule.round_at(Round(round + 1)).value().start.value - schedule.round_at(Round(round)).value().start.value);
    }
    CHECK(*gaps.begin() == scale.every);
    CHECK(*gaps.rbegin() <= scale.every + 1);
  }
}

TEST_CASE("Streaming DiLoCo Alg. 2: every fragment once a period, applied τ steps after it was sent") {
  const auto schedule = Schedule::make(10'000, 100, 2, 5).value();
  for (std::uint64_t step = 100; step < 9'900; ++step) {
    const auto started = schedule.rounds_starting_at(Step(step));
    REQUIRE(started.size() == (step % 50 == 0 ? 1U : 0U));
    if (!started.empty()) {
      REQUIRE(started[0].fragment == step / 50 % 2);
      REQUIRE(schedule.rounds_applying_at(Step(step + 5)) == started);
    }
  }
}

TEST_CASE("Streaming DiLoCo §2.3: the limits of the merge") {
  const std::vector<float> global{1, 2};
  for (const auto& [alpha, expected] : std::vector<std::pair<double, std::vector<float>>>{{0.0, {1, 2}}, {0.5, {2, 4}}, {1.0, {3, 6}}}) {
    std::vector<float> local{3, 6};
    REQUIRE(merge(alpha, global, local));
    CHECK(local == expected);
  }
}

TEST_CASE("Streaming DiLoCo §2.4: E3M0 takes a half byte a value and at most a third of its size") {
  const CodecSettings fp4{CodecKind::fp4, 1024, Rounding::nearest};
  // 4 bits and a scale for each 1,024: 7.94 times fewer bytes than f32.
  CHECK(4.0 * (1 << 20) / static_cast<double>(encoded_bytes(fp4, 1 << 20)) == Approx(7.94).margin(0.01));
  std::vector<float> values;
  for (int i = 0; i <= 1024 * 63; i += 63) {
    values.push_back(1.0F + static_cast<float>(i) / 1024.0F);  // s = 1: from s to 64·s
  }
  values.resize(1024);
  values.back() = 64.0F;
  std::vector<std::byte> bytes(encoded_bytes(fp4, values.size()));
  REQUIRE(encode(fp4, values, bytes));
  std::vector<float> back(values.size());
  REQUIRE(decode(fp4, bytes, back));
  double worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, static_cast<double>(std::abs(back[i] - values[i]) / values[i]));
  }
  CHECK(worst <= 1.0 / 3.0 + 1e-7);
  CHECK(worst > 0.32);  // and the bound is reached
}

TEST_CASE("Streaming DiLoCo §3.2: its main run as a composition") {
  auto settings = named_strategy("streaming-diloco").value();
  settings.inner_steps = 30;
  const auto parts = compose(settings).value();
  CHECK(parts.fragments == FragmentPlan{FragmentKind::strided, 0, 3});
  CHECK(parts.overlap_steps == 1);
  CHECK(parts.merge_alpha == 0.5);
  CHECK(parts.codec.kind == CodecKind::fp4);
  CHECK(parts.outer == OuterOptimizer{OuterOptimizerKind::nesterov, 0.4, 0.9});
  CHECK(named_strategy("streaming-diloco").value().inner_steps == 100);  // of its Dolma runs and bandwidth tables
}

// The reduced mean of four islands' fp4 contributions, encoded once more: how much larger its error becomes.
TEST_CASE("Streaming DiLoCo: what the reduce codec adds to the error of a mean of fp4 contributions") {
  constexpr std::size_t kValues = 1 << 16;
  constexpr std::size_t kMembers = 4;
  const CodecSettings fp4{CodecKind::fp4, 256, Rounding::nearest};
  Rng rng(7, 0);
  std::vector<double> exact(kValues);
  std::vector<float> mean(kValues);
  for (std::size_t member = 0; member < kMembers; ++member) {
    std::vector<float> values(kValues);
    for (std::size_t i = 0; i < kValues; ++i) {
      values[i] = static_cast<float>(rng.normal());
      exact[i] += static_cast<double>(values[i]) / kMembers;
    }
    std::vector<std::byte> bytes(encoded_bytes(fp4, kValues));
    REQUIRE(encode(fp4, values, bytes));
    REQUIRE(decode_accumulate(fp4, bytes, 1.0F / kMembers, mean));
  }
  const auto error_of = [&](CodecKind kind) {
    const CodecSettings codec{kind, 256, Rounding::nearest};
    std::vector<std::byte> bytes(encoded_bytes(codec, kValues));
    std::vector<float> back(kValues);
    REQUIRE(encode(codec, mean, bytes));
    REQUIRE(decode(codec, bytes, back));
    double squares = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      squares += (back[i] - exact[i]) * (back[i] - exact[i]);
    }
    return std::sqrt(squares);
  };
  const double without = error_of(CodecKind::f32);
  const double bf16 = error_of(CodecKind::bf16) / without;
  const double int8 = error_of(CodecKind::int8) / without;
  const double again = error_of(CodecKind::fp4) / without;
  INFO("error relative to f32: bf16 " << bf16 << ", int8 " << int8 << ", fp4 " << again);
  CHECK(bf16 < 1.001);
  CHECK(int8 < 1.001);
  CHECK(again == Approx(1.40).margin(0.02));
}

TEST_CASE("Streaming DiLoCo §2.1: as many bytes as DiLoCo over a period, in smaller parts") {
  auto settings = named_strategy("streaming-diloco").value();
  settings.codec = settings.reduce_codec = CodecKind::f32;
  const auto parts = compose(settings).value();
  const std::vector<std::uint64_t> values{48'000, 48'000, 24'000};
  for (const std::uint32_t members : {2U, 3U, 5U}) {
    // 1000 steps: rounds of a fragment start at its 9 turns from step 100 on, and once more at the end, as DiLoCo's 10 rounds do.
    const RoundCost streaming = atl_test::streaming_cost(values, parts, 1000, members, 1).value();
    const RoundCost diloco = diloco_cost(120'000, 1000, 100, members, 1, parts.codec, parts.reduce_codec).value();
    CHECK(static_cast<double>(streaming.bytes) == Approx(static_cast<double>(diloco.bytes)).epsilon(0.001));
    CHECK(streaming.messages == 3 * diloco.messages);
  }
  CHECK(atl_test::streaming_cost(values, parts, 1000, 2, 0).value() == RoundCost{30, 4 * 10 * 120'000});
}
