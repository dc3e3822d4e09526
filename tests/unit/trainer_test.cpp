// The trainer as the agent's core knows it: when it is started, what it is told, and what of that is void.
#include "agent/core/trainer.hpp"

#include "agent/core/rules/rule_settings.hpp"
#include "tests/catch.hpp"

namespace of_trainer_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;

RunTerms terms() {
  RunSpec spec;
  spec.name = "run";
  spec.strategy.inner_steps = 4;
  spec.training.steps = 40;
  spec.rounds = 10;
  return RunTerms(RunId("r-1"), spec, compose(spec.strategy).value());
}

struct Bench {
  TimePoint now = from_unix_ms(1'700'000'000'000);
  RunTerms run = terms();
  Settings settings;
  Starts starts;
  Outbox out;
  Trainer trainer{run, settings_of_rule(run).orders, settings, starts, out};

  // Up to the point where it has orders.
  void bring_up() {
    bring_up_aloud();
    out.take();
  }
  void bring_up_aloud() {
    trainer.start(0, {}, nullptr, false);
    TrainerReady ready;
    ready.finishes = true;
    REQUIRE(trainer.on(ready, "a"));
    trainer.load(Round(0), Step(0), 0);
    trainer.on(TrainerLoaded{run.id, trainer.incarnation(), Step(0), 0}, Round(0));
  }
  template <typename E>
  std::optional<E> taken() {
    for (const Effect& effect : out.take().effects) {
      if (const auto* found = std::get_if<E>(&effect)) {
        return *found;
      }
    }
    return std::nullopt;
  }
};

}  // namespace

TEST_CASE("a trainer is started, loaded and given orders, and each start has a number of its own") {
  Bench bench;
  bench.trainer.start(0, {}, nullptr, false);
  const std::uint64_t first = bench.trainer.incarnation();
  CHECK(bench.trainer.phase() == Trainer::Phase::starting);
  CHECK_FALSE(bench.trainer.up());
  bench.bring_up();
  CHECK(bench.trainer.incarnation() > first);
  CHECK(bench.trainer.training());
  CHECK(bench.trainer.holds() == Round(0));
}

TEST_CASE("a trainer is given orders once for a committed round, and keeps those that it has") {
  Bench bench;
  bench.bring_up();
  CHECK(bench.trainer.wants_plan(Round(0)));
  bench.trainer.extend_plan(Round(0), {});
  const std::optional<PlanTrainer> plan = bench.taken<PlanTrainer>();
  REQUIRE(plan);
  CHECK(plan->publish.front().round == Round(1));
  CHECK(bench.trainer.planned() == plan->publish.back().round);
  CHECK_FALSE(bench.trainer.wants_plan(Round(0)));
  bench.trainer.extend_plan(Round(0), {});
  CHECK_FALSE(bench.taken<PlanTrainer>());
  bench.trainer.extend_plan(Round(1), {});
  const std::optional<PlanTrainer> more = bench.taken<PlanTrainer>();
  REQUIRE(more);
  CHECK(more->publish.front().round == plan->publish.back().round.next());
}

TEST_CASE("a trainer whose orders are void is loaded anew, and takes no result before") {
  Bench bench;
  bench.bring_up();
  CHECK_FALSE(bench.trainer.give(Round(1), 0));  // it has no order to merge it
  bench.trainer.extend_plan(Round(0), {});
  CHECK(bench.trainer.give(Round(1), 0));
  bench.trainer.drop_orders();
  CHECK(bench.trainer.phase() == Trainer::Phase::ready);
  CHECK_FALSE(bench.trainer.holds());
  CHECK_FALSE(bench.trainer.give(Round(1), 0));
  bench.out.take();
  bench.trainer.finish(Round(1), true);
  CHECK_FALSE(bench.taken<FinishTrainer>());
}

TEST_CASE("a trainer that was loaded with what is old by now is loaded again") {
  Bench bench;
  bench.bring_up();
  bench.trainer.load(Round(0), Step(0), 0);
  bench.trainer.on(TrainerLoaded{bench.run.id, bench.trainer.incarnation(), Step(0), 0}, Round(1));
  CHECK(bench.trainer.phase() == Trainer::Phase::ready);
}

TEST_CASE("a trainer that keeps ending is started again later and later, until a round is committed, or not at all") {
  Bench bench;
  bench.bring_up();
  Duration before{};
  for (unsigned crash = 1; crash < bench.settings.crashes; ++crash) {
    bench.trainer.on(TrainerExited{bench.run.id, bench.trainer.incarnation(), false, Error{Code::internal, "ended"}});
    const RestartDecision decision = bench.trainer.restart(false, bench.now);
    REQUIRE(decision.restart);
    CHECK(decision.delay > before);
    CHECK(bench.trainer.restart_at() == bench.now + decision.delay);
    before = decision.delay;
  }
  bench.trainer.note_progress();
  bench.trainer.on(TrainerExited{bench.run.id, bench.trainer.incarnation(), false, Error{Code::internal, "ended"}});
  CHECK(bench.trainer.restart(false, bench.now).delay == bench.settings.restart_delay);
  CHECK_FALSE(bench.trainer.restart(true, bench.now).restart);
}

TEST_CASE("a trainer that ends with the same words again and again is not started a fourth time") {
  Bench bench;
  bench.bring_up();
  const auto ends = [&](const std::string& words) {
    bench.trainer.on(TrainerExited{bench.run.id, bench.trainer.incarnation(), false, Error{Code::internal, "ended"}, words});
    return bench.trainer.restart(false, bench.now).restart;
  };
  CHECK(ends("no such file"));
  CHECK(ends("no such file"));
  CHECK(ends(""));  // killed: nobody knows of what
  CHECK(ends(""));
  bench.trainer.note_progress();
  CHECK(ends("no such file"));
  CHECK(ends("no such file"));
  CHECK(ends("out of memory"));
  bench.trainer.note_progress();
  CHECK(ends("no such file"));
  CHECK(ends("no such file"));
  CHECK_FALSE(ends("no such file"));
}

TEST_CASE("a trainer skips to the synchronisation point that others have come to, once it has done enough steps") {
  Bench bench;
  bench.bring_up();
  bench.trainer.extend_plan(Round(0), {});
  bench.out.take();
  bench.trainer.hurry(Round(1), Round(0));
  CHECK_FALSE(bench.taken<SkipTrainer>());
  TrainerProgress progress;
  progress.step = Step(1);
  bench.trainer.on(progress, Round(0));
  const std::optional<SkipTrainer> skip = bench.taken<SkipTrainer>();
  REQUIRE(skip);
  CHECK(skip->step == Step(4));
}

TEST_CASE("a trainer hears what the run has committed, once each, and only where tokens end the run") {
  const std::uint64_t of = GENERATE(0U, 5000U);
  Bench bench;
  bench.run.spec.training.tokens = of;
  bench.trainer.hear_tokens(100);
  bench.trainer.tell_tokens();
  CHECK_FALSE(bench.taken<TellTokens>());  // nobody is there
  bench.bring_up_aloud();                  // before it has its first order
  const std::optional<TellTokens> told = bench.taken<TellTokens>();
  CHECK(told.has_value() == (of > 0));
  CHECK((!told || (told->committed == 100 && told->of == of && told->incarnation == bench.trainer.incarnation())));
  bench.trainer.tell_tokens();
  CHECK_FALSE(bench.taken<TellTokens>());
}

TEST_CASE("what a trainer did before it ended counts in the island's report") {
  Bench bench;
  bench.bring_up();
  TrainerProgress progress;
  progress.tokens = 100;
  progress.compute_seconds = 2;
  bench.trainer.on(progress, Round(0));
  bench.trainer.on(TrainerExited{bench.run.id, bench.trainer.incarnation(), false, Error{Code::internal, "ended"}});
  progress.tokens = 10;
  bench.trainer.on(progress, Round(0));
  IslandReport report;
  bench.trainer.describe(report);
  CHECK(report.tokens == 110);
  CHECK(report.compute_seconds == 4);
}

}  // namespace of_trainer_test
