// How far a run is, for learning rates.
#include "agent/island_link/client/run_progress.hpp"

#include "tests/catch.hpp"

namespace of_run_progress_test {

using atl::island_link::RunProgress;

TEST_CASE("run progress: without tokens it is the share of the steps, to the bit") {
  RunProgress progress;
  for (std::uint64_t step = 1; step <= 1000; ++step) {
    progress.train(640);
    REQUIRE(progress.after(step, 1000) == static_cast<double>(step) / 1000.0);
  }
  REQUIRE(progress.after(1001, 1000) == 1.0);
}

TEST_CASE("run progress: where tokens end the run it follows what all islands have committed, smoothly and never back") {
  constexpr std::uint64_t kOf = 100'000;
  RunProgress progress;
  progress.hear(0, kOf, 0);
  double before = 0;
  // Three islands, of which this one does a step of 100 tokens while the others do 100 each; a round every ten steps.
  for (std::uint64_t step = 1; step <= 330; ++step) {
    const double now = progress.after(step, 100'000);
    INFO("step " << step);
    REQUIRE(now >= before);
    REQUIRE(now <= 1.0);
    if (step > 30) {
      const double truth = static_cast<double>(step) * 300 / kOf;
      REQUIRE(std::abs(now - std::min(1.0, truth)) < 0.011);
      REQUIRE(now - before < 0.0075);  // no staircase: a round has 0.03
    }
    before = now;
    progress.train(100);
    if (step % 10 == 0) {
      progress.hear(300 * (step - 1), kOf, step);  // told a step late
    }
  }
}

TEST_CASE("run progress: an island that hears nothing goes on by what it trains itself, and no further than a round ahead") {
  RunProgress progress;
  progress.hear(10'000, 100'000, 0);  // it joined late
  CHECK(progress.after(1, 100'000) == 0.1);
  progress.train(1'000);
  CHECK(progress.after(2, 100'000) == 0.11);
  progress.hear(20'000, 100'000, 10);
  CHECK(progress.after(15, 100'000) == 0.25);
  CHECK(progress.after(20, 100'000) == 0.30);
  CHECK(progress.after(1'000, 100'000) == 0.30);
  progress.train(15'000);
  CHECK(progress.after(1'001, 100'000) == 0.35);
}

TEST_CASE("run progress: steps end a run that has committed fewer tokens than it may") {
  RunProgress progress;
  progress.hear(10, 1'000'000, 0);
  CHECK(progress.after(90, 100) == 0.9);
}

}  // namespace of_run_progress_test
