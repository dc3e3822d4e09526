// Islands that train exactly what another one trains: what tells their contributions apart, and when somebody hears of it.
#include "coordinator/core/alike.hpp"

#include <vector>

#include "strategies/contribution.hpp"
#include "tests/catch.hpp"

namespace of_alike_test {
namespace {

using namespace atl;
using atl::coordinator::AlikeIslands;

const IslandId a("i-a");
const IslandId b("i-b");
const IslandId c("i-c");

}  // namespace

TEST_CASE("equal contributions have equal fingerprints, others do not, and zeros have none") {
  std::vector<float> values(200'000);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i % 977) * 0.25F - 100;
  }
  std::vector<float> other = values;
  CHECK(fingerprint_of(values) == fingerprint_of(other));
  other[0] = 1e-20F;
  CHECK(fingerprint_of(values) != fingerprint_of(other));
  CHECK(fingerprint_of(std::vector<float>{1, 2}) != fingerprint_of(std::vector<float>{2, 1}));  // of one norm
  CHECK(fingerprint_of(std::vector<float>{1, 0}) != fingerprint_of(std::vector<float>{1, 0, 0}));
  CHECK(fingerprint_of(std::vector<float>(1000, 0.0F)) == 0);
  CHECK(fingerprint_of(std::vector<float>(1000, -0.0F)) == 0);
  CHECK(fingerprint_of({}) == 0);
}

TEST_CASE("islands with parts of their own that contribute the same are found, the first two at once and further ones a round later") {
  AlikeIslands alike;
  alike.look(a, 0, Round(1), 0, 7);
  CHECK_FALSE(alike.take_news(Round(1)));
  alike.look(b, 1, Round(1), 0, 7);
  CHECK(alike.take_news(Round(1)) == std::vector<IslandId>{a, b});
  CHECK_FALSE(alike.take_news(Round(1)));
  alike.look(c, 2, Round(1), 0, 7);
  CHECK_FALSE(alike.take_news(Round(1)));
  alike.look(a, 0, Round(2), 0, 8);
  CHECK(alike.take_news(Round(2)) == std::vector<IslandId>{a, b, c});
  alike.look(b, 1, Round(2), 0, 8);
  CHECK_FALSE(alike.take_news(Round(3)));
}

TEST_CASE("an island that says the same again, and contributions of another round, fragment or of nothing, are no twins") {
  AlikeIslands alike;
  alike.look(a, 0, Round(1), 0, 7);
  alike.look(a, 0, Round(1), 0, 7);
  alike.look(b, 1, Round(2), 0, 7);
  alike.look(c, 2, Round(1), 1, 7);
  alike.look(a, 0, Round(3), 0, 0);
  alike.look(b, 1, Round(3), 0, 0);
  alike.look(c, 0, Round(1), 0, 7);  // of the same part: another agent went on with it
  CHECK(alike.islands().empty());
  CHECK_FALSE(alike.take_news(Round(4)));
}

}  // namespace of_alike_test
