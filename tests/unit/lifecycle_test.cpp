// An island's place in a run, and an agent's leaving: every turn from every stage.
#include "agent/core/lifecycle.hpp"

#include <functional>
#include <map>

#include "agent/core/departure.hpp"
#include "tests/catch.hpp"

namespace of_lifecycle_test {

namespace {

using namespace atl;
using namespace atl::agent;
using namespace std::chrono_literals;
using Stage = Lifecycle::Stage;

Lifecycle at(Stage stage) {
  Lifecycle life;
  if (stage == Stage::active || stage == Stage::standing) {
    life.enter();
  }
  if (stage == Stage::standing || stage == Stage::standing_outside) {
    life.stand(Round(4), Epoch(2));
  }
  if (stage == Stage::ended) {
    life.end(RunEnded{});
  }
  REQUIRE(life.stage() == stage);
  return life;
}

}  // namespace

TEST_CASE("an island's place in a run changes as the table says, from every stage") {
  const std::map<Stage, std::array<Stage, 5>> table = {
      {Stage::outside, {Stage::active, Stage::outside, Stage::standing_outside, Stage::outside, Stage::ended}},
      {Stage::active, {Stage::active, Stage::outside, Stage::standing, Stage::active, Stage::ended}},
      {Stage::standing, {Stage::standing, Stage::standing_outside, Stage::standing, Stage::active, Stage::ended}},
      {Stage::standing_outside, {Stage::standing, Stage::standing_outside, Stage::standing_outside, Stage::outside, Stage::ended}},
      {Stage::ended, {Stage::ended, Stage::ended, Stage::ended, Stage::ended, Stage::ended}},
  };
  const std::array<std::function<void(Lifecycle&)>, 5> turns = {
      [](Lifecycle& life) { life.enter(); }, [](Lifecycle& life) { life.put_out(); },
      [](Lifecycle& life) { life.stand(Round(9), Epoch(3)); }, [](Lifecycle& life) { life.go_on(); },
      [](Lifecycle& life) { life.end(RunEnded{}); }};
  for (const auto& [from, row] : table) {
    for (std::size_t turn = 0; turn < turns.size(); ++turn) {
      Lifecycle life = at(from);
      turns[turn](life);
      INFO("from stage " << static_cast<int>(from) << ", turn " << turn);
      CHECK(life.stage() == row[turn]);
    }
  }
}

TEST_CASE("an island stands after one round, and for a pause that a later epoch says is over no longer") {
  Lifecycle life = at(Stage::standing);
  CHECK(life.active());
  CHECK(life.stands_after() == Round(4));
  life.note_unpaused(Epoch(2));  // of the epoch in which it was told to stand
  CHECK_FALSE(life.pause_is_over());
  life.put_out();
  CHECK(life.stands_after() == Round(4));
  life.note_unpaused(Epoch(3));
  CHECK(life.pause_is_over());
  life.go_on();
  CHECK_FALSE(life.pause_is_over());
  CHECK_FALSE(life.stands_after());
}

TEST_CASE("an agent leaves in steps, and none is taken twice or back") {
  const TimePoint now = from_unix_ms(1'700'000'000'000);
  Departure departure;
  departure.cut();
  departure.release();
  CHECK(departure.stage() == Departure::Stage::staying);  // nobody asked
  CHECK(departure.ask("drained", now + 60s));
  CHECK_FALSE(departure.ask("again", now + 90s));
  CHECK(departure.why() == "drained");
  CHECK_FALSE(departure.overdue(now + 59s));
  CHECK(departure.overdue(now + 60s));
  departure.cut();
  CHECK(departure.cut_short());
  departure.contributed();
  CHECK(departure.stage() == Departure::Stage::leaving);
  departure.release();
  CHECK(departure.released());
  departure.contributed();
  departure.cut();
  CHECK(departure.released());
  departure.close_run();  // a run that starts over has let nobody go
  CHECK(departure.stage() == Departure::Stage::leaving);
  departure.go();
  CHECK(departure.gone());
  CHECK_FALSE(departure.overdue(now + 1h));
}

}  // namespace of_lifecycle_test
