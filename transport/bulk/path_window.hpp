// How many bytes to have asked of a peer and not received: what the path to it holds, measured from what arrives.
//
// The model is that of BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016, and
// draft-cardwell-iccrg-bbr-congestion-control-02, section 4.1): a path holds its bandwidth-delay product, the highest delivery rate of the
// last rounds times the shortest round trip of the last ten seconds. A rate sample is taken with every piece: the bytes that came between
// asking for it and its arrival, over the longer of the times in which they were asked for and in which they came, so that a burst out of a
// queue does not count as a rate.
// The window is twice the product: while it is what limits, the rate that is measured doubles with every round trip, and so does the
// window. What is more than the path holds waits at the owner, as wants.
// Where we differ from BBR:
// - A reader's window is not what keeps queues out of the network; the owner's congestion control does that. So there is no pacing, and no
//   start-up phase of its own.
// - A round trip counts kScheduling more than it is: threads that share cores with a computation are that late.
// - With a full window every piece first waits at the owner, and the shortest round trip would grow with the window. So after ten seconds
//   (or twenty trips, if that is more) without a piece that was asked for with at most half of the product outstanding, the window is half
//   of the product until such a piece is on its way (BBR's ProbeRTT). What begins after a pause begins with such a piece.
// - Rounds in which the window was not what limited do not age the rate.
// - A piece comes over one of several connections, on a path with losses much slower than the path: so each has two pieces to deliver at
//   least, one that comes and the next.
// Several windows share a budget by need: as long as all together need no more, each has what it needs, else the same part of it.
// Sans-I/O: time is an argument and does not run backwards. Cost: O(peers) to size a window, O(1) else; 200 bytes a peer. Threads: one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl {

class PathWindow {
 public:
  static constexpr std::uint64_t kFirst = 4ULL << 20;          // before anything is measured
  static constexpr std::uint64_t kLeastOfEach = 512ULL << 10;  // of each connection: two full pieces
  static constexpr Duration kScheduling = std::chrono::milliseconds(10);
  static constexpr Duration kFresh = std::chrono::seconds(10);

  // What was known when a piece was asked for; its asker keeps it until the piece arrives.
  struct Asked {
    TimePoint at;
    TimePoint first_at;           // when the piece that had arrived last was asked for
    TimePoint delivered_at;       // when it arrived
    std::uint64_t delivered = 0;  // bytes until then
    bool clean = false;           // little else was outstanding
  };

  // A piece is asked for, with so many bytes outstanding before it.
  Asked asked(TimePoint now, std::uint64_t outstanding);
  void arrived(TimePoint now, std::uint64_t bytes, const Asked& asked);
  // Over so many connections its owner is asked; two unless it is said.
  void asked_over(unsigned connections) { connections_ = std::max(connections, 1U); }
  // The next piece does not fit beside what is outstanding.
  void limits() { limited_ = true; }

  // Bytes that it would have outstanding, budget apart: kFirst before anything is known, kLeastOfEach at least, but for the moments in
  // which the round trip is looked at anew. Askers always ask for one piece at least.
  [[nodiscard]] std::uint64_t need(TimePoint now) const;
  [[nodiscard]] double bytes_per_second() const;                     // 0: not known
  [[nodiscard]] Duration round_trip() const { return round_trip_; }  // 0: not known
  [[nodiscard]] TimePoint last_asked() const { return last_asked_; }

 private:
  static constexpr std::size_t kRounds = 4;

  [[nodiscard]] double product() const;
  [[nodiscard]] bool is_stale(TimePoint now) const;

  std::uint64_t delivered_ = 0;
  TimePoint delivered_at_;
  TimePoint first_at_;
  TimePoint last_asked_;
  Duration round_trip_{};
  TimePoint clean_asked_;                // the newest piece that was asked for with little else outstanding
  TimePoint refreshed_;                  // when the round trip was found or confirmed
  std::array<double, kRounds> rates_{};  // the highest of each round, the present one's at `round_`
  std::size_t round_ = 0;
  std::uint64_t round_ends_ = 0;  // with a piece that is asked for when so many bytes are delivered
  bool limited_ = false;          // by the window, in this round
  unsigned connections_ = 2;
};

// The windows to all peers, within one budget.
class PathWindows {
 public:
  explicit PathWindows(std::uint64_t budget_bytes) : budget_(budget_bytes) {}

  // Kept as long as this lives: what was learned in one round serves the next.
  [[nodiscard]] std::shared_ptr<PathWindow> to(const IslandId& peer);
  // What may be outstanding of this peer now.
  [[nodiscard]] std::uint64_t bytes(const PathWindow& window, TimePoint now) const;
  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  // Forgets peers that are not among these.
  void keep_only(const std::set<IslandId>& peers);

 private:
  std::uint64_t budget_;
  std::map<IslandId, std::shared_ptr<PathWindow>> windows_;
};

}  // namespace atl
