// Paths of which the rate and the round trip are known, measured.
#include "transport/bulk/path_measure.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include "tests/catch.hpp"

namespace of_path_measure_test {

namespace {

using namespace atl;
using namespace std::chrono_literals;

// Serves wants in order: each piece takes its bytes' time on the line, after half a round trip, and as long again to arrive.
struct Path {
  Duration round_trip;
  double bytes_per_second;
  TimePoint free{};
  Duration others = {};  // how long tiny pieces wait behind what others have on the line
  std::deque<std::pair<TimePoint, OutgoingWant>> under_way = {};

  void take(TimePoint now, const OutgoingWant& want) {
    free = std::max(free, now + round_trip / 2) + from_seconds(want.want.length / bytes_per_second);
    under_way.emplace_back(free + round_trip / 2 + (want.want.length < kProbeBytes ? others : Duration()), want);
  }
};

// Measures both peers for so long each; what came of it, and by when all was over.
std::vector<MeasuredPath> run(std::map<IslandId, Path> paths, const std::vector<IslandId>& in_turn, Duration each,
                              std::uint64_t* asked = nullptr) {
  PathMeasure measure;
  TimePoint now{};
  std::vector<MeasuredPath> found;
  measure.begin(in_turn, each, now);
  for (int events = 0; found.size() < in_turn.size(); ++events) {
    REQUIRE(events < 1'000'000);
    for (const OutgoingWant& want : measure.take_wants(now)) {
      paths.at(want.to).take(now, want);
      if (asked != nullptr) {
        *asked += want.want.length;
      }
    }
    TimePoint next = measure.next_deadline().value();
    Path* first = nullptr;
    for (auto& [peer, path] : paths) {
      if (!path.under_way.empty() && path.under_way.front().first <= next) {
        next = path.under_way.front().first;
        first = &path;
      }
    }
    REQUIRE(next >= now);
    now = next;
    if (first != nullptr) {
      const OutgoingWant want = first->under_way.front().second;
      first->under_way.pop_front();
      const BlobPiece piece{want.want.blob, 0, kProbeBytes, want.want.length};
      if (!measure.destination(want.to, piece).empty()) {
        measure.arrived(now, want.to, piece);
      }
    }
    for (MeasuredPath& path : measure.take_findings(now)) {
      found.push_back(std::move(path));
    }
  }
  CHECK(now <= TimePoint{} + each * static_cast<Duration::rep>(in_turn.size()));
  return found;
}

const IslandId kNear("near");
const IslandId kFar("far");

}  // namespace

TEST_CASE("the rate and the round trip of a path are measured, whatever they are") {
  for (const Duration trip : {200us, 20'000us, 150'000us, 400'000us}) {
    for (const double rate : {125e3, 1.25e6, 12.5e6, 125e6}) {
      CAPTURE(seconds(trip), rate);
      std::uint64_t asked = 0;
      const std::vector<MeasuredPath> found = run({{kFar, Path{trip, rate}}}, {kFar}, 5s, &asked);
      REQUIRE(found.size() == 1);
      CHECK(found[0].from == kFar);
      CHECK(seconds(found[0].round_trip) == Approx(seconds(trip)).epsilon(0.05));
      // A window of 16 MiB is what limits a fast path that is very far.
      const double most = std::min(rate, 16.0 * (1 << 20) / seconds(trip));
      CHECK(found[0].bytes_per_second > 0.75 * most);
      CHECK(found[0].bytes_per_second < 1.1 * rate);
      CHECK(static_cast<double>(asked) < 5.0 * rate + 20 * kProbeBytes);  // no more than comes in time
    }
  }
}

TEST_CASE("one path is measured after the other, and what a slow one still sends does not count for the next") {
  const std::vector<MeasuredPath> found = run({{kFar, Path{300ms, 125e3}}, {kNear, Path{1ms, 12.5e6}}}, {kFar, kNear}, 2s);
  REQUIRE(found.size() == 2);
  CHECK(found[0].from == kFar);
  CHECK(found[0].bytes_per_second == Approx(125e3).epsilon(0.25));
  CHECK(found[1].from == kNear);
  CHECK(found[1].bytes_per_second == Approx(12.5e6).epsilon(0.1));
}

TEST_CASE("a path whose round trips waited behind what others had on the line is not measured as faster than it is") {
  for (const Duration others : {20ms, 60ms, 100ms}) {
    Path path{80ms, 2.5e6};
    path.others = others;
    const std::vector<MeasuredPath> found = run({{kFar, path}}, {kFar}, 1s);
    REQUIRE(found.size() == 1);
    CHECK(found[0].bytes_per_second > 0.6 * path.bytes_per_second);
    CHECK(found[0].bytes_per_second <= 1.01 * path.bytes_per_second);
  }
}

TEST_CASE("a peer from which nothing comes has no figures, and one that does not know of probes ends its turn at once") {
  PathMeasure measure;
  TimePoint now{};
  measure.begin({kFar, kNear}, 2s, now);
  const std::vector<OutgoingWant> first = measure.take_wants(now);
  REQUIRE(first.size() == 1);
  CHECK(measure.reads(first[0].want.blob));
  now += 2s;
  std::vector<MeasuredPath> found = measure.take_findings(now);
  REQUIRE(found.size() == 1);
  CHECK(found[0].round_trip == Duration::zero());
  CHECK(found[0].bytes_per_second == 0);
  const std::vector<OutgoingWant> second = measure.take_wants(now);
  REQUIRE(second.size() == 1);
  CHECK(second[0].to == kNear);
  measure.gone(now, kNear, Gone{second[0].want.blob, Code::not_found, "what is that?"});
  CHECK(measure.take_wants(now).empty());
  found = measure.take_findings(now);
  REQUIRE(found.size() == 1);
  CHECK(found[0].from == kNear);
  CHECK_FALSE(measure.next_deadline());
}

TEST_CASE("a want that the link could not take is asked again in a moment, not at once") {
  PathMeasure measure;
  TimePoint now{};
  measure.begin({kFar}, 2s, now);
  const std::vector<OutgoingWant> wants = measure.take_wants(now);
  REQUIRE(wants.size() == 1);
  measure.not_sent(now, wants[0]);
  CHECK(measure.take_wants(now).empty());
  REQUIRE(measure.next_deadline());
  CHECK(*measure.next_deadline() > now);
  now = *measure.next_deadline();
  CHECK(measure.take_wants(now).size() == 1);
}

}  // namespace of_path_measure_test
