// What lies below a folder is opened alike by the kernel's call and by a walk in its place, and by neither does a path lead out.
#include "transport/base/beneath.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "tests/refused_calls.hpp"
#include "tests/skip.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"

namespace of_beneath_test {

using namespace atl;
namespace fs = std::filesystem;

namespace {

// What was opened, or why it was not, as text.
std::string outcome(Beneath way, int folder, const std::string& path, int flags) {
  const FileDescriptor opened = open_beneath(way, folder, path, flags | O_CLOEXEC, 0644);
  if (!opened.is_open()) {
    return std::strerror(errno);
  }
  struct stat facts {};
  return ::fstat(opened.get(), &facts) == 0 ? std::to_string(facts.st_ino) + " " + std::to_string(facts.st_mode) : "no facts";
}

// inside/ with folders, files, and links of every kind; outside/ beside it.
fs::path make_tree(const atl_test::TemporaryFolder& folder) {
  folder.write("outside/secret", "s");
  folder.write("inside/a/b/file", "f");
  folder.write("inside/top", "t");
  const fs::path inside = folder.path() / "inside";
  const std::vector<std::pair<std::string, std::string>> links = {{"to_file", "a/b/file"},
                                                                  {"to_folder", "a/b"},
                                                                  {"to_link", "to_folder/../../to_file"},
                                                                  {"a/up", "../top"},
                                                                  {"a/b/out", "../../../outside"},
                                                                  {"a/b/around", "../../../inside/top"},
                                                                  {"absolute", (folder.path() / "outside").string()},
                                                                  {"absolute_here", (inside / "top").string()},
                                                                  {"nowhere", "gone"},
                                                                  {"a/b/round", "round"},
                                                                  {"slash", "a/b/"},
                                                                  {"root", "/"},
                                                                  {"itself", "."}};
  for (const auto& [name, text] : links) {
    fs::create_symlink(text, inside / name);
  }
  return inside;
}

const std::vector<std::string> kPaths = {".",
                                         "",
                                         "..",
                                         "a",
                                         "a/",
                                         "a/.",
                                         "a/..",
                                         "a/../top",
                                         "a/../../inside/top",
                                         "top",
                                         "top/",
                                         "top/x",
                                         "top/..",
                                         "gone",
                                         "gone/x",
                                         "to_file",
                                         "to_file/",
                                         "to_file/x",
                                         "to_folder",
                                         "to_folder/file",
                                         "to_link",
                                         "a/up",
                                         "a/up/",
                                         "a/b/out",
                                         "a/b/out/secret",
                                         "a/b/around",
                                         "absolute",
                                         "absolute/secret",
                                         "absolute_here",
                                         "nowhere",
                                         "nowhere/x",
                                         "a/b/round",
                                         "a/b/round/x",
                                         "slash",
                                         "slash/file",
                                         "slash/../up",
                                         "root",
                                         "root/etc",
                                         "itself",
                                         "itself/itself/a",
                                         "/",
                                         "/etc",
                                         "a//b///file",
                                         "./a/./b/file",
                                         "../inside/top"};

}  // namespace

TEST_CASE("beneath: a walk opens what the kernel's call opens, and fails as it fails") {
  const atl_test::TemporaryFolder folder;
  const FileDescriptor inside(::open(make_tree(folder).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (way_beneath(inside.get()) == Beneath::by_walk) {
    ATL_SKIP("this kernel has no openat2");
  }
  for (const int flags :
       {O_RDONLY, O_PATH, O_PATH | O_DIRECTORY, O_RDONLY | O_DIRECTORY, O_RDWR, O_PATH | O_NOFOLLOW, O_RDONLY | O_NOFOLLOW}) {
    for (const std::string& path : kPaths) {
      INFO(path << " with flags " << flags);
      CHECK(outcome(Beneath::by_walk, inside.get(), path, flags) == outcome(Beneath::by_kernel, inside.get(), path, flags));
    }
  }
}

TEST_CASE("beneath: files are made inside only, through links, too") {
  for (const Beneath way : {Beneath::by_walk, Beneath::by_kernel}) {
    const atl_test::TemporaryFolder folder;
    const fs::path tree = make_tree(folder);
    const FileDescriptor inside(::open(tree.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (way == Beneath::by_kernel && way_beneath(inside.get()) != way) {
      continue;
    }
    CHECK(open_beneath(way, inside.get(), "a/new", O_RDWR | O_CREAT | O_CLOEXEC, 0600).is_open());
    CHECK(open_beneath(way, inside.get(), "nowhere", O_RDWR | O_CREAT | O_CLOEXEC, 0600).is_open());
    CHECK(fs::exists(tree / "gone"));
    CHECK((fs::status(tree / "a/new").permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
    for (const std::string path : {"a/b/out/new", "absolute/new", "../new", "a/../../outside/new"}) {
      INFO(path);
      CHECK_FALSE(open_beneath(way, inside.get(), path, O_RDWR | O_CREAT | O_CLOEXEC, 0600).is_open());
      CHECK(errno == EXDEV);
    }
    CHECK_FALSE(fs::exists(folder.path() / "outside/new"));
    CHECK_FALSE(open_beneath(way, inside.get(), "to_file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600).is_open());
    CHECK(errno == EEXIST);
  }
}

TEST_CASE("beneath: a folder that is exchanged for a link to outside again and again never lets a walk out") {
  const atl_test::TemporaryFolder folder;
  const fs::path tree = make_tree(folder);
  folder.write("inside/turning/secret", "mine");
  fs::create_symlink("../outside", tree / "other");
  const FileDescriptor inside(::open(tree.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat secret {};
  REQUIRE(::stat((folder.path() / "outside/secret").c_str(), &secret) == 0);
  std::atomic<bool> enough = false;
  std::thread turner([&] {
    while (!enough) {
      ::renameat2(inside.get(), "turning", inside.get(), "other", RENAME_EXCHANGE);
    }
  });
  int found = 0;
  int out = 0;
  for (int i = 0; i < 20'000; ++i) {
    const FileDescriptor opened = open_beneath(Beneath::by_walk, inside.get(), "turning/secret", O_RDONLY | O_CLOEXEC, 0);
    struct stat facts {};
    if (opened.is_open() && ::fstat(opened.get(), &facts) == 0) {
      ++found;
      out += facts.st_ino == secret.st_ino && facts.st_dev == secret.st_dev ? 1 : 0;
    }
  }
  enough = true;
  turner.join();
  CHECK(out == 0);
  CHECK(found > 0);
}

TEST_CASE("beneath: files are confined to a folder where openat2 is missing or refused") {
  for (const int number : {ENOSYS, EPERM}) {
    const atl_test::TemporaryFolder folder;
    const fs::path tree = make_tree(folder);
    const int code = atl_test::exit_code_without({SYS_openat2}, number, [&] {
      const auto root = confined_to(tree);
      const bool works = root && (*root / "run/1").make_folders() && (*root / "to_folder/file").look() && (*root / "a").list();
      const bool leads_out =
          root && ((*root / "a/b/out/secret").look() || (*root / "absolute").list() || (*root / "a/b/out/new").open(OpenFor::creating));
      return works && !leads_out ? 0 : works ? 1 : 2;
    });
    if (code == atl_test::kNoFilters) {
      ATL_SKIP("this system has no seccomp filters");
    }
    INFO(std::strerror(number));
    CHECK(code == 0);
    CHECK(fs::exists(tree / "run/1"));
    CHECK_FALSE(fs::exists(folder.path() / "outside/new"));
  }
}

}  // namespace of_beneath_test
