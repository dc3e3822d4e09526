// The disk of this machine: what is written is read, and nothing below a confined folder leads out of it.
#include "transport/base/own_disk.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_own_disk_test {

using namespace atl;
namespace fs = std::filesystem;

namespace {

Status write_text(const DiskPath& path, std::string_view text) {
  ATOLL_ASSIGN(const std::unique_ptr<DiskFile> file, path.open(OpenFor::creating));
  ATOLL_TRY(file->write(0, as_bytes(text)));
  return file->sync();
}

std::string text_in(const DiskPath& path) {
  const auto file = path.open(OpenFor::reading).value();
  return std::string(as_text(file->map()->bytes));
}

std::vector<std::string> names_in(const DiskPath& folder) {
  std::vector<std::string> names;
  for (const DiskEntry& entry : folder.list().value()) {
    names.push_back(entry.name);
  }
  return names;
}

}  // namespace

TEST_CASE("own disk: files and folders are made, listed, renamed, exchanged and removed") {
  const atl_test::TemporaryFolder folder;
  for (const DiskPath& root : {confined_to(folder.path() / "confined").value(), on_this_machine(folder.path() / "machine")}) {
    INFO(root.text());
    REQUIRE((root / "a/b").make_folders());
    REQUIRE((root / "a/b").make_folders());
    REQUIRE(write_text(root / "a/one", "1"));
    REQUIRE(write_text(root / "a/b/two", "22"));
    CHECK(names_in(root / "a") == std::vector<std::string>{"b", "one"});
    CHECK((root / "a/b/two").look()->bytes == 2);
    CHECK((root / "a/b").look()->kind == EntryKind::folder);
    CHECK((root / "a").sync_folder());
    REQUIRE((root / "a/one").rename_to(root / "three"));
    CHECK_FALSE((root / "a/one").exists());
    CHECK(text_in(root / "three") == "1");
    CHECK((root / "a").exchange_with(root / "gone").error().code == Code::not_found);
    REQUIRE(write_text(root / "four", "4"));
    REQUIRE((root / "three").exchange_with(root / "four"));
    CHECK(text_in(root / "three") == "4");
    CHECK((root / "a").remove());
    CHECK((root / "a").remove());
    CHECK(names_in(root) == std::vector<std::string>{"four", "three"});
    CHECK((root / "a").open(OpenFor::reading).error().code == Code::not_found);
    CHECK((root / "a/b").list().error().code == Code::not_found);
  }
}

TEST_CASE("own disk: a file is written and read anywhere, grows and shrinks, and stays readable once removed") {
  const atl_test::TemporaryFolder folder;
  const DiskPath path = confined_to(folder.path()).value() / "file";
  const auto file = path.open(OpenFor::writing).value();
  REQUIRE(file->write(3, as_bytes("def")));
  REQUIRE(file->write(0, as_bytes("abc")));
  CHECK(file->size().value() == 6);
  CHECK(path.open(OpenFor::writing).value()->size().value() == 6);
  std::vector<std::byte> into(10);
  CHECK(file->read(4, into).value() == 2);
  CHECK(file->resize(2));
  REQUIRE(path.remove());
  CHECK(file->read(0, into).value() == 2);
  CHECK(path.open(OpenFor::creating).value()->map()->bytes.empty());
}

TEST_CASE("own disk: no path and no link leads out of a confined folder") {
  const atl_test::TemporaryFolder folder;
  folder.write("outside/secret", "s");
  const fs::path inside = folder.path() / "inside";
  const DiskPath root = confined_to(inside).value();
  REQUIRE((root / "run").make_folders());
  fs::create_symlink(folder.path() / "outside", inside / "absolute");
  fs::create_directory_symlink("../outside", inside / "relative");
  fs::create_symlink("../outside/secret", inside / "file");
  for (const std::string& name : {(folder.path() / "outside").string(), std::string("../outside"), std::string("run/../../outside"),
                                  std::string("absolute"), std::string("relative"), std::string("run/..")}) {
    INFO(name);
    CHECK_FALSE((root / name).list());
    CHECK_FALSE((root / name / "secret").open(OpenFor::reading));
    CHECK_FALSE((root / name / "new").open(OpenFor::creating));
    CHECK_FALSE((root / name / "new").make_folders());
    CHECK_FALSE((root / name / "secret").remove());
    CHECK_FALSE((root / name / "secret").rename_to(root / "taken"));
    CHECK_FALSE((root / "run").rename_to(root / name / "moved"));
  }
  CHECK_FALSE((root / "file").open(OpenFor::reading));
  CHECK_FALSE((root / "file").open(OpenFor::creating));
  CHECK((root / "..").remove().error().code == Code::io);
  CHECK((root).remove().error().code == Code::io);
  CHECK((root / "relative").remove());  // the link, not what it leads to
  CHECK((root / "absolute").remove());
  CHECK(text_in(on_this_machine(folder.path() / "outside/secret")) == "s");
  CHECK(fs::exists(inside / "run"));
}

TEST_CASE("own disk: what is no regular file is refused and not waited for") {
  const atl_test::TemporaryFolder folder;
  const DiskPath root = confined_to(folder.path()).value();
  REQUIRE(::mkfifo((folder.path() / "pipe").c_str(), 0600) == 0);
  for (const OpenFor purpose : {OpenFor::reading, OpenFor::writing, OpenFor::creating}) {
    CHECK((root / "pipe").open(purpose).error().code == Code::io);
    CHECK_FALSE(root.open(purpose));
  }
  CHECK(root.list()->front().kind == EntryKind::other);
}

}  // namespace of_own_disk_test
