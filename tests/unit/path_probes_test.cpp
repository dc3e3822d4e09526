// Probes of the paths from peers: small and on virtual time.
#include "transport/bulk/path_probes.hpp"

#include "tests/catch.hpp"
#include "transport/bulk/blob_store.hpp"

namespace of_path_probes_test {

using namespace atl;
using namespace std::chrono_literals;

namespace {

const TimePoint kStart = from_unix_ms(1'700'000'000'000);
const IslandId a("a");
const IslandId b("b");
const std::map<IslandId, RunId> kPeers = {{a, RunId("r")}, {b, RunId("r")}};

// Every want of `who` is answered from a store, as any island would.
void answer(PathProbes& probes, const std::vector<OutgoingWant>& wants, const IslandId& who, TimePoint at) {
  BlobStore store;
  for (const OutgoingWant& want : wants) {
    if (want.to != who) {
      continue;
    }
    const StoreAnswer answered = store.answer(IslandId("reader"), want.want);
    const auto* served = std::get_if<Served>(&answered);
    REQUIRE(served != nullptr);
    CHECK(served->piece.length == kProbeBytes);
    REQUIRE(probes.destination(who, served->piece).size() == kProbeBytes);
    probes.arrived(at, who, served->piece);
  }
}

}  // namespace

TEST_CASE("a new peer is tried at once, and again with doubling pauses until a probe comes") {
  PathProbes probes;
  probes.set_peers(kPeers, kStart);
  TimePoint at = kStart;
  answer(probes, probes.take_wants(at), a, at);
  std::vector<PathFinding> findings = probes.take_findings(at);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].from == a);
  CHECK(findings[0].whole);
  std::vector<TimePoint> failed;
  for (; at < kStart + 200s; at += 100ms) {
    for (const OutgoingWant& want : probes.take_wants(at)) {
      CHECK(want.to == b);
    }
    for (const PathFinding& finding : probes.take_findings(at)) {
      CHECK(finding.from == b);
      CHECK_FALSE(finding.whole);
      CHECK(finding.linked);
      CHECK(finding.why.find("full-size packets") != std::string::npos);
      failed.push_back(at);
    }
  }
  REQUIRE(failed.size() >= 6);
  CHECK(failed[0] == kStart + 4s);
  CHECK(failed[1] - failed[0] == 6s);  // a pause of two seconds, and the try
  CHECK(failed[2] - failed[1] == 8s);
  CHECK(failed[5] - failed[4] == 19s);
  probes.connected(at, b);
  answer(probes, probes.take_wants(at), b, at);
  findings = probes.take_findings(at);
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].whole);
  CHECK_FALSE(probes.next_deadline());  // nothing is in doubt
}

TEST_CASE("a peer that delivered nothing is tried again, one that is no peer any more is not") {
  PathProbes probes;
  probes.set_peers(kPeers, kStart);
  answer(probes, probes.take_wants(kStart), a, kStart);
  probes.set_peers({{a, RunId("r")}}, kStart + 1s);
  CHECK(probes.take_findings(kStart + 60s).size() == 1);
  CHECK(probes.take_wants(kStart + 60s).empty());
  probes.suspect(a, kStart + 61s);
  probes.suspect(b, kStart + 61s);
  std::vector<OutgoingWant> wants = probes.take_wants(kStart + 61s);
  REQUIRE(wants.size() == 1);
  CHECK(wants[0].to == a);
  probes.not_sent(kStart + 61s, wants[0]);
  for (TimePoint at = kStart + 61s; at <= kStart + 65s; at += 100ms) {
    for (const OutgoingWant& want : probes.take_wants(at)) {
      probes.not_sent(at, want);
    }
  }
  const std::vector<PathFinding> findings = probes.take_findings(kStart + 65s);
  REQUIRE(findings.size() == 1);
  CHECK_FALSE(findings[0].linked);
  CHECK(findings[0].why.find("no connection") != std::string::npos);
}

TEST_CASE("a neighbour is tried without a run, and once more when it comes into one") {
  PathProbes probes;
  const auto tried = [&](TimePoint at) {
    answer(probes, probes.take_wants(at), a, at);
    return probes.take_findings(at).size();
  };
  probes.set_peers({{a, RunId()}}, kStart);
  CHECK(tried(kStart) == 1);
  probes.set_peers({{a, RunId()}}, kStart + 1s);
  CHECK(tried(kStart + 1s) == 0);
  probes.set_peers({{a, RunId("r")}}, kStart + 2s);
  CHECK(tried(kStart + 2s) == 1);
  probes.set_peers({{a, RunId()}}, kStart + 3s);
  CHECK(tried(kStart + 3s) == 0);
}

TEST_CASE("a connection that is made in the middle of a try has the time for its round trips, though not for ever") {
  PathProbes probes;
  probes.set_peers({{a, RunId("r")}}, kStart);
  static_cast<void>(probes.take_wants(kStart));
  probes.connected(kStart + 3500ms, a);  // as where a round trip takes two seconds
  CHECK(probes.take_findings(kStart + 5s).empty());
  answer(probes, probes.take_wants(kStart + 5500ms), a, kStart + 5500ms);
  CHECK(probes.take_findings(kStart + 5500ms).at(0).whole);
  probes.suspect(a, kStart + 10s);
  static_cast<void>(probes.take_wants(kStart + 10s));
  TimePoint at = kStart + 10s;
  while (probes.take_findings(at).empty()) {  // one that is made again and again
    REQUIRE(at < kStart + 23s);
    at += 1s;
    probes.connected(at, a);
    static_cast<void>(probes.take_wants(at));
  }
  CHECK(at == kStart + 22s);
}

}  // namespace of_path_probes_test
