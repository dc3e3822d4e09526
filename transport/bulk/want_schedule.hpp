// Asking one peer for the pieces of one blob: in order, so many bytes at a time, and again when they do not come.
//
// A piece is asked for when it fits the window beside what is outstanding (always at least one piece): a window that follows the path
// (path_window.hpp), which all that is read from this peer teaches, or a fixed one. If the peer delivers nothing
// for `again_after` (on a slow path: four times the usual gap between pieces), everything outstanding is asked for again; the
// pause doubles up to `again_at_most` until something arrives. Asking again is harmless: owners park a want once, readers drop a second
// copy. Sans-I/O. Threads: one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/base/time.hpp"
#include "transport/bulk/bulk_link.hpp"
#include "transport/bulk/path_window.hpp"

namespace atl {

struct WantSettings {
  std::shared_ptr<PathWindows> paths;        // empty: the window is fixed
  std::uint64_t window_bytes = 16ULL << 20;  // asked for and not arrived, where it is fixed
  std::size_t window_pieces = 64;            // the same
  Duration again_after = std::chrono::seconds(2);
  Duration again_at_most = std::chrono::seconds(15);
  bool packed = false;  // the pieces may travel packed (packing.hpp)
};

class WantSchedule {
 public:
  // `ends` holds n+1 ascending offsets within the blob: piece i is [ends[i], ends[i+1]).
  WantSchedule(IslandId peer, BlobId blob, std::vector<std::uint64_t> ends, const WantSettings& settings, TimePoint now);

  // Appends what should be asked now, of the pieces before `limit`.
  void take(TimePoint now, std::size_t limit, std::vector<OutgoingWant>& out);
  // The number of the missing piece that this is exactly; nothing if it is of another blob or range, or arrived before.
  [[nodiscard]] std::optional<std::size_t> outstanding(const BlobPiece& piece) const;
  void arrived(TimePoint now, std::size_t index);
  // The link could not take this want, or a connection was made anew: ask (again) at once, or after `pause`.
  void ask_again(TimePoint now, Duration pause = Duration::zero());

  [[nodiscard]] const IslandId& peer() const { return peer_; }
  [[nodiscard]] const BlobId& blob() const { return blob_; }
  // Pieces from this one on were never asked for.
  [[nodiscard]] std::size_t asked_up_to() const { return asked_up_to_; }
  [[nodiscard]] bool has(std::size_t index) const { return states_[index] == State::arrived; }
  [[nodiscard]] bool done() const { return arrived_ == states_.size(); }
  // What may be outstanding now.
  [[nodiscard]] std::uint64_t window_bytes(TimePoint now) const;
  // Since when nothing came although something is outstanding; nothing if nothing is.
  [[nodiscard]] std::optional<TimePoint> silent_since() const;
  // When `take` should be called at the latest, unless its `limit` grows before; nothing if only arrivals matter.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const;

 private:
  enum class State : std::uint8_t { waiting, asked, arrived };
  // What is outstanding was not asked for, as far as this knows.
  void take_back();
  [[nodiscard]] Duration least_patience() const;

  IslandId peer_;
  BlobId blob_;
  std::vector<std::uint64_t> ends_;
  std::vector<State> states_;
  WantSettings settings_;
  std::shared_ptr<PathWindow> path_;       // empty: the window is fixed
  std::vector<PathWindow::Asked> stamps_;  // of each piece that was asked for, when the window follows the path
  std::size_t next_ = 0;                   // all pieces before it were asked for, or have arrived
  std::size_t asked_up_to_ = 0;
  std::size_t first_open_ = 0;  // all pieces before it have arrived
  std::size_t arrived_ = 0;
  std::size_t asked_ = 0;
  std::uint64_t asked_bytes_ = 0;
  Duration patience_;
  Duration gap_{};  // between arrivals, smoothed
  std::optional<TimePoint> silent_since_;
  TimePoint progress_;   // last arrival, or when something was asked
  TimePoint ask_after_;  // not before
  bool pausing_ = true;  // ask_after_ is to be waited for
};

}  // namespace atl
