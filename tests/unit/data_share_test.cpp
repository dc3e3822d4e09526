#include "transport/base/data_share.hpp"

#include <map>
#include <set>

#include "coordinator/core/data_parts.hpp"
#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_data_share_test {

using namespace atl;
using namespace atl::coordinator;
using namespace std::chrono_literals;

TEST_CASE("a stretch takes the sequences of its classes in ascending order, each once") {
  Rng rng(7, 0);
  for (int round = 0; round < 200; ++round) {
    const auto of = static_cast<std::uint32_t>(1 + rng.below(12));
    DataStretch stretch;
    std::set<std::uint64_t> expected;
    for (std::uint32_t number = 0; number < of; ++number) {
      if (rng.chance(0.6)) {
        stretch.classes.push_back({number, rng.below(9)});
        for (std::uint64_t row = stretch.classes.back().next; row < 60; ++row) {
          expected.insert(row * of + number);
        }
      }
    }
    if (stretch.classes.empty()) {
      continue;
    }
    std::uint64_t place = 0;
    for (auto sequence = expected.begin(); place < 30 * stretch.classes.size(); ++sequence, ++place) {
      REQUIRE(stretch.sequence(place, of) == *sequence);
      for (const DataClass& each : stretch.after(place)) {  // the first of each class that is not taken
        REQUIRE(each.next * of + each.number >= *sequence);
      }
    }
  }
}

TEST_CASE("where nothing is dealt a share is every so manieth sequence") {
  const DataShare share{1, {}, 1, 3};
  CHECK(share.sequence(0) == 1);
  CHECK(share.sequence(5) == 16);
}

TEST_CASE("a share from outside is of classes that there are, in order, with bounded numbers") {
  CHECK(is_share({}));
  CHECK(is_share({64, {{0, {{3, 0}}}, {9, {}}}, 1, 2}));
  CHECK_FALSE(is_share({0, {}, 0, 1}));
  CHECK_FALSE(is_share({1025, {}, 0, 1}));
  CHECK_FALSE(is_share({64, {}, 2, 2}));
  CHECK_FALSE(is_share({64, {{0, {{64, 0}}}}, 0, 1}));
  CHECK_FALSE(is_share({64, {{0, {{3, 0}, {3, 1}}}}, 0, 1}));
  CHECK_FALSE(is_share({64, {{9, {}}, {9, {}}}, 0, 1}));
  CHECK_FALSE(is_share({64, {{0, {{3, kMostSequences + 1}}}}, 0, 1}));
  CHECK_FALSE(is_share({64, {{kMostSequences + 1, {}}}, 0, 1}));
}

namespace {

// Islands that come and go, and train at paces of their own, as the coordinator deals to them.
struct World {
  Outbox out{TimePoint{}, 2s};
  DataParts data;
  std::map<std::uint32_t, std::uint64_t> trained;    // by part
  std::map<std::uint64_t, std::uint32_t> sequences;  // whose each is

  World() { data.belong_to(RunId("r"), 64, 10); }
  void train(std::uint32_t part, std::uint64_t count) {
    const DataShare share = data.share(part);
    REQUIRE(is_share(share));
    const std::uint64_t from = trained[part];
    for (; trained[part] < from + count; ++trained[part]) {
      REQUIRE(sequences.emplace(share.sequence(trained[part]), part).second);
    }
    data.count_in(DataRange{part, from, trained[part]}, 0, out);
  }
  // The lowest sequence that nobody has had.
  [[nodiscard]] std::uint64_t open() const {
    std::uint64_t lowest = 0;
    for (const auto& [sequence, part] : sequences) {
      if (sequence != lowest) {
        break;
      }
      ++lowest;
    }
    return lowest;
  }
};

}  // namespace

TEST_CASE("two islands train on all of the data, whatever number of islands a run allows") {
  World world;
  world.data.deal({world.data.part_of(IslandId("a"), std::nullopt, world.out), world.data.part_of(IslandId("b"), std::nullopt, world.out)},
                  world.out);
  for (int round = 0; round < 20; ++round) {
    world.train(0, 32);
    world.train(1, 32);
  }
  CHECK(world.open() == 20 * 64);
  CHECK(world.data.share(1).slice == 1);
  CHECK(world.data.share(1).slices == 2);
}

TEST_CASE("as islands come and go each sequence has one owner, and few stretches are ahead of anybody") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    World world;
    Rng rng(seed, 1);
    std::set<std::uint32_t> members;
    for (int event = 0; event < 120; ++event) {
      const auto part = world.data.part_of(IslandId(std::to_string(rng.below(7))), std::nullopt, world.out);
      if (!members.insert(part).second && members.size() > 1 && rng.chance(0.5)) {
        members.erase(part);
      }
      world.data.deal({members.begin(), members.end()}, world.out);
      for (const std::uint32_t member : members) {
        if (rng.chance(0.5)) {
          world.train(member, rng.below(12));
        }
      }
      REQUIRE(world.data.share(*members.begin()).stretches.size() < 16);
    }
  }
}

TEST_CASE("a coordinator that begins again from its records deals as the one before would have") {
  World world;
  std::vector<Record> records;
  const auto take = [&] {
    for (Record& record : world.out.take().records) {
      records.push_back(std::move(record));
    }
  };
  for (const char* island : {"a", "b", "c"}) {
    world.data.part_of(IslandId(island), std::nullopt, world.out);
  }
  world.data.deal({0, 1}, world.out);
  world.train(0, 15);
  world.train(1, 9);
  world.data.deal({0, 1, 2}, world.out);
  world.train(2, 30);
  take();
  DataParts again;
  again.belong_to(RunId("r"), 64, 10);
  for (const Record& record : records) {
    if (const auto* part = std::get_if<PartRecord>(&record)) {
      again.recover(*part);
    } else if (const auto* stretch = std::get_if<StretchRecord>(&record)) {
      again.recover(*stretch);
    }
  }
  again.recovered();
  CHECK_FALSE(again.deal({2, 1, 0}, world.out));
  for (const std::uint32_t part : {0U, 1U, 2U}) {
    CHECK(again.share(part) == world.data.share(part));
  }
  CHECK(again.deal({0, 2}, world.out));
  CHECK(world.data.deal({0, 2}, world.out));
  CHECK(again.share(0) == world.data.share(0));
}

}  // namespace of_data_share_test
