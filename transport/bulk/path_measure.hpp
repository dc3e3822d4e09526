// How far this island's peers are, and how fast data come from each: measured one peer after the other, for the same time each.
//
// First the round trip: the shortest that some tiny pieces take, asked for one after the other. Then the rate: full pieces are asked for,
// one more with each that arrives while none waits long on the way, and the best eighth of the time counts, as BBR takes the highest
// delivery rate for that of the path; where few pieces come, all of them. No more is asked for than comes before the time is over, so the
// next peer finds a path that is free. Whoever has all islands measure at once gives each a turn of its own order, so that nobody sends to
// two of them at a time. The pieces are probes' (piece.hpp): zeros that every peer serves. Budgets of uplinks hold for them: that is what
// an exchange gets, too. Sans-I/O. Threads: one.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "transport/bulk/transfer.hpp"

namespace atl {

struct MeasuredPath {
  IslandId from;
  Duration round_trip{};        // 0: nothing came
  double bytes_per_second = 0;  // 0: no full piece came
};

class PathMeasure final : public Transfer {
 public:
  // Replaces what is under way.
  void begin(const std::vector<IslandId>& in_turn, Duration each, TimePoint now);
  // Of the peers whose time is over since the last call.
  std::vector<MeasuredPath> take_findings(TimePoint now);

  std::span<std::byte> destination(const IslandId& from, const BlobPiece& piece) override;
  void arrived(TimePoint now, const IslandId& from, const BlobPiece& piece) override;
  void gone(TimePoint now, const IslandId& from, const Gone& gone) override;
  void connected(TimePoint /*now*/, const IslandId& /*peer*/) override {}
  void not_sent(TimePoint now, const OutgoingWant& want) override;
  [[nodiscard]] bool reads(const BlobId& blob) const override;
  std::vector<OutgoingWant> take_wants(TimePoint now) override;
  [[nodiscard]] std::optional<TimePoint> next_deadline() const override;

 private:
  static constexpr std::size_t kParts = 8;
  // The peer whose turn it is.
  struct Turn {
    IslandId peer;
    TimePoint begun;
    TimePoint end;
    unsigned trips = 0;                        // tiny pieces that came
    std::optional<Duration> shortest;          // of their round trips
    std::optional<TimePoint> rate_from;        // when the first full piece was asked for
    std::size_t window = 0;                    // full pieces asked for at a time
    Duration took{};                           // from asking for the newest full piece to its arrival
    std::uint64_t bytes = 0;                   // of full pieces
    std::optional<TimePoint> first;            // when the first of them came
    TimePoint last;                            // when the newest of them came
    std::array<std::uint64_t, kParts> came{};  // bytes by part of the time
  };
  void next_turn(TimePoint now);
  [[nodiscard]] MeasuredPath finding() const;
  [[nodiscard]] bool fits(TimePoint now) const;
  OutgoingWant ask(std::uint32_t length, TimePoint now);

  std::deque<IslandId> waiting_;
  Duration each_{};
  std::optional<Turn> turn_;
  std::optional<TimePoint> look_;     // when take_wants is due, whatever comes
  std::map<Round, TimePoint> asked_;  // of the turn; each want has a number of its own
  std::uint64_t number_ = 0;
  std::vector<MeasuredPath> findings_;
  std::vector<std::byte> sink_;
};

}  // namespace atl
