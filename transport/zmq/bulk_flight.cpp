#include "transport/zmq/bulk_flight.hpp"

#include <algorithm>
#include <bit>

namespace atl {
namespace {

constexpr std::size_t kFreeBytes = 16U << 20;  // kept for the next pieces

}  // namespace

SealBuffers::Buffer SealBuffers::take(std::size_t size) {
  const std::size_t rounded = std::bit_ceil(std::max<std::size_t>(size, 4096));
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(free_.begin(), free_.end(), [&](const Buffer& buffer) { return buffer.size == rounded; });
    if (found != free_.end()) {
      Buffer buffer = std::move(*found);
      *found = std::move(free_.back());
      free_.pop_back();
      free_bytes_ -= rounded;
      return buffer;
    }
  }
  return Buffer{std::make_unique_for_overwrite<std::byte[]>(rounded), rounded};
}

void SealBuffers::give_back(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (free_bytes_ + buffer.size <= kFreeBytes) {
    free_bytes_ += buffer.size;
    free_.push_back(std::move(buffer));
  }
}

struct BulkFlight::Cargo {
  std::shared_ptr<BulkFlight> flight;
  PieceKey key;
  std::uint64_t size = 0;
  std::shared_ptr<const void> owner;
  SealBuffers::Buffer buffer;
};

bool BulkFlight::has_room(std::uint64_t queue_bytes, std::uint64_t outbox_bytes) const {
  const std::lock_guard lock(mutex_);
  const auto moment = static_cast<std::uint64_t>(bytes_per_second_ * seconds(kAhead));
  const std::uint64_t most = std::min(queue_bytes, std::max(kLeast, moment));
  return bytes_ == 0 || (bytes_ < most && outbox_->load() < outbox_bytes);
}

bool BulkFlight::carries(const PieceKey& key) const {
  const std::lock_guard lock(mutex_);
  return keys_.contains(key);
}

void BulkFlight::wake_when_smaller() {
  const std::lock_guard lock(mutex_);
  wake_ = true;
  if (bytes_ == 0) {
    mailbox_->to_io.wake();
  }
}

ZmqMessage BulkFlight::launch(const PieceKey& key, const Payload& payload) {
  auto cargo = std::make_unique<Cargo>();
  cargo->key = key;
  cargo->owner = payload.owner;
  // ZeroMQ only reads what it sends.
  return launch(std::move(cargo), {const_cast<std::byte*>(payload.bytes.data()), payload.bytes.size()});
}

ZmqMessage BulkFlight::launch(const PieceKey& key, SealBuffers::Buffer buffer, std::size_t size) {
  auto cargo = std::make_unique<Cargo>();
  cargo->key = key;
  const std::span<std::byte> bytes(buffer.bytes.get(), size);
  cargo->buffer = std::move(buffer);
  return launch(std::move(cargo), bytes);
}

ZmqMessage BulkFlight::launch(std::unique_ptr<Cargo> cargo, std::span<std::byte> bytes) {
  cargo->flight = shared_from_this();
  cargo->size = bytes.size();
  *outbox_ += bytes.size();
  {
    const std::lock_guard lock(mutex_);
    if (bytes_ == 0) {
      measured_from_ = now();
      landed_ = 0;
    }
    bytes_ += bytes.size();
    keys_.insert(cargo->key);
  }
  return ZmqMessage(bytes, &BulkFlight::land, cargo.release());
}

void BulkFlight::land(void* /*bytes*/, void* hint) {
  const std::unique_ptr<Cargo> cargo(static_cast<Cargo*>(hint));
  BulkFlight& flight = *cargo->flight;
  if (cargo->buffer.bytes) {
    flight.buffers_->give_back(std::move(cargo->buffer));
  }
  *flight.outbox_ -= cargo->size;
  const std::lock_guard lock(flight.mutex_);
  flight.bytes_ -= cargo->size;
  flight.landed_ += cargo->size;
  const TimePoint present = now();
  if (const Duration took = present - flight.measured_from_; took >= kAhead) {
    flight.bytes_per_second_ = static_cast<double>(std::exchange(flight.landed_, 0)) / seconds(took);
    flight.measured_from_ = present;
  }
  if (const auto key = flight.keys_.find(cargo->key); key != flight.keys_.end()) {
    flight.keys_.erase(key);
  }
  if (std::exchange(flight.wake_, false)) {
    flight.mailbox_->to_io.wake();
  }
}

}  // namespace atl
