// When a trainer says how far it is.
#include "agent/island_link/client/progress_times.hpp"

#include "tests/catch.hpp"

namespace of_progress_times_test {

using namespace atl;
using namespace std::chrono_literals;
using island_link::ProgressTimes;

TEST_CASE("progress: twice a second, and several times within a round that is short") {
  ProgressTimes times;
  TimePoint now = TimePoint{} + 10s;
  times.begin(now);
  CHECK_FALSE(times.due(now + 499ms));
  CHECK(times.whole_due(now + 500ms));
  CHECK(times.due(now + 500ms));

  times.publish(now);
  times.publish(now + 100ms);  // rounds of a tenth of a second
  now += 100ms;
  unsigned said = 0;
  for (Duration passed = 0ms; passed < 100ms; passed += 1ms) {
    if (times.due(now + passed)) {
      times.say(now + passed);
      ++said;
    }
  }
  CHECK(said >= 4);
  CHECK(said <= 6);  // no round is so short that nothing else is said
  CHECK(times.whole_due(now + 400ms));
  CHECK(times.say_whole(now + 400ms) == 500ms);
  CHECK_FALSE(times.whole_due(now + 800ms));
}

TEST_CASE("progress: where rounds are long nothing is said between") {
  ProgressTimes times;
  const TimePoint now = TimePoint{} + 10s;
  times.begin(now);
  times.publish(now);
  times.publish(now + 30s);
  times.say_whole(now + 30s);
  CHECK_FALSE(times.due(now + 30'499ms));
  CHECK(times.due(now + 30'500ms));
}

}  // namespace of_progress_times_test
