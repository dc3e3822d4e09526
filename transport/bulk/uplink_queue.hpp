// The wants of all peers, answered no faster than an uplink's budget allows.
//
// Peers take turns, piece by piece, so that none has to wait for all of another's. A peer's next want is answered by the store at
// once (what is not ready is parked there, without a token) and the piece is held until its bytes are paid for; so each peer has at
// most one piece in hand here, and the rest of its wants wait as wants. A want that waits already is not queued twice: a reader
// on a thin link asks again before its turn has come.
// Sans-I/O: time is an argument. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "transport/base/ids.hpp"
#include "transport/base/time.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/bulk/piece.hpp"
#include "transport/bulk/token_bucket.hpp"
#include "transport/bulk/want_queue.hpp"

namespace atl {

class UplinkQueue {
 public:
  // The piece, or nothing if the want was parked or refused.
  using Answer = std::function<std::optional<Served>(const IslandId& peer, const WantOver& asked)>;
  struct Turn {
    IslandId peer;
    Served served;
    std::uint64_t connection = 0;  // over which it was asked for; 0: not known
  };

  // Keeps at most `wants_per_peer`; the reader asks again for what is dropped.
  UplinkQueue(double bits_per_second, std::size_t wants_per_peer, TimePoint now);

  void add(const IslandId& peer, const WantOver& asked);
  // The peer is gone.
  void drop(const IslandId& peer);
  // From now on pieces leave at another rate. What waits keeps its turn; ask `ready` again.
  void set_rate(double bits_per_second, TimePoint now);
  // All that waits, where there is no budget any more.
  std::vector<std::pair<IslandId, WantOver>> take_all();
  // Whose piece may leave now; null if there is none, or none is paid for. It stays until `pop` or `drop`.
  const Turn* ready(TimePoint now, const Answer& answer);
  Served pop();
  // Every frame that leaves, pieces too.
  void spend(TimePoint now, std::uint64_t bytes) { bucket_.spend(now, bytes); }
  // When `ready` will have something; nothing if only a new want matters.
  [[nodiscard]] std::optional<TimePoint> next_deadline() const { return allowed_; }

 private:
  bool choose(const Answer& answer);

  TokenBucket bucket_;
  std::size_t wants_per_peer_;
  std::map<IslandId, WantQueue> waiting_;  // no empty ones
  std::optional<Turn> turn_;
  IslandId last_;                     // whose turn it was
  std::optional<TimePoint> allowed_;  // for the present turn
};

}  // namespace atl
