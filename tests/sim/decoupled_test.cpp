// Rounds with a quorum in the limit in which nobody is late.
#include <vector>

#include "tests/catch.hpp"
#include "tests/sim/stories.hpp"

using namespace atl;
using namespace atl::sim;
using namespace std::chrono_literals;

namespace {

Scenario streaming(std::uint32_t quorum) {
  Scenario scenario = calm(3, 3, 24);
  scenario.jitter = 1ms;
  scenario.latency = 1ms;
  RunSpec& spec = scenario.spec;
  spec.strategy.grouping = FragmentKind::balanced;
  spec.strategy.fragments = 3;
  spec.strategy.inner_steps = 12;
  spec.strategy.overlap_steps = 3;
  spec.strategy.merge_alpha = 0;
  spec.strategy.quorum = quorum;
  spec.training.steps = 12 * 8;
  return scenario;
}

// The digest after each committed round.
std::vector<Digest> digests_of(const Scenario& scenario) {
  Cluster cluster(scenario);
  for (std::size_t i = 0; i < 3; ++i) {
    cluster.host(i).set_slow(true);  // results come within the overlap
  }
  cluster.start();
  finish(cluster);
  std::vector<Digest> digests;
  for (const auto& [key, record] : cluster.ledger().rounds) {
    REQUIRE(record.committed);
    REQUIRE((record.round == Round(0) || record.members.size() == 3));
    digests.push_back(record.digest);
  }
  return digests;
}

}  // namespace

TEST_CASE("with the quorum of all islands decoupled-diloco's rounds are streaming-diloco's, bit for bit") {
  const std::vector<Digest> waiting = digests_of(streaming(0));
  REQUIRE(waiting.size() == 25);
  REQUIRE(digests_of(streaming(3)) == waiting);
  Scenario buffered = streaming(3);
  buffered.spec.strategy.quorum_of = QuorumOf::any_age;
  REQUIRE(digests_of(buffered) == waiting);
}
