// Initial parameters by all cores: the numbers of one stream, one after the other.
#include "agent/trainer/data/normals.hpp"

#include <vector>

#include "tests/catch.hpp"
#include "transport/base/rng.hpp"

namespace of_normals_test {

using namespace atl;

TEST_CASE("normals that several threads make are those of one stream in its order, from any place on") {
  constexpr std::size_t kCount = (std::size_t{1} << 18) + 7;
  const std::uint64_t stream = stream_of("layers.0.weight");
  std::vector<float> one_by_one(kCount);
  Rng rng(7, stream);
  for (float& value : one_by_one) {
    value = static_cast<float>(0.02 * rng.normal());
  }
  for (const unsigned threads : {0U, 1U, 2U, 3U, 16U}) {
    CAPTURE(threads);
    std::vector<float> values(kCount);
    fill_with_normals(values, 7, stream, 0.02, 0, threads);
    CHECK(values == one_by_one);
    std::vector<float> rest(kCount - 1000);
    fill_with_normals(rest, 7, stream, 0.02, 1000, threads);
    CHECK(std::vector<float>(one_by_one.begin() + 1000, one_by_one.end()) == rest);
  }
  fill_with_normals({}, 7, stream, 0.02);
}

}  // namespace of_normals_test
