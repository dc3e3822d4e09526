// EmulatedStream: one direction of one TCP connection on a path that is far, thin and lossy; only when bytes leave and arrive, not the
// bytes.
//
// The path. Each island has an access line with a rate for each direction. Bytes leave the sender through its line's way out, are half a
// round trip on their way, and come in through the receiver's way in. Each way carries one chunk after the other, as a fluid: a chunk that
// finds it free comes out at the far end while it still goes in at the near one. Streams that share a way out take turns, chunk by chunk,
// and a way in takes chunks as they come. What does not fit waits at the sender, in its socket, except for what queues before the
// receiver's way in when several send to it: a stream stops sending, as TCP does, while its own newest chunk has to wait there for more
// than kQueue.
//
// Without loss TCP's congestion window is left out: a path that TCP has learnt to fill. So what is slower than the path is due to the
// program. With loss each stream has the window of TCP Reno (RFC 5681, 6582), the least that a path with loss gives; CUBIC does the same
// on short paths with much loss and better on others, BBR better:
//   - it begins with ten segments of 1,448 bytes and grows by what is acknowledged until the first loss, then by a segment a window;
//   - each segment, retransmissions too, is lost with the same probability, by itself;
//   - a lost segment comes a round trip later, and all that was sent behind it in this stream no earlier than it; it goes over both ways
//     again; if the retransmission is lost, another round trip later;
//   - the window is halved when the loss is noticed, a round trip after the segment left, and at most once for what was sent before that.
// Not modelled: time-outs of retransmission (a tail that is lost counts as noticed, as by tail loss probes), lost acknowledgements,
// reordering, and TCP's own start after idle times.
//
// Sans-I/O: time is an argument and does not run backwards. Threads: one for all streams that share lines.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "transport/base/rng.hpp"
#include "transport/base/time.hpp"
#include "transport/emulated/link_terms.hpp"

namespace atl {

inline constexpr std::uint64_t kSegmentBytes = 1448;

class EmulatedStream;

// One direction of an access line.
struct LineWay {
  double bytes_per_second = 0;                // 0: no limit
  TimePoint free{};                           // when all that was put on it has gone through
  std::deque<const EmulatedStream*> turns{};  // of a way out: who waits for it, in the order in which they have it
};

class EmulatedStream {
 public:
  // What is on its way at most, and what may lie at a receiver that does not read.
  static constexpr std::uint64_t kMostInFlight = 512ULL << 20;
  static constexpr std::uint64_t kMostUnread = 4ULL << 20;
  // How long the newest chunk may have to wait before the receiver's way in.
  static constexpr Duration kQueue = std::chrono::milliseconds(10);

  // out, in: the sender's way out and the receiver's way in; null for an end without a line. They outlive the stream.
  EmulatedStream(const LinkTerms& terms, LineWay* out, LineWay* in, Rng rng);
  ~EmulatedStream();
  EmulatedStream(const EmulatedStream&) = delete;
  EmulatedStream& operator=(const EmulatedStream&) = delete;

  // How many of the bytes that wait at the sender may leave now: one chunk, half a millisecond of the slower way. 0: none; `next_leave`
  // then says when to ask again. Whoever asked has a turn, for which others wait: it asks again then, or says `nothing_waits`.
  std::uint64_t may_leave(TimePoint now);
  // After may_leave returned 0; nothing: not before `handed_over`.
  [[nodiscard]] std::optional<TimePoint> next_leave() const { return next_leave_; }
  // So many of them left, at most what may_leave said.
  void left(TimePoint now, std::uint64_t bytes);
  // Nothing waits at the sender any more. Until then a thread that comes late makes up for it: the path was busy meanwhile.
  void nothing_waits();

  // Bytes that have arrived and were not handed over.
  std::uint64_t arrived(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_arrival() const;
  void handed_over(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t in_flight() const { return in_flight_; }
  // With loss: the window, in bytes.
  [[nodiscard]] double window() const { return window_; }

 private:
  struct Chunk {
    TimePoint at;
    std::uint64_t bytes;
  };
  struct Loss {
    TimePoint left;
    TimePoint noticed;
  };
  [[nodiscard]] std::uint64_t chunk_bytes() const;
  bool take_turn();
  void give_up_turn();
  TimePoint through_both(TimePoint start, std::uint64_t bytes);
  void arrive(TimePoint at, std::uint64_t bytes);
  void leave_with_losses(TimePoint start, std::uint64_t bytes);
  void settle_window(TimePoint now);
  void acknowledge(std::uint64_t bytes);
  void draw_next_loss();

  LinkTerms terms_;
  Duration one_way_;
  LineWay* out_;
  LineWay* in_;
  Rng rng_;
  std::deque<Chunk> chunks_;  // on their way, by time of arrival
  std::uint64_t in_flight_ = 0;
  std::uint64_t unread_ = 0;
  std::optional<TimePoint> next_leave_;
  std::optional<TimePoint> held_;  // since when the pace alone has held back what waits
  bool in_turn_ = false;           // it is among the way out's turns
  TimePoint last_in_{};            // when the newest chunk has come through the way in
  // With loss.
  double window_ = 10 * kSegmentBytes;
  double threshold_ = 1e18;
  std::uint64_t unacknowledged_ = 0;
  std::deque<Chunk> acknowledgements_;
  std::deque<Loss> losses_;
  TimePoint halved_{};
  std::uint64_t until_loss_ = 0;  // segments that are not lost before the next that is
};

}  // namespace atl
