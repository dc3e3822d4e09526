// A file of what memory holds at one instant, while the memory changes.
#include "agent/storage/snapshot_file.hpp"

#include <algorithm>
#include <thread>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/base/rng.hpp"
#include "transport/identity/sha256.hpp"

namespace of_snapshot_file_test {

using namespace atl;

namespace {

Bytes random_bytes(Rng& rng, std::size_t count) {
  Bytes bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::byte>(rng.below(256)); });
  return bytes;
}

struct World {
  explicit World(std::uint64_t seed, std::uint64_t most_kept, std::size_t slice) : rng(seed, 1) {
    for (std::size_t size : {300U, 0U, 1U, 700U, 64U}) {
      memory.push_back(random_bytes(rng, size));
    }
    const Bytes head = random_bytes(rng, 20);
    before = head;
    std::vector<ByteView> content;
    for (const Bytes& part : memory) {
      before.insert(before.end(), part.begin(), part.end());
      content.emplace_back(part);
    }
    file = std::make_shared<SnapshotFile>(DurableFile::create(path).value(), head, content, most_kept, slice);
  }
  // A range of one of the parts becomes something else.
  void change() {
    Bytes& part = memory[rng.below(memory.size())];
    const std::size_t from = rng.below(part.size() + 1);
    const std::size_t count = rng.below(part.size() - from + 1);
    file->keep(ByteView(part).subspan(from, count));
    std::ranges::copy(random_bytes(rng, count), part.begin() + static_cast<std::ptrdiff_t>(from));
  }
  void check() const {
    REQUIRE(file->outcome());
    REQUIRE(file->outcome()->has_value());
    CHECK((*file->outcome())->bytes == before.size());
    CHECK((*file->outcome())->sha256 == sha256(before));
    CHECK(read_file(path, 1U << 20).value() == before);
  }

  Rng rng;
  atl_test::TemporaryFolder folder;
  DiskPath path = confined_to(folder.path()).value() / "snapshot";
  std::vector<Bytes> memory;
  Bytes before;
  std::shared_ptr<SnapshotFile> file;
};

}  // namespace

TEST_CASE("a snapshot holds what was there when it was begun, whatever changes between its slices, copied or waited for") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    INFO("seed " << seed);
    World world(seed, seed % 3 == 0 ? 0 : seed % 3 == 1 ? 200 : 1U << 20, 1 + seed % 97);
    while (world.file->write_some()) {
      for (std::uint64_t i = world.rng.below(4); i > 0; --i) {
        world.change();
      }
    }
    world.check();
    world.change();  // of no interest any more
  }
}

TEST_CASE("a snapshot that another thread writes holds what was there when it was begun") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    World world(seed, seed % 2 == 0 ? 100 : 1U << 20, 1 + seed % 13);
    std::thread writer([file = world.file] {
      while (file->write_some()) {
      }
    });
    while (!world.file->over()) {
      world.change();
    }
    writer.join();
    world.check();
  }
}

TEST_CASE("a snapshot that is closed reads nothing of the memory any more, and has no outcome") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World world(seed, 1U << 20, 1 + seed % 13);
    std::thread writer([file = world.file] {
      while (file->write_some()) {
      }
    });
    world.change();
    world.file->close();
    world.memory.clear();  // a sanitizer says who reads it
    writer.join();
    CHECK_FALSE(world.file->outcome());
    CHECK_FALSE(world.file->write_some());
  }
}

}  // namespace of_snapshot_file_test
