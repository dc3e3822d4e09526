// OutputFile: what is written where a user says.
#include "transport/base/output_file.hpp"

#include <sys/stat.h>

#include <fstream>
#include <set>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/full_disk.hpp"
#include "tests/special_files.hpp"
#include "tests/temporary_folder.hpp"

namespace of_output_file_test {

using namespace atl;
namespace fs = std::filesystem;

namespace {

Status write_text(const fs::path& path, std::string_view text, OutputFile::Stopped stopped = {}) {
  ATOLL_ASSIGN(OutputFile file, OutputFile::create(path, std::move(stopped)));
  ATOLL_TRY(file.write(as_bytes(text)));
  return file.finish();
}

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

TEST_CASE("a regular file is replaced as a whole and keeps its rights") {
  const atl_test::TemporaryFolder folder;
  const fs::path path = folder.write("file", "old");
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  std::ifstream reader(path);
  {
    OutputFile file = OutputFile::create(path).value();
    REQUIRE(file.write(as_bytes("new")));
    CHECK(text_of(path) == "old");
    REQUIRE(file.finish());
  }
  CHECK(text_of(path) == "new");
  CHECK(fs::status(path).permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  std::string before;
  reader >> before;
  CHECK(before == "old");
  CHECK(names_in(folder.path()) == std::set<std::string>{"file"});
}

TEST_CASE("a file that is not finished leaves what was there") {
  const atl_test::TemporaryFolder folder;
  const fs::path path = folder.write("file", "old");
  {
    OutputFile file = OutputFile::create(path).value();
    REQUIRE(file.write(as_bytes("new")));
  }
  CHECK(text_of(path) == "old");
  const atl_test::FullDisk full(1000);
  const Status failed = write_text(path, std::string(2000, 'x'));
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Code::io);
  CHECK(failed.error().why.find("file: cannot be written: File too large") != std::string::npos);
  CHECK(text_of(path) == "old");
  CHECK(names_in(folder.path()) == std::set<std::string>{"file"});
}

TEST_CASE("links are followed and stay") {
  const atl_test::TemporaryFolder folder;
  const fs::path target = folder.write("there/file", "old");
  fs::create_symlink("there/file", folder.path() / "link");
  fs::create_symlink("link", folder.path() / "second");
  CHECK(write_text(folder.path() / "second", "new"));
  CHECK(fs::is_symlink(folder.path() / "second"));
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(text_of(target) == "new");
  fs::create_symlink("there/none", folder.path() / "dangling");
  CHECK(write_text(folder.path() / "dangling", "made"));
  CHECK(fs::is_symlink(folder.path() / "dangling"));
  CHECK(text_of(folder.path() / "there/none") == "made");
  fs::create_symlink("circle", folder.path() / "circle");
  CHECK_FALSE(write_text(folder.path() / "circle", "x"));
  CHECK(fs::is_symlink(folder.path() / "circle"));
}

TEST_CASE("a folder is refused, and so is a file in a folder that is not there") {
  const atl_test::TemporaryFolder folder;
  fs::create_directory(folder.path() / "sub");
  fs::create_directory_symlink("sub", folder.path() / "link");
  for (const fs::path& path : {folder.path(), folder.path() / "sub", folder.path() / "link", folder.path() / "new" / "", fs::path("."),
                               fs::path("/"), fs::path("")}) {
    INFO(path.string());
    REQUIRE_FALSE(OutputFile::check(path));
    CHECK(OutputFile::check(path).error().code == Code::invalid_argument);
    CHECK_FALSE(write_text(path, "x"));
  }
  const Status nowhere = OutputFile::check(folder.path() / "none" / "file");
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().code == Code::invalid_argument);
  CHECK(nowhere.error().why.find("make it first") != std::string::npos);
  CHECK(names_in(folder.path()) == std::set<std::string>{"link", "sub"});
  CHECK(fs::is_empty(folder.path() / "sub"));
}

TEST_CASE("a FIFO is written through, however slow its reader") {
  const atl_test::TemporaryFolder folder;
  atl_test::ReadFifo fifo(folder.path() / "fifo");
  const std::string text(1 << 20, 'x');
  CHECK(write_text(folder.path() / "fifo", text));
  CHECK(fifo.content() == text);
  CHECK(fs::is_fifo(folder.path() / "fifo"));
}

TEST_CASE("a FIFO that nobody reads is waited for until the user ends it") {
  const atl_test::TemporaryFolder folder;
  REQUIRE(::mkfifo((folder.path() / "fifo").c_str(), 0600) == 0);
  int asked = 0;
  const Status stopped = write_text(folder.path() / "fifo", "x", [&] { return ++asked == 3; });
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().code == Code::cancelled);
  CHECK(fs::is_fifo(folder.path() / "fifo"));
}

TEST_CASE("a FIFO whose reader goes away is an error, not the end of the process") {
  const atl_test::TemporaryFolder folder;
  const fs::path path = folder.path() / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  OutputFile file = OutputFile::create(path).value();
  CHECK(file.write(as_bytes("x")));
  ::close(reader);
  const Status failed = file.write(as_bytes("y"));
  REQUIRE_FALSE(failed);
  CHECK(failed.error().why.find("Broken pipe") != std::string::npos);
}

TEST_CASE("a device is written through and stays one, and a full one is an error") {
  const atl_test::TemporaryFolder folder;
  const fs::path null = atl_test::make_null_device(folder.path() / "null");
  const fs::path full = atl_test::make_full_device(folder.path() / "full");
  fs::create_symlink("null", folder.path() / "link");
  CHECK(write_text(null, "x"));
  CHECK(write_text(folder.path() / "link", "x"));
  const Status failed = write_text(full, "x");
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == Code::io);
  CHECK(failed.error().why == full.string() + ": cannot be written: No space left on device; free some space");
  CHECK(fs::is_character_file(null));
  CHECK(fs::is_character_file(full));
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(names_in(folder.path()) == std::set<std::string>{"full", "link", "null"});
}

TEST_CASE("what an open file's link leads to is added to, under whatever name it lies") {
  const atl_test::TemporaryFolder folder;
  const fs::path path = folder.write("file", "first ");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  CHECK(write_text("/proc/self/fd/" + std::to_string(fd), "second"));
  CHECK(text_of(path) == "first second");
  fs::remove(path);
  CHECK(write_text("/proc/self/fd/" + std::to_string(fd), "third"));
  CHECK(names_in(folder.path()).empty());
  ::close(fd);
}

TEST_CASE("a file of a bare name lies in the folder that the process works in") {
  CHECK(folder_of("file") == ".");
  CHECK(folder_of("a/file") == "a");
  CHECK(folder_of("/file") == "/");
}

}  // namespace of_output_file_test
