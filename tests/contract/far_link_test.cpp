// Links with a long way between: the window follows the path, whatever that is, and memory stays within its budget.
#include <algorithm>
#include <cmath>

#include "tests/catch.hpp"
#include "tests/contract/bulk_link_fields.hpp"
#include "transport/bulk/exchange_attempt.hpp"
#include "transport/bulk/link_memory.hpp"

namespace of_far_link_test {

namespace {

using namespace atl_test;

const RunId kRun("r");
constexpr std::uint32_t kPiece = 256U << 10;

PathConditions path_of(Duration round_trip, double bits_per_second) {
  PathConditions path;
  path.latency = round_trip / 2;
  path.bytes_per_second = bits_per_second / 8;
  return path;
}

// A reader and an owner of one blob, on virtual time. The link does not look at what a piece holds, so one piece's bytes are all of them.
class FarPair final : public PieceReceiver {
 public:
  explicit FarPair(std::uint64_t budget) {
    wants.paths = std::make_shared<PathWindows>(budget);
    field_.network.set_conditions(path_of(20ms, 0));
    reader_ = &field_.add();
    owner_ = &field_.add();
    field_.introduce();
    owner_->store->set_readers(kRun, {reader_->id});
    REQUIRE(field_.until([&] { return field_.connected(*reader_, *owner_) && field_.connected(*owner_, *reader_); }));
  }

  void set_path(Duration round_trip, double bits_per_second) { field_.network.set_conditions(path_of(round_trip, bits_per_second)); }
  TimePoint time() { return field_.network.now(); }
  std::uint64_t window() { return wants.paths->bytes(*wants.paths->to(owner_->id), time()); }

  // Reads a blob of so many bytes; `look` is called again and again. Returns the time it took.
  Duration read(
      std::uint64_t bytes, const std::function<void()>& look = [] {}, Duration at_most = 600s) {
    const BlobId blob{kRun, Epoch(), Round(++round_), Attempt(), BlobKind::result, 0};
    const auto content = std::make_shared<Bytes>(bytes);
    owner_->store->put(blob, Payload{*content, content});
    std::vector<std::uint64_t> ends;
    for (std::uint64_t end = 0; end < bytes; end += kPiece) {
      ends.push_back(end);
    }
    ends.push_back(bytes);
    const TimePoint start = time();
    schedule_.emplace(owner_->id, blob, ends, wants, start);
    while (time() - start < at_most) {
      while (reader_->link->receive(time(), *this)) {
      }
      if (schedule_->done()) {
        break;
      }
      std::vector<OutgoingWant> out;
      schedule_->take(time(), SIZE_MAX, out);
      asked += out.size();
      for (const OutgoingWant& want : out) {
        REQUIRE(reader_->link->want(want));
      }
      look();
      const TimePoint due = schedule_->next_deadline().value_or(time() + 1s);
      field_.network.advance_to(std::min(field_.network.next_event().value_or(due), std::max(due, time() + 1ns)));
    }
    CHECK(schedule_->done());
    owner_->store->withdraw(blob);
    return time() - start;
  }

  std::span<std::byte> destination(const IslandId& /*from*/, const BlobPiece& piece) override {
    sink_.resize(kPiece);
    return schedule_->outstanding(piece) ? std::span(sink_).first(piece.length) : std::span<std::byte>();
  }
  void arrived(TimePoint now, const IslandId& /*from*/, const BlobPiece& piece) override {
    if (const auto index = schedule_->outstanding(piece)) {
      schedule_->arrived(now, *index);
      came += piece.length;
    }
  }
  void gone(TimePoint /*now*/, const IslandId& /*from*/, const Gone& gone) override { FAIL(gone.why); }
  void connected(TimePoint now, const IslandId& /*peer*/) override {
    if (schedule_) {
      schedule_->ask_again(now);
    }
  }

  WantSettings wants;
  std::uint64_t came = 0;
  std::uint64_t asked = 0;  // wants

 private:
  SimulatedField field_;
  FieldIsland* reader_ = nullptr;
  FieldIsland* owner_ = nullptr;
  std::uint64_t round_ = 0;
  std::optional<WantSchedule> schedule_;
  Bytes sink_;
};

constexpr std::uint64_t kBudget = share_out(kLinkMemory).windows;

}  // namespace

TEST_CASE("a blob comes as fast as its path, near and far, thin and thick, from the second time on at once") {
  for (const Duration round_trip : std::initializer_list<Duration>{200us, 20ms, 100ms, 200ms, 300ms}) {
    for (const double bits : {1e8, 1e9, 1e10}) {
      INFO(seconds(round_trip) << " s, " << bits << " bits/s");
      FarPair pair(kBudget);
      pair.set_path(round_trip, bits);
      const auto bytes = static_cast<std::uint64_t>(std::clamp(bits / 8 * 2, 1e8, 5e8));
      const double whole = static_cast<double>(bytes) * 8 / bits;
      const Duration first = pair.read(bytes);
      pair.read(bytes);
      const Duration later = pair.read(bytes);
      // One round trip passes before the first byte comes. The budget is 0.72 of what the fattest of these paths holds.
      const double held = std::min(1.0, static_cast<double>(kBudget) / (bits / 8 * seconds(round_trip)));
      CHECK(whole / held / seconds(later - round_trip) >= 0.9);
      CHECK(seconds(first) <= whole / held / 0.9 + 6 * seconds(round_trip));
      // What is outstanding is not more than a small multiple of what the path holds.
      const double product = bits / 8 * seconds(round_trip + PathWindow::kScheduling) + kPiece;
      CHECK(static_cast<double>(pair.window()) <=
            std::max<double>(2.0 * PathWindow::kLeastOfEach, std::min<double>(kBudget, 2.5 * product)));
    }
  }
}

TEST_CASE(
    "a path that turns from one millisecond to two seconds and back is followed, within the budget, and nothing is asked for in vain") {
  constexpr std::uint64_t kTight = 64ULL << 20;
  FarPair pair(kTight);
  constexpr double kRate = 2e8;  // 25 MB/s: the path holds 50 MB over two seconds
  pair.set_path(1ms, kRate);
  const auto bounded = [&] { CHECK(pair.window() <= kTight); };
  const double whole = 2e8 * 8 / kRate;
  pair.read(200'000'000, bounded);
  CHECK(pair.window() <= 2 << 20);

  // In the middle of a blob the way becomes longer. At most ten seconds pass until that is believed, then the window grows with each trip.
  const TimePoint start = pair.time();
  bool turned = false;
  pair.read(500'000'000, [&] {
    if (!turned && pair.time() - start > 2s) {
      pair.set_path(2s, kRate);
      turned = true;
    }
    bounded();
  });
  CHECK(seconds(pair.time() - start) < 500e6 * 8 / kRate + 10 + 7 * 2);
  const Duration far = pair.read(200'000'000, bounded);
  CHECK(seconds(far - 2s) <= whole / 0.9);

  pair.set_path(1ms, kRate);
  const Duration near = pair.read(200'000'000, bounded);
  CHECK(seconds(near) <= whole / 0.95);
  CHECK(pair.window() <= 2 << 20);
  CHECK(pair.asked * kPiece <= pair.came + pair.came / 10);
}

TEST_CASE("a line that becomes ten times thinner, and ten times thicker, is followed") {
  FarPair pair(kBudget);
  pair.set_path(100ms, 1e9);
  pair.read(200'000'000);
  const std::uint64_t thick = pair.window();
  CHECK(thick >= 12'500'000);
  pair.set_path(100ms, 1e8);
  pair.read(200'000'000);
  CHECK(pair.window() <= thick / 4);
  pair.set_path(100ms, 1e9);
  pair.read(200'000'000);
  const Duration again = pair.read(200'000'000);
  CHECK(seconds(again - 100ms) <= 1.6 / 0.9);
}

TEST_CASE("peers share a budget by need: one that is near takes what it needs, the far ones the rest") {
  PathWindows windows(100 << 20);
  TimePoint now = from_unix_ms(1'000'000);
  const auto teach = [&](PathWindow& window, Duration trip, double bytes_per_second) {
    for (int i = 0; i < 200; ++i) {
      const PathWindow::Asked asked = window.asked(now, 0);
      window.arrived(now + trip, static_cast<std::uint64_t>(bytes_per_second * seconds(trip)), asked);
    }
  };
  const auto near = windows.to(IslandId("near"));
  const auto far = windows.to(IslandId("far"));
  const auto farther = windows.to(IslandId("farther"));
  teach(*near, 1ms, 1e8);
  CHECK(windows.bytes(*near, now) == near->need(now));
  teach(*far, 400ms, 1e8);
  teach(*farther, 800ms, 1e8);
  const std::uint64_t all = windows.bytes(*near, now) + windows.bytes(*far, now) + windows.bytes(*farther, now);
  CHECK(all <= windows.budget());
  CHECK(all >= windows.budget() - 3);
  const double ratio = static_cast<double>(windows.bytes(*farther, now)) / static_cast<double>(windows.bytes(*far, now));
  CHECK(ratio == Approx(static_cast<double>(farther->need(now)) / static_cast<double>(far->need(now))).epsilon(0.01));
  // Who has asked for nothing in a while leaves its part to the others.
  now += 60s;
  teach(*far, 400ms, 1e8);
  CHECK(windows.bytes(*far, now) == std::min(far->need(now), windows.budget()));
}

}  // namespace of_far_link_test
