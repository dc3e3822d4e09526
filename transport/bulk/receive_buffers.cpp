#include "transport/bulk/receive_buffers.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <new>

namespace atl {
namespace {

constexpr std::size_t kHuge = 2U << 20;
constexpr std::size_t kLargeEnough = 4 * kHuge;  // smaller ones are the allocator's

}  // namespace

struct ReceiveBuffers::Shelf {
  struct Buffer {
    std::byte* bytes = nullptr;
    std::size_t size = 0;
  };

  ~Shelf() { drop_kept(); }

  Buffer take(std::size_t size) {
    const std::lock_guard lock(mutex);
    const auto fits = [&](const Buffer& it) { return it.size >= size && it.size - it.size / 4 <= size; };
    const auto found = std::find_if(kept.begin(), kept.end(), fits);
    const Buffer buffer = found != kept.end() ? *found : map(size);
    if (found != kept.end()) {
      kept.erase(found);
      kept_bytes -= buffer.size;
    }
    in_use += buffer.size;
    most_in_use = std::max(most_in_use, in_use);
    return buffer;
  }

  void give_back(const Buffer& buffer) {
    const std::lock_guard lock(mutex);
    in_use -= buffer.size;
    kept.push_back(buffer);
    kept_bytes += buffer.size;
    while (in_use + kept_bytes > most_in_use) {
      drop_oldest();
    }
  }

  void drop_kept() {
    while (!kept.empty()) {
      drop_oldest();
    }
  }

  void drop_oldest() {
    ::munmap(kept.front().bytes, kept.front().size);
    kept_bytes -= kept.front().size;
    kept.pop_front();
  }

  static Buffer map(std::size_t size) {
    void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::bad_alloc();
    }
    ::madvise(memory, size, MADV_HUGEPAGE);  // advice: where it is not followed, pages are small
    return {static_cast<std::byte*>(memory), size};
  }

  std::mutex mutex;
  std::deque<Buffer> kept;  // oldest first
  std::size_t kept_bytes = 0;
  std::size_t in_use = 0;
  std::size_t most_in_use = 0;
};

ReceiveBuffers::ReceiveBuffers() : shelf_(std::make_shared<Shelf>()) {}
ReceiveBuffers::~ReceiveBuffers() = default;

std::shared_ptr<std::byte[]> ReceiveBuffers::take(std::size_t bytes) {
  if (bytes < kLargeEnough) {
    return std::make_shared_for_overwrite<std::byte[]>(bytes);
  }
  const Shelf::Buffer buffer = shelf_->take((bytes + kHuge - 1) / kHuge * kHuge);
  return {buffer.bytes, [shelf = shelf_, buffer](std::byte* /*bytes*/) { shelf->give_back(buffer); }};
}

void ReceiveBuffers::clear() {
  const std::lock_guard lock(shelf_->mutex);
  shelf_->drop_kept();
  shelf_->most_in_use = shelf_->in_use;
}

std::size_t ReceiveBuffers::kept_bytes() const {
  const std::lock_guard lock(shelf_->mutex);
  return shelf_->kept_bytes;
}

}  // namespace atl
