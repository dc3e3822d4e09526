// Pieces on their way out: what ZeroMQ has of one connection and has not yet given to the kernel.
//
// A payload goes to ZeroMQ without a copy: sealed into a pooled buffer, or (plain) as the owner's bytes with their keep-alive. When
// ZeroMQ lets go of it, on one of its threads, the flight shrinks and, if the I/O thread waits for that, wakes it.
// A flight holds what the kernel takes within kAhead, so that a ping or a want that leaves on a thin path does not wait for megabytes.
// All flights of a link count in one outbox, so that many peers together do not hold more than its budget.
// Threads: any; mutexes held only to count.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "transport/base/time.hpp"
#include "transport/bulk/blob_store.hpp"
#include "transport/bulk/piece.hpp"
#include "transport/zmq/bulk_mailbox.hpp"
#include "transport/zmq/zmq_message.hpp"

namespace atl {

// Buffers for sealed payloads, kept for the next piece: fresh pages would cost more than the sealing.
class SealBuffers {
 public:
  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
  };
  Buffer take(std::size_t size);
  void give_back(Buffer buffer);

 private:
  std::mutex mutex_;
  std::vector<Buffer> free_;
  std::size_t free_bytes_ = 0;
};

class BulkFlight : public std::enable_shared_from_this<BulkFlight> {
 public:
  using PieceKey = std::pair<BlobId, std::uint64_t>;

  using Outbox = std::atomic<std::uint64_t>;  // bytes

  BulkFlight(std::shared_ptr<BulkMailbox> mailbox, std::shared_ptr<SealBuffers> buffers, std::shared_ptr<Outbox> outbox)
      : mailbox_(std::move(mailbox)), buffers_(std::move(buffers)), outbox_(std::move(outbox)) {}

  static constexpr Duration kAhead = std::chrono::milliseconds(50);
  static constexpr std::uint64_t kLeast = 1ULL << 20;

  // Whether one more piece may be launched: always one, else up to what the kernel takes in a moment, `queue_bytes` at most, and
  // `outbox_bytes` of all flights.
  [[nodiscard]] bool has_room(std::uint64_t queue_bytes, std::uint64_t outbox_bytes) const;
  // True while the piece asked for by this key is on its way: asking again changes nothing.
  [[nodiscard]] bool carries(const PieceKey& key) const;
  // Wakes the I/O thread with the next piece that has left.
  void wake_when_smaller();

  // A message that ZeroMQ can keep as long as it likes.
  ZmqMessage launch(const PieceKey& key, const Payload& payload);
  ZmqMessage launch(const PieceKey& key, SealBuffers::Buffer buffer, std::size_t size);
  [[nodiscard]] SealBuffers& buffers() { return *buffers_; }

 private:
  struct Cargo;
  static void land(void* bytes, void* cargo);
  ZmqMessage launch(std::unique_ptr<Cargo> cargo, std::span<std::byte> bytes);

  const std::shared_ptr<BulkMailbox> mailbox_;
  const std::shared_ptr<SealBuffers> buffers_;
  const std::shared_ptr<Outbox> outbox_;
  mutable std::mutex mutex_;
  std::uint64_t bytes_ = 0;
  double bytes_per_second_ = 0;  // as they landed
  TimePoint measured_from_;
  std::uint64_t landed_ = 0;  // since then
  std::multiset<PieceKey> keys_;
  bool wake_ = false;
};

}  // namespace atl
