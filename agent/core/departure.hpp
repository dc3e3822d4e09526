// How this agent leaves: it was asked to, its trainer publishes what it has, the coordinator lets go, and the process ends.
//
//   staying ──ask──► leaving ◄──contributed── cut_short
//                      │  └──────cut──────────►  │
//                      └────────release──────────┴──► released ──go──► gone
// From everywhere `go` leads to gone. When the run is over here there is nothing more to contribute to, or to wait for: leaving again.
// Threads: plain values; owned by one Core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"

namespace atl::agent {

class Departure {
 public:
  enum class Stage : std::uint8_t {
    staying,
    leaving,    // the coordinator is told until it lets go
    cut_short,  // the trainer was told to publish what it has: the island's last contribution
    released,   // the coordinator lets go; what is in hand is brought to the disk, then the end
    gone,
  };

  [[nodiscard]] Stage stage() const { return stage_; }
  [[nodiscard]] bool asked() const { return stage_ != Stage::staying && stage_ != Stage::gone; }
  [[nodiscard]] bool cut_short() const { return stage_ == Stage::cut_short; }
  [[nodiscard]] bool released() const { return stage_ == Stage::released; }
  [[nodiscard]] bool gone() const { return stage_ == Stage::gone; }
  [[nodiscard]] const std::string& why() const { return why_; }
  // When it has to be gone, once it was asked.
  [[nodiscard]] std::optional<TimePoint> limit() const { return asked() ? std::optional(limit_) : std::nullopt; }
  // Without an answer it goes at this time all the same.
  [[nodiscard]] TimePoint until() const { return until_; }
  [[nodiscard]] bool overdue(TimePoint now) const { return asked() && now >= until_; }

  // False if it was asked before.
  bool ask(const std::string& why, TimePoint until) {
    if (stage_ != Stage::staying) {
      return false;
    }
    stage_ = Stage::leaving;
    why_ = why;
    until_ = until;
    limit_ = until;
    return true;
  }
  // There is no coordinator that could let go: it goes at this time, unless one answers before.
  void expect_nobody(TimePoint until) { until_ = asked() && !released() ? std::min(until, limit_) : until_; }
  void expect_answer() { until_ = asked() && !released() ? limit_ : until_; }
  void cut() { turn(Stage::leaving, Stage::cut_short); }
  // Its last contribution is formed, or there is none.
  void contributed() { turn(Stage::cut_short, Stage::leaving); }
  void release() {
    if (asked()) {
      stage_ = Stage::released;
    }
  }
  // Nobody lets go: what it holds is brought to the disk first, until this time at most, and not beyond its limit.
  void release_itself(TimePoint until) {
    release();
    until_ = std::min(until, limit_);
    unheard_ = true;
  }
  [[nodiscard]] bool unheard() const { return unheard_ && released(); }
  // True once for each round: its state has to be brought to the disk.
  bool keep(Round round) { return std::exchange(kept_, round) != round; }
  void close_run() {
    contributed();
    turn(Stage::released, Stage::leaving);
  }
  void go() { stage_ = Stage::gone; }

 private:
  void turn(Stage from, Stage to) { stage_ = stage_ == from ? to : stage_; }

  Stage stage_ = Stage::staying;
  std::string why_;
  TimePoint until_;
  TimePoint limit_;  // of until_, with a coordinator that answers
  bool unheard_ = false;
  std::optional<Round> kept_;
};

}  // namespace atl::agent
