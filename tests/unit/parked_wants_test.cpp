// Wants that wait: found by what they ask for, bounded by reader.
#include "transport/bulk/parked_wants.hpp"

#include <set>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_parked_wants_test {

namespace {

using namespace atl;

BlobId blob_of(std::uint32_t part) { return BlobId{RunId("r"), Epoch(1), Round(1), Attempt(1), BlobKind::reduced, part}; }
Want want_of(std::uint32_t part, std::uint64_t offset) { return Want{blob_of(part), offset, 10}; }

}  // namespace

TEST_CASE("a range of a blob is found among many, in its order, and each want is taken once") {
  ParkedWants wants(1000);
  for (std::uint32_t part = 0; part < 3; ++part) {
    for (std::uint64_t offset = 100; offset > 0; offset -= 10) {
      wants.park(IslandId("a"), want_of(part, offset));
      wants.park(IslandId("b"), want_of(part, offset));
    }
  }
  REQUIRE(wants.size() == 60);
  const auto taken = wants.take(blob_of(1), 20, 50, [](const Want& want) { return want.offset != 30; });
  REQUIRE(taken.size() == 4);
  CHECK(taken[0].want == want_of(1, 20));
  CHECK(taken[0].reader == IslandId("a"));
  CHECK(taken[1].reader == IslandId("b"));
  CHECK(taken[3].want == want_of(1, 40));
  CHECK(wants.size() == 56);
  CHECK(wants.take(blob_of(1), 20, 50, [](const Want&) { return true; }).size() == 2);
  CHECK(wants.take([](const Want& want) { return want.blob == blob_of(0); }).size() == 20);
  wants.drop_reader(IslandId("a"));
  CHECK(wants.size() == 17);
}

TEST_CASE("the same want a million times is one, and of others the oldest goes") {
  ParkedWants wants(8);
  for (int i = 0; i < 1'000'000; ++i) {
    wants.park(IslandId("a"), want_of(0, 0));
  }
  CHECK(wants.size() == 1);
  Rng rng(1);
  std::vector<std::uint64_t> last;
  std::set<std::uint64_t> seen;
  while (last.size() < 1000) {
    const std::uint64_t offset = 1 + rng.below(1'000'000'000);
    if (seen.insert(offset).second) {
      wants.park(IslandId("a"), want_of(0, offset));
      last.push_back(offset);
    }
  }
  CHECK(wants.size() == 8);
  std::set<std::uint64_t> left;
  for (const ParkedWant& parked : wants.take([](const Want&) { return true; })) {
    left.insert(parked.want.offset);
  }
  CHECK(left == std::set<std::uint64_t>(last.end() - 8, last.end()));
}

}  // namespace of_parked_wants_test
