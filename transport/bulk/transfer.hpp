// A transfer: whatever this island reads from others until it is there: a round's exchange, a pair's, a checkpoint, content of a task.
//
// Its owner hands it what the link received, sends its wants, and asks it again by its deadline; what came of it each kind says itself.
// Sans-I/O towards the network: time is an argument, nothing blocks. Threads: one.
#pragma once

#include <optional>
#include <vector>

#include "transport/base/time.hpp"
#include "transport/bulk/bulk_link.hpp"

namespace atl {

// How long a want waits that the link could not take.
inline constexpr Duration kPauseAfterRefusedSend = std::chrono::milliseconds(200);

class Transfer : public PieceReceiver {
 public:
  // True if this blob is one that it reads.
  [[nodiscard]] virtual bool reads(const BlobId& blob) const = 0;
  // Decides what time decides, and says what to send now.
  virtual std::vector<OutgoingWant> take_wants(TimePoint now) = 0;
  // The link could not take a want: it is asked again in a moment.
  virtual void not_sent(TimePoint now, const OutgoingWant& want) = 0;
  // When take_wants is to be called again at the latest; nothing: not before something comes.
  [[nodiscard]] virtual std::optional<TimePoint> next_deadline() const = 0;
};

// Sends what a transfer wants now.
inline void send_wants(BulkLink& link, Transfer& transfer, TimePoint now) {
  for (const OutgoingWant& want : transfer.take_wants(now)) {
    if (!link.want(want)) {
      transfer.not_sent(now, want);
    }
  }
}

}  // namespace atl
