// Buffers of one round serve the next, and no more is kept than was in use.
#include "transport/bulk/receive_buffers.hpp"

#include "tests/catch.hpp"

namespace of_receive_buffers_test {

namespace {

using namespace atl;

constexpr std::size_t kMiB = 1U << 20;

}  // namespace

TEST_CASE("a buffer is used again for as much, not for much less, and outlives the shelf") {
  auto shelf = std::make_unique<ReceiveBuffers>();
  std::shared_ptr<std::byte[]> buffer = shelf->take(40 * kMiB);
  std::byte* const place = buffer.get();
  place[40 * kMiB - 1] = std::byte{7};
  CHECK(shelf->kept_bytes() == 0);
  buffer.reset();
  CHECK(shelf->kept_bytes() == 40 * kMiB);
  buffer = shelf->take(39 * kMiB);
  CHECK(buffer.get() == place);
  CHECK(shelf->kept_bytes() == 0);
  buffer.reset();
  buffer = shelf->take(20 * kMiB);
  CHECK(buffer.get() != place);
  shelf.reset();
  buffer[0] = std::byte{1};
}

TEST_CASE("what is kept and what is in use are never more than was in use at one time") {
  ReceiveBuffers shelf;
  auto first = shelf.take(40 * kMiB);
  auto second = shelf.take(20 * kMiB);
  first.reset();
  second.reset();
  CHECK(shelf.kept_bytes() == 60 * kMiB);
  // Another size: the old ones go as the new one comes back.
  auto other = shelf.take(100 * kMiB);
  other.reset();
  CHECK(shelf.kept_bytes() == 100 * kMiB);
  shelf.clear();
  CHECK(shelf.kept_bytes() == 0);
  shelf.take(16 * kMiB).reset();
  CHECK(shelf.kept_bytes() == 16 * kMiB);
  shelf.take(1000).reset();  // small ones are the allocator's
  CHECK(shelf.kept_bytes() == 16 * kMiB);
}

}  // namespace of_receive_buffers_test
