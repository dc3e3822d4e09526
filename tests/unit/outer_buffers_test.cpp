// The outer state knows its own buffers: what is kept in memory, planned for and written to checkpoints is the same.
#include "agent/engine/outer_buffers.hpp"

#include <numeric>

#include "tests/catch.hpp"

namespace of_outer_buffers_test {

using namespace atl;

namespace {

constexpr std::uint64_t kValues = 48;

OuterBuffers buffers_of(OuterOptimizerKind kind, OuterStateFormat format) { return OuterBuffers::make(kValues, kind, format).value(); }

}  // namespace

TEST_CASE("outer buffers: what a plan reckons with is what is kept, whatever the optimiser and the format", "[engine]") {
  for (const OuterOptimizerKind kind : {OuterOptimizerKind::nesterov, OuterOptimizerKind::heavy_ball, OuterOptimizerKind::sgd,
                                        OuterOptimizerKind::adopt, OuterOptimizerKind::clipped_momentum}) {
    for (const OuterStateFormat format : {OuterStateFormat::f32, OuterStateFormat::bf16}) {
      INFO(name_of(kind) << ", " << name_of(format));
      const OuterBuffers kept = buffers_of(kind, format);
      const std::vector<OuterBuffer> buffers = kept.all().buffers();
      REQUIRE(buffers.size() == (has_momentum(kind) ? 2 : 1));
      CHECK(std::accumulate(buffers.begin(), buffers.end(), std::uint64_t{0}, [](std::uint64_t bytes, const OuterBuffer& buffer) {
              return bytes + buffer.bytes.size();
            }) == kValues * outer_state_bytes(kind, format));
      CHECK(buffers.front().prefix.empty());
      CHECK(buffers.front().format == OuterStateFormat::f32);
      if (has_momentum(kind)) {
        CHECK(buffers.back().prefix == "momentum/");
        CHECK(buffers.back().format == format);
        CHECK(buffers.back().part(16, 8).size() == 8 * bytes_a_value(format));
        CHECK(kept.momentum() == std::vector<float>(kValues));
      }
    }
  }
}

TEST_CASE("outer buffers: a step on a range changes it alone, and a new beginning forgets it", "[engine]") {
  for (const OuterStateFormat format : {OuterStateFormat::f32, OuterStateFormat::bf16}) {
    OuterBuffers kept = buffers_of(OuterOptimizerKind::nesterov, format);
    kept.begin_with(std::vector<float>(kValues, 1.0F));
    REQUIRE(outer_step(std::vector<float>(16, 0.5F), {OuterOptimizerKind::nesterov, 1.0, 0.5}, kept.range(16, 16, 7)));
    for (std::size_t i = 0; i < kValues; ++i) {
      const bool stepped = i >= 16 && i < 32;
      CHECK(kept.parameters()[i] == (stepped ? 0.25F : 1.0F));  // θ − η·(g + μ·g)
      CHECK(kept.momentum()[i] == (stepped ? 0.5F : 0.0F));
    }
    kept.begin_with(std::vector<float>(kValues, 2.0F));
    CHECK(kept.momentum() == std::vector<float>(kValues));
  }
}

}  // namespace of_outer_buffers_test
