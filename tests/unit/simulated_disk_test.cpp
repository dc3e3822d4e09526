// The simulated disk: it behaves as the own one does, and loses what was not synced.
#include "transport/simulated/simulated_disk.hpp"

#include <set>
#include <string>

#include "tests/catch.hpp"

namespace of_simulated_disk_test {

using namespace atl;

namespace {

Status write_text(const DiskPath& path, std::string_view text, bool sync) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::creating));
  ATOLL_TRY(file->write(0, as_bytes(text)));
  return sync ? file->sync() : Status();
}

std::string text_in(const DiskPath& path) {
  const auto file = path.open(OpenFor::reading);
  return file ? std::string(as_text((*file)->map()->bytes)) : file.error().code == Code::not_found ? "nothing" : "an error";
}

}  // namespace

TEST_CASE("simulated disk: files and folders are made, listed, renamed, exchanged and removed, and no path leads out") {
  const DiskPath root(std::make_shared<SimulatedDisk>());
  REQUIRE((root / "a/b").make_folders());
  REQUIRE(write_text(root / "a/one", "1", false));
  REQUIRE(write_text(root / "a/b/two", "22", false));
  CHECK((root / "a").list()->size() == 2);
  CHECK((root / "a").list()->front().kind == EntryKind::folder);
  CHECK((root / "a/b/two").look()->bytes == 2);
  REQUIRE((root / "a/one").rename_to(root / "three"));
  CHECK(text_in(root / "a/one") == "nothing");
  CHECK((root / "a").exchange_with(root / "gone").error().code == Code::not_found);
  REQUIRE((root / "a").exchange_with(root / "three"));
  CHECK(text_in(root / "three/b/two") == "22");
  CHECK(text_in(root / "a") == "1");
  CHECK((root / "three").remove());
  CHECK((root / "three").remove());
  CHECK(root.list()->size() == 1);
  CHECK(text_in(root / "three/b/two") == "nothing");
  CHECK((root / "../x").open(OpenFor::creating).error().code == Code::io);
  CHECK((root / "/x").make_folders().error().code == Code::io);
}

TEST_CASE("simulated disk: what was synced survives a loss of power, and of the rest anything may") {
  std::set<std::string> files;
  std::set<std::string> names;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    const auto disk = std::make_shared<SimulatedDisk>();
    const DiskPath root(disk);
    REQUIRE(write_text(root / "kept", "old", true));
    REQUIRE(write_text(root / "from", "moved", true));
    REQUIRE(root.sync_folder());
    REQUIRE(write_text(root / "kept", "new", false));
    REQUIRE((root / "from").rename_to(root / "to"));
    disk->lose_power(rng);
    files.insert(text_in(root / "kept"));
    const std::string from = text_in(root / "from");
    const std::string to = text_in(root / "to");
    CHECK(((from == "moved") != (to == "moved")));  // one of both, never neither
    names.insert(to);
  }
  CHECK(files.contains("old"));
  CHECK(files.contains("new"));
  CHECK(files.contains("nld"));  // torn
  CHECK(names.size() == 2);
}

TEST_CASE("simulated disk: full, slow, and without power in the middle") {
  const auto disk = std::make_shared<SimulatedDisk>();
  const DiskPath root(disk);
  disk->set_delays(std::chrono::milliseconds(1), std::chrono::milliseconds(10));
  REQUIRE(write_text(root / "a", "text", true));
  CHECK(disk->take_time_spent() == std::chrono::milliseconds(13));  // open, write, sync
  disk->set_full(true);
  CHECK(write_text(root / "b", "text", true).error().why.find("no space left") != std::string::npos);
  CHECK((root / "f").make_folders().error().code == Code::io);
  disk->set_full(false);
  disk->set_power_until(1);
  CHECK(write_text(root / "b", "text", true).error().why.find("no power") != std::string::npos);
  CHECK(text_in(root / "a") == "an error");
  Rng rng(1);
  disk->lose_power(rng);
  REQUIRE(write_text(root / "c", "text", true));
  disk->flip_bit("c", 0);
  CHECK(text_in(root / "c") != "text");
}

}  // namespace of_simulated_disk_test
