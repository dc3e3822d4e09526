// The forecast against hand-computed cases and bounds that no schedule can beat.
#include <limits>
#include <string>
#include <utility>

#include "strategies/planning/forecast.hpp"
#include "tests/catch.hpp"

namespace of_strategies_forecast_test {

using namespace atl;

namespace {

// Two islands, a step a second, 1 Mbit/s up and down, no latency; 100 steps, H = 10, one fragment of 250,000 values: 1 MB, 8 s.
ForecastQuestion two_islands() {
  ForecastQuestion question;
  question.composition = compose(named_strategy("diloco").value()).value();
  question.composition.inner_steps = 10;
  question.total_steps = 100;
  question.fragment_values = {250'000};
  for (const char* name : {"a", "b"}) {
    question.islands.push_back({name, 1.0, 1e6, 1e6, 0.0});
  }
  return question;
}

}  // namespace

TEST_CASE("a forecast of DiLoCo without overlap adds every exchange to the time") {
  const Forecast result = forecast(two_islands()).value();
  CHECK(result.rounds == 10);
  CHECK(result.bytes_per_round == 1'000'000);
  CHECK(result.seconds == Approx(180.0));
  CHECK(result.utilisation == Approx(100.0 / 180.0));
  CHECK(result.islands[0].bytes_sent == 10'000'000);
  CHECK(result.islands[0].waiting_seconds == Approx(80.0));
  CHECK(result.islands[0].mean_bits_per_second == Approx(80e6 / 180.0));
  CHECK(result.islands[0].bytes_sent_per_day == Approx(1e7 / 180.0 * 86400));
  CHECK(result.agent_memory_bytes == 250'000 * 16);
  ForecastQuestion rounded = two_islands();
  rounded.composition.outer_state = OuterStateFormat::bf16;
  CHECK(forecast(rounded).value().agent_memory_bytes == 250'000 * 14);
  rounded.composition.outer.kind = OuterOptimizerKind::sgd;
  CHECK(forecast(rounded).value().agent_memory_bytes == 250'000 * 12);
}

TEST_CASE("latency is paid once for the control messages and once for each hop") {
  ForecastQuestion question = two_islands();
  for (ForecastIsland& island : question.islands) {
    island.round_trip_seconds = 0.1;
  }
  // Ready 0.05 and Exchange 0.05, one hop 0.1, Exchanged 0.05 and Commit 0.05.
  CHECK(forecast(question).value().seconds == Approx(180.0 + 10 * 0.3));
}

TEST_CASE("the slowest island and the thinnest link decide, and the others' waiting is counted") {
  ForecastQuestion question = two_islands();
  question.islands[1].step_seconds = 2.0;
  const Forecast slow = forecast(question).value();
  CHECK(slow.seconds == Approx(280.0));
  CHECK(slow.islands[0].waiting_seconds == Approx(180.0));
  CHECK(slow.islands[1].waiting_seconds == Approx(80.0));
  question = two_islands();
  question.islands[1].uplink_bits_per_second = 0.5e6;
  CHECK(forecast(question).value().seconds == Approx(260.0));
}

TEST_CASE("with a quorum nobody waits: the schedule goes with the islands of the quorum, and slower ones take fewer steps") {
  ForecastQuestion question = two_islands();
  question.islands[1].step_seconds = 4.0;
  const Forecast waiting = forecast(question).value();
  question.composition.quorum = 1;
  const Forecast result = forecast(question).value();
  CHECK(waiting.seconds == Approx(480.0));
  CHECK(result.seconds == Approx(108.0));  // 100 steps, and the exchange of the last round
  CHECK(result.islands[0].waiting_seconds == Approx(8.0));
  CHECK(result.islands[0].steps == 100);
  CHECK(result.islands[1].steps == 25);
  CHECK(result.islands[1].bytes_sent == waiting.islands[1].bytes_sent);
  CHECK(result.utilisation == Approx(100.0 / 108.0));
  // Of both: as fast as the slower one.
  question.composition.quorum = 2;
  const Forecast both = forecast(question).value();
  CHECK(both.seconds == Approx(408.0));
  CHECK(both.islands[1].steps == 100);
}

TEST_CASE("where contributions of any age are of the quorum all islands together set the pace") {
  Composition parts;
  parts.quorum = 1;
  parts.quorum_of = QuorumOf::any_age;
  CHECK(schedule_step_seconds(parts, {4.0, 1.0}) == Approx(0.8));  // five contributions in the time of four steps
  CHECK(schedule_step_seconds(parts, {2.0, 2.0, 2.0}) == Approx(2 / 3.0));
  parts.quorum = 2;
  CHECK(schedule_step_seconds(parts, {4.0, 1.0}) == Approx(4.0));       // of both, each with one in a round
  CHECK(schedule_step_seconds(parts, {3.0, 1.0, 6.0}) == Approx(2.0));  // one from the fastest, and one of the two others
  CHECK(schedule_step_seconds(parts, {2.0, 2.0, 2.0}) == Approx(4 / 3.0));
  ForecastQuestion question = two_islands();
  question.islands[1].step_seconds = 4.0;
  question.composition.quorum = 1;
  question.composition.quorum_of = QuorumOf::any_age;
  const Forecast result = forecast(question).value();
  CHECK(result.seconds == Approx(88.0));  // 100 steps of 0.8 s, and the exchange of the last round
  CHECK(result.islands[0].steps == 80);
  CHECK(result.islands[1].steps == 20);
}

TEST_CASE("overlap hides the exchange as far as it fits") {
  ForecastQuestion question = two_islands();
  question.composition.overlap_steps = 8;
  // Nine rounds hide behind 8 steps; the last synchronisation has nothing to hide behind.
  CHECK(forecast(question).value().seconds == Approx(108.0));
  question.composition.overlap_steps = 5;
  CHECK(forecast(question).value().seconds == Approx(100.0 + 9 * 3.0 + 8.0));
  CHECK(forecast(question).value().islands[0].peak_bits_per_second == Approx(8e6 / 5));
}

TEST_CASE("an overlap of the whole period hides every exchange that fits into it, and a longer one costs what is more") {
  ForecastQuestion question = two_islands();
  question.composition.overlap_steps = 10;
  REQUIRE(question.composition.whole_period());
  // Ten rounds start at steps 10 to 100. Nine hide behind ten steps each, the last has nothing to hide behind.
  CHECK(forecast(question).value().seconds == Approx(108.0));
  // 16 s for each of them: 6 s are waited for at each of nine merges, and the exchange of the last begins when that before it is there.
  question.islands[0].uplink_bits_per_second = 0.5e6;
  question.islands[1].uplink_bits_per_second = 0.5e6;
  CHECK(forecast(question).value().seconds == Approx(10.0 + 10 * 16.0));
}

TEST_CASE("the peak is what rounds that share the uplink need together, never less than the sustained bound") {
  ForecastQuestion question = two_islands();
  question.fragment_values = {125'000, 125'000};
  question.composition.overlap_steps = 4;
  question.total_steps = 1000;
  // A fragment of 4 Mbit every five steps, each hidden behind four: one at a time.
  CHECK(forecast(question).value().islands[0].peak_bits_per_second == Approx(4e6 / 4));
  // With nine steps to hide behind, one alone would do with 4 / 9; but two in a row have 14 steps, and all have 8 Mbit in 10.
  question.composition.overlap_steps = 9;
  CHECK(forecast(question).value().islands[0].peak_bits_per_second == Approx(8e6 / 10));
  // Unequal fragments: the two together, or the larger one alone.
  question.fragment_values = {200'000, 50'000};
  question.composition.overlap_steps = 6;
  CHECK(forecast(question).value().islands[0].peak_bits_per_second == Approx(6.4e6 / 6));
  question.composition.overlap_steps = 9;
  CHECK(forecast(question).value().islands[0].peak_bits_per_second == Approx(8e6 / 10));
  // What is said is enough, and a fifth less is not.
  for (const std::uint64_t overlap : {1, 4, 6, 9}) {
    question.composition.overlap_steps = overlap;
    const double peak = forecast(question).value().islands[0].peak_bits_per_second;
    CHECK(peak >= forecast(question, 0.99).value().islands[0].sustained_bound_bits_per_second);
    for (const auto& [factor, waits] : {std::pair(1.0001, false), std::pair(0.8, true)}) {
      ForecastQuestion on = question;
      for (ForecastIsland& island : on.islands) {
        island.uplink_bits_per_second = peak * factor;
        island.downlink_bits_per_second = 1e12;
      }
      const double last = 8e6 / (peak * factor);  // the last synchronisation has nothing to hide behind
      INFO("overlap " << overlap << ", " << factor << " of the peak");
      CHECK((forecast(on).value().islands[0].waiting_seconds > last + 1) == waits);
    }
  }
}

TEST_CASE("a billion parameters, H = 30 and an overlap of 29: the peak is no less than what the bytes of a period need") {
  ForecastQuestion question;
  question.composition = compose(named_strategy("streaming-diloco").value()).value();
  question.composition.inner_steps = 30;
  question.composition.overlap_steps = 29;
  question.total_steps = 3000;
  question.fragment_values.assign(8, 125'000'000);
  for (const char* name : {"a", "b"}) {
    question.islands.push_back({name, 0.1, 1e10, 1e10, 0.0});
  }
  const IslandForecast island = forecast(question).value().islands[0];
  CHECK(island.sustained_bound_bits_per_second == Approx(1e9 * 4.125 / 3.0).epsilon(0.02));
  CHECK(island.peak_bits_per_second >= 1e9 * 4.125 / 3.0 * 0.999);
  CHECK(island.peak_bits_per_second <= 1.1 * island.sustained_bound_bits_per_second);
}

TEST_CASE("an island's own overlap is what it merges after, the rounds stay the run's") {
  ForecastQuestion question = two_islands();
  question.composition.overlap_steps = 2;
  // Both: every round takes 8 s, of which two steps hide two.
  CHECK(forecast(question).value().seconds == Approx(100.0 + 9 * 6.0 + 8.0));
  // b merges after 8 steps. It waits for nothing in round 1, which starts at 10 s and ends at 18 s; but a stands at its step 12 from 12 s
  // on and comes to step 20 at 26 s only, so round 2 ends at 34 s, and b has stood at its step 28 since 28 s. So it goes on: 6 s a round.
  // The last round starts when a has come, at 154 s, 6 s after b, and ends at 162 s.
  question.islands[1].overlap_steps = 8;
  Forecast result = forecast(question).value();
  CHECK(result.rounds == 10);
  CHECK(result.islands[0].waiting_seconds == Approx(9 * 6.0 + 8.0));
  CHECK(result.islands[1].waiting_seconds == Approx(8 * 6.0 + 6.0 + 8.0));
  CHECK(result.islands[0].peak_bits_per_second == Approx(8e6 / 2));
  CHECK(result.islands[1].peak_bits_per_second == Approx(8e6 / 8));
  question.islands[0].overlap_steps = 8;
  CHECK(forecast(question).value().seconds == Approx(108.0));
  question.islands[0].overlap_steps = 10;
  CHECK(forecast(question).error().why == "island a: its overlap of 10 steps must be less than inner_steps 10");
}

TEST_CASE("fragments in flight together share the uplink in order") {
  ForecastQuestion question = two_islands();
  question.fragment_values = {125'000, 125'000};
  question.composition.overlap_steps = 4;
  // A fragment every five steps takes 4 s: hidden. At the end both are synchronised at once: 8 s.
  CHECK(forecast(question).value().seconds == Approx(108.0));
}

TEST_CASE("rounds in flight together are committed one after the other, each in a round trip to the coordinator") {
  ForecastQuestion question = two_islands();
  question.fragment_values = {50'000, 50'000, 50'000};
  question.composition.overlap_steps = 2;
  for (ForecastIsland& island : question.islands) {
    island.uplink_bits_per_second = island.downlink_bits_per_second = 1e15;
    island.round_trip_seconds = 0.1;
  }
  // Regular rounds hide behind two steps. At the end: Ready and Exchange 0.1, the hop 0.1, and three times Exchanged and Commit 0.1.
  CHECK(forecast(question).value().seconds == Approx(100.0 + 0.2 + 3 * 0.1));
}

TEST_CASE("a long run is the beginning of it and periods like it") {
  for (const std::uint64_t overlap : {0, 3, 8}) {
    ForecastQuestion question = two_islands();
    question.composition.overlap_steps = overlap;
    question.islands[1].step_seconds = 1.5;
    question.total_steps = 10 * kSimulatedRounds + 9;  // one more round than is simulated
    const Forecast extended = forecast(question).value();
    question.total_steps -= 10;
    const Forecast simulated = forecast(question).value();
    REQUIRE(simulated.rounds == kSimulatedRounds);
    const double period = simulated.seconds / (10.0 * kSimulatedRounds - 1) * 10;
    INFO("overlap " << overlap);
    CHECK(extended.seconds - simulated.seconds == Approx(period).epsilon(0.05));
    CHECK(extended.islands[0].bytes_sent == simulated.islands[0].bytes_sent + 1'000'000);
    CHECK(extended.islands[0].utilisation == Approx(simulated.islands[0].utilisation).epsilon(1e-3));
  }
  ForecastQuestion endless = two_islands();
  endless.total_steps = 1'000'000'000'000;
  CHECK(forecast(endless).value().seconds == Approx(1.8e12).epsilon(1e-6));
}

TEST_CASE("nobody sends nothing and waits for nobody") {
  ForecastQuestion question = two_islands();
  question.composition = compose(named_strategy("local").value()).value();
  const Forecast result = forecast(question).value();
  CHECK(result.islands[0].bytes_sent == 0);
  CHECK(result.utilisation == Approx(1.0));
}

TEST_CASE("in groups of three everybody sends to two others in every round but those in which it is left over") {
  ForecastQuestion question = two_islands();
  auto settings = named_strategy("noloco").value();
  settings.group_size = 3;
  question.composition = compose(settings).value();
  question.composition.inner_steps = 10;
  question.islands.push_back({"c", 1.0, 1e6, 1e6, 0.0});
  const Forecast three = forecast(question).value();
  for (const IslandForecast& island : three.islands) {
    CHECK(island.bytes_sent == 10 * 2 * 2 * 1'000'000);  // rounds, others, gradient and parameters
    CHECK(island.bytes_received == island.bytes_sent);
  }
  CHECK(three.agent_memory_bytes == 250'000 * 12 + 5 * 1'000'000);  // beside state and arena: two gradients and three parameters
  question.islands.push_back({"d", 1.0, 1e6, 1e6, 0.0});
  question.total_steps = 120;
  const Forecast four = forecast(question).value();  // in twelve rounds everybody is left over three times
  for (const IslandForecast& island : four.islands) {
    CHECK(island.bytes_sent == 9 * 2 * 2 * 1'000'000);
  }
}

TEST_CASE("no forecast beats the sustained bound") {
  for (const std::uint64_t overlap : {0, 1, 5, 9}) {
    for (const double bandwidth : {1e5, 5e5, 1e6, 1e7}) {
      ForecastQuestion question = two_islands();
      question.composition.overlap_steps = overlap;
      for (ForecastIsland& island : question.islands) {
        island.uplink_bits_per_second = bandwidth;
        island.downlink_bits_per_second = bandwidth;
      }
      const Forecast result = forecast(question, 1.0).value();
      INFO("overlap " << overlap << " bandwidth " << bandwidth);
      CHECK(result.utilisation <= bandwidth / result.islands[0].sustained_bound_bits_per_second + 1e-9);
    }
  }
}

TEST_CASE("more bandwidth never makes a forecast slower, whatever the method, the overlap and the length of the run") {
  for (const char* name : {"diloco", "streaming-diloco", "eager-diloco", "co2", "decoupled-diloco", "noloco"}) {
    for (const std::uint64_t steps : {100ULL, 1'000ULL, 40'007ULL}) {
      for (const std::size_t islands : {2U, 3U, 5U}) {
        Result<StrategySpec> strategy = named_strategy(name);
        REQUIRE(strategy);
        ForecastQuestion question;
        question.composition = compose(*strategy).value();
        question.total_steps = steps;
        question.fragment_values.assign(question.composition.fragments.kind == FragmentKind::whole ? 1 : 3, 250'000);
        question.costs = {3e-9, 5e-9, 0.010, 1.0};
        for (std::size_t i = 0; i < islands; ++i) {
          const auto place = static_cast<double>(i);
          question.islands.push_back({"i" + std::to_string(i), 0.2 + 0.05 * place, 1.0, 1.0, 0.02 * place});
        }
        double before = std::numeric_limits<double>::infinity();
        for (double bandwidth = 1e5; bandwidth < 1e10; bandwidth *= 1.07) {
          for (std::size_t i = 0; i < islands; ++i) {
            question.islands[i].uplink_bits_per_second = bandwidth * (1.0 + static_cast<double>(i));
            question.islands[i].downlink_bits_per_second = 2 * bandwidth;
          }
          const double now = forecast(question).value().seconds;
          INFO(name << ", " << steps << " steps, " << islands << " islands, " << bandwidth << " bit/s: " << now << " s, with less "
                    << before);
          REQUIRE(now <= before * (1 + 1e-12));
          before = now;
        }
      }
    }
  }
}

TEST_CASE("a forecast without islands or with a dead link is refused by name") {
  ForecastQuestion question = two_islands();
  question.islands[1].uplink_bits_per_second = 0;
  CHECK(forecast(question).error().why == "island b: step time, uplink and downlink must be positive");
  question.islands.clear();
  CHECK(forecast(question).error().code == Code::invalid_argument);
}

}  // namespace of_strategies_forecast_test
