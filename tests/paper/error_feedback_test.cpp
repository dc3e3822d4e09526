// Error feedback (arXiv:1901.09847, Algorithm 1): a history computed by hand, and what it is for: nothing is lost in the long run.
#include "strategies/error_feedback.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

using namespace atl;

namespace {

std::vector<float> sent_of(const CodecSettings& codec, std::vector<float> values, std::vector<float>& residual, EncodePosition at = {}) {
  const Result<Bytes> bytes = encoding_with_feedback(codec, values, residual, at);
  REQUIRE(bytes);
  std::vector<float> sent(values.size());
  REQUIRE(decode(codec, *bytes, sent));
  return sent;
}

}  // namespace

// fp4 with an absmax of 64: the scale is 1, values are 0, 1, 2, 4, … with midpoints ½, 1.5, 3, …
// Δ = 2.5 in each round: 2.5 → 2, e = 0.5; 3 → 4 (a tie goes up), e = −1; 1.5 → 2, e = −0.5; 2 → 2, e = 0; and again.
TEST_CASE("error feedback: fp4, by hand") {
  const CodecSettings codec{CodecKind::fp4, 16, Rounding::nearest};
  std::vector<float> residual(2);
  std::vector<float> sent;
  std::vector<float> left;
  for (int round = 0; round < 4; ++round) {
    sent.push_back(sent_of(codec, {64.0F, 2.5F}, residual)[1]);
    left.push_back(residual[1]);
    CHECK(residual[0] == 0.0F);
  }
  CHECK(sent == std::vector<float>{2, 4, 2, 2});
  CHECK(left == std::vector<float>{0.5F, -1.0F, -0.5F, 0.0F});
}

TEST_CASE("error feedback: what was sent follows what was meant, and never falls behind by more than one rounding") {
  constexpr std::size_t kValues = 1000;
  for (const CodecKind kind : {CodecKind::bf16, CodecKind::int8, CodecKind::fp4}) {
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      const CodecSettings codec{kind, 64, rounding};
      Rng rng(3, stream_of("feedback"));
      std::vector<float> residual(kValues);
      std::vector<double> meant(kValues);
      std::vector<double> sent(kValues);
      std::vector<double> without(kValues);
      for (std::uint64_t round = 0; round < 200; ++round) {
        std::vector<float> values(kValues);
        for (std::size_t i = 0; i < kValues; ++i) {
          values[i] = 0.01F + static_cast<float>(rng.normal()) * 0.003F;
          meant[i] += static_cast<double>(values[i]);
        }
        std::vector<float> none(kValues);
        const std::vector<float> plain = sent_of(codec, values, none, {0, round});
        const std::vector<float> fed = sent_of(codec, values, residual, {0, round});
        for (std::size_t i = 0; i < kValues; ++i) {
          sent[i] += static_cast<double>(fed[i]);
          without[i] += static_cast<double>(plain[i]);
        }
      }
      double worst = 0;
      double worst_without = 0;
      for (std::size_t i = 0; i < kValues; ++i) {
        worst = std::max(worst, std::abs(meant[i] - sent[i]));
        worst_without = std::max(worst_without, std::abs(meant[i] - without[i]));
        // Σ Δ = Σ sent + e, but for the roundings of float32.
        REQUIRE(meant[i] == Approx(sent[i] + static_cast<double>(residual[i])).margin(1e-6));
      }
      INFO("codec " << name_of(kind) << ": " << worst << " behind, " << worst_without << " without feedback");
      CHECK(worst <= 0.03);  // one rounding of values of about 0.02, however many rounds
      CHECK(worst < worst_without);
    }
  }
}

TEST_CASE("error feedback: a contribution that is not finite leaves the residual as it was") {
  const CodecSettings codec{CodecKind::int8, 16, Rounding::nearest};
  std::vector<float> residual = {0.25F, 0.5F};
  std::vector<float> values = {1.0F, std::numeric_limits<float>::infinity()};
  const Result<Bytes> status = encoding_with_feedback(codec, values, residual);
  REQUIRE_FALSE(status);
  CHECK(status.error().code == Code::corrupt);
  CHECK(residual == std::vector<float>{0.25F, 0.5F});
  std::vector<float> other(3);
  CHECK(encoding_with_feedback(codec, other, residual).error().code == Code::invalid_argument);
}
