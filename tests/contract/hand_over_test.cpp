// Rounds whose exchange takes a whole period, over real bulk links on loopback: what an island contributes and goes on from, against the
// algorithm in double, and that a checkpoint in the middle of it comes to the same digests.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "tests/catch.hpp"
#include "tests/contract/engine_islands.hpp"
#include "transport/base/rng.hpp"

namespace of_hand_over_test {

using namespace atl;
using namespace atl::agent;
using atl_test::Island;
using atl_test::Islands;
using atl_test::kRun;

namespace {

constexpr std::uint64_t kValues = 3000;
constexpr std::uint64_t kRounds = 6;

RunSpec whole_period(std::string_view name, CodecKind codec, bool eager) {
  RunSpec spec;
  spec.name = "hand over";
  spec.strategy = named_strategy(name).value();
  spec.strategy.eager = eager;
  spec.strategy.inner_steps = 10;
  spec.strategy.overlap_steps = 10;
  spec.strategy.codec = codec;
  spec.strategy.reduce_codec = codec;
  spec.training.steps = 10 * kRounds;
  spec.rounds = kRounds;
  return spec;
}

// Islands of which each trains by what its number and the round say, and what they should come to.
class Run {
 public:
  Run(int islands, const RunSpec& spec) : spec_(spec), islands_(islands, std::vector<std::uint64_t>{kValues}, spec) {
    local_.assign(islands_.all.size(), std::vector<float>(kValues, 1.0F));
    expected_.assign(islands_.all.size(), std::vector<double>(kValues, 1.0));
    own_.assign(islands_.all.size(), std::vector<double>(kValues));
    tokens_ = islands == 2 ? std::vector<std::uint64_t>{300, 100} : std::vector<std::uint64_t>{100, 200, 100};
  }

  // All train and publish.
  void publish(Round round) {
    before_ = std::exchange(delta_, {});
    for (std::size_t k = 0; k < islands_.all.size(); ++k) {
      Rng rng(round.value, k);
      delta_.emplace_back(kValues);
      const std::vector<double> start = expected_[k];
      for (std::size_t i = 0; i < kValues; ++i) {
        const float moved = 0.1F * static_cast<float>(rng.normal()) + 0.05F * static_cast<float>(k + 1);
        local_[k][i] -= moved;
        expected_[k][i] -= static_cast<double>(moved);
        delta_[k][i] = start[i] - expected_[k][i];
      }
      Island& island = *islands_.all[k];
      std::ranges::copy(local_[k], island.fragment(0).begin());
      island.form(round, {.tokens = tokens_[k], .steps = 10, .training_loss = 1.0});
    }
  }

  Digest exchange(Round round, Attempt attempt = Attempt(1)) {
    for (auto& island : islands_.all) {
      island->engine->post(islands_.exchange(round, attempt, tokens_));
    }
    std::vector<Digest> digests;
    for (auto& island : islands_.all) {
      digests.push_back(island->answer<ExchangeDone>().digest);
      CHECK(digests.back() == digests.front());
    }
    for (auto& island : islands_.all) {
      island->engine->post(ApplyResult{kRun, round, attempt, 0, digests.front()});
      CHECK_FALSE(island->answer<ResultApplied>().error.has_value());
    }
    return digests.front();
  }

  // What the outer state should be after the mean of these contributions.
  void step_expected(const std::vector<std::vector<double>>& delta) {
    for (std::size_t i = 0; i < kValues; ++i) {
      double mean = 0;
      for (std::size_t k = 0; k < delta.size(); ++k) {
        mean += weight(k) * delta[k][i];
        own_[k][i] = spec_.strategy.outer_momentum * own_[k][i] + weight(k) * delta[k][i];
      }
      const OuterStep step = stepped(mean, momentum_[i]);
      momentum_[i] = step.momentum;
      outer_[i] += step.moved;
    }
  }

  // The trainers take the result of `round`; they have published for the next one, unless it is the last.
  void hand_over(Round round, bool last) {
    for (std::size_t k = 0; k < islands_.all.size(); ++k) {
      Island& island = *islands_.all[k];
      island.engine->post(HandOver{kRun, round, 0});
      REQUIRE_FALSE(island.answer<HandedOver>().error.has_value());
      std::ranges::copy(island.fragment(0), local_[k].begin());
      for (std::size_t i = 0; i < kValues; ++i) {
        const bool own = spec_.strategy.eager && !last;
        expected_[k][i] = outer_[i] + (own ? stepped(weight(k) * delta_[k][i], own_[k][i]).moved : 0.0);
      }
    }
  }

  void check_starts(double within) {
    for (std::size_t k = 0; k < local_.size(); ++k) {
      double worst = 0;
      for (std::size_t i = 0; i < kValues; ++i) {
        worst = std::max(worst, std::abs(static_cast<double>(local_[k][i]) - expected_[k][i]));
      }
      INFO("island " << k);
      CHECK(worst < within);
    }
  }

  [[nodiscard]] double weight(std::size_t k) const {
    double sum = 0;
    for (const std::uint64_t count : tokens_) {
      sum += static_cast<double>(count);
    }
    return static_cast<double>(tokens_[k]) / sum;
  }

  RunSpec spec_;
  Islands islands_;
  std::vector<std::uint64_t> tokens_;
  std::vector<std::vector<float>> local_;      // of the trainers
  std::vector<std::vector<double>> expected_;  // what they should be
  std::vector<std::vector<double>> delta_;     // newest contributions, and those before
  std::vector<std::vector<double>> before_;
  std::vector<std::vector<double>> own_;
  std::vector<double> outer_ = std::vector<double>(kValues, 1.0);
  std::vector<double> momentum_ = std::vector<double>(kValues);

 private:
  struct OuterStep {
    double moved;
    double momentum;
  };
  [[nodiscard]] OuterStep stepped(double gradient, double momentum) const {
    const double now = spec_.strategy.outer_momentum * momentum + gradient;
    return {-spec_.strategy.outer_learning_rate * (gradient + spec_.strategy.outer_momentum * now), now};
  }
};

// The whole run from round `from` on, whose contribution is formed; the digests of its rounds.
std::vector<Digest> go_on(Run& run, std::uint64_t from, Attempt attempt) {
  std::vector<Digest> digests;
  for (std::uint64_t round = from; round <= kRounds; ++round) {
    digests.push_back(run.exchange(Round(round), attempt));
    run.step_expected(run.delta_);
    if (round < kRounds) {
      run.publish(Round(round + 1));
    }
    run.hand_over(Round(round), round == kRounds);
  }
  return digests;
}

}  // namespace

TEST_CASE("whole period: what islands go on from is the outer state and their own term, in the first period their own parameters") {
  for (const int islands : {1, 2, 3}) {
    for (const bool eager : {true, false}) {
      for (const CodecKind codec : {CodecKind::f32, CodecKind::bf16}) {
        if (islands == 1 && codec != CodecKind::f32) {
          continue;
        }
        INFO(islands << " islands, " << name_of(codec) << (eager ? ", eager" : ", delayed"));
        Run run(islands, whole_period("eager-diloco", codec, eager));
        if (islands == 1) {
          run.tokens_ = {100};
        }
        const double within = codec == CodecKind::f32 ? 1e-4 : 0.05;
        run.publish(Round(1));
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          run.exchange(Round(round));
          run.step_expected(run.delta_);
          if (round < kRounds) {
            run.publish(Round(round + 1));
          }
          run.hand_over(Round(round), round == kRounds);
          run.check_starts(within);
        }
        for (const std::vector<float>& local : run.local_) {
          CHECK(local == run.local_.front());  // the run ends with one model
        }
      }
    }
  }
}

TEST_CASE("whole period: from a checkpoint with a round in flight a run comes to the same digests again") {
  for (const CodecKind codec : {CodecKind::f32, CodecKind::fp4}) {
    INFO(name_of(codec));
    Run run(2, whole_period("eager-diloco", codec, true));
    run.publish(Round(1));
    run.exchange(Round(1));
    run.publish(Round(2));
    run.hand_over(Round(1), false);
    const Digest second = run.exchange(Round(2));
    for (auto& island : run.islands_.all) {
      island->engine->post(BeginCheckpoint{kRun, Round(2), second});
    }
    run.publish(Round(3));
    run.hand_over(Round(2), false);
    const auto saved = run.local_;  // in the trainers' own states
    for (auto& island : run.islands_.all) {
      island->engine->post(WriteCheckpoint{kRun, Epoch(1), Round(2), second, TrainerSave::none, Step(30), 300, 3, {}});
      CHECK(island->answer<CheckpointWritten>().round == Round(2));
    }
    const std::vector<Digest> undisturbed = go_on(run, 3, Attempt(1));
    for (auto& island : run.islands_.all) {
      island->engine->post(LoadCheckpoint{kRun, Round(2), second});
      const CheckpointLoaded loaded = island->answer<CheckpointLoaded>();
      REQUIRE(loaded.pending.size() == 1);
      CHECK(loaded.pending[0].round == Round(3));
    }
    run.local_ = saved;
    CHECK(go_on(run, 3, Attempt(2)) == undisturbed);
  }
}

TEST_CASE("whole period: whoever is loaded with the outer parameters has no own term, and contributes what it did since") {
  Run run(2, whole_period("eager-diloco", CodecKind::f32, true));
  run.publish(Round(1));
  run.exchange(Round(1));
  run.step_expected(run.delta_);
  Island& island = *run.islands_.all[0];
  island.engine->post(FillArena{kRun, 1});
  REQUIRE(island.answer<ArenaFilled>().status.ok());
  for (std::size_t i = 0; i < kValues; ++i) {
    REQUIRE(static_cast<double>(island.fragment(0)[i]) == Approx(run.outer_[i]).margin(1e-5));
  }
  // It stands where the others publish for round 2, with nothing done.
  island.engine->post(FormContribution{kRun, Round(2)});
  CHECK(island.answer<ContributionFormed>().facts.norm == 0.0);
}

}  // namespace of_hand_over_test
