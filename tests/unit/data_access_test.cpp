// What an owner allowed, and everything a run file may try beyond it.
#include "agent/service/data_access.hpp"

#include "tests/catch.hpp"
#include "tests/temporary_folder.hpp"

namespace of_data_access_test {

using namespace atl;
namespace fs = std::filesystem;

namespace {

Result<fs::path> no_download(const std::string&, const std::string&) { return Error{Code::internal, "no download was expected"}; }

DataSpec files(std::vector<std::string> names) {
  DataSpec spec;
  spec.files = std::move(names);
  return spec;
}

DataSpec set(const std::string& name) {
  DataSpec spec;
  spec.set = name;
  return spec;
}

std::vector<std::string> names(const Result<std::vector<fs::path>>& found, const fs::path& root) {
  REQUIRE(found.has_value());
  std::vector<std::string> result;
  for (const fs::path& path : *found) {
    result.push_back(path.lexically_relative(root).generic_string());
  }
  return result;
}

}  // namespace

TEST_CASE("data: a mapped set is a file, a folder or a glob") {
  atl_test::TemporaryFolder folder;
  folder.write("text/a.txt", "a");
  folder.write("text/deep/b.txt", "b");
  folder.write("text/deep/c.bin", "c");
  folder.write("text/.hidden", "h");
  DataPermissions permissions;
  REQUIRE(add_data_mapping(permissions, "all=" + (folder.path() / "text").string()).ok());
  REQUIRE(add_data_mapping(permissions, "one=" + (folder.path() / "text/a.txt").string()).ok());
  REQUIRE(add_data_mapping(permissions, "txt=" + (folder.path() / "text/**/*.txt").string()).ok());
  REQUIRE(add_data_mapping(permissions, "flat=" + (folder.path() / "t?xt/*.txt").string()).ok());
  using Names = std::vector<std::string>;
  CHECK(names(resolve_data(set("all"), permissions, no_download), folder.path()) ==
        Names{"text/a.txt", "text/deep/b.txt", "text/deep/c.bin"});
  CHECK(names(resolve_data(set("one"), permissions, no_download), folder.path()) == Names{"text/a.txt"});
  CHECK(names(resolve_data(set("txt"), permissions, no_download), folder.path()) == Names{"text/a.txt", "text/deep/b.txt"});
  CHECK(names(resolve_data(set("flat"), permissions, no_download), folder.path()) == Names{"text/a.txt"});

  const Error unmapped = resolve_data(set("corpus"), permissions, no_download).error();
  CHECK(unmapped.code == Code::unauthorized);
  CHECK(unmapped.why.find("--data corpus=PATH") != std::string::npos);
}

TEST_CASE("data: mappings are checked") {
  DataPermissions permissions;
  for (const char* bad : {"", "corpus", "=x", "corpus="}) {
    CHECK(add_data_mapping(permissions, bad).error().code == Code::invalid_argument);
  }
  REQUIRE(add_data_mapping(permissions, "a=x").ok());
  CHECK(add_data_mapping(permissions, "a=y").error().code == Code::invalid_argument);
}

TEST_CASE("data: a run file gets nothing that was not allowed") {
  atl_test::TemporaryFolder folder;
  folder.write("open/a.txt", "a");
  const fs::path secret = folder.write("secret/key.txt", "k");
  folder.write("open/deep/x.txt", "x");
  fs::create_symlink(secret, folder.path() / "open/link.txt");
  fs::create_directory_symlink(folder.path() / "secret", folder.path() / "open/folder");
  fs::create_directory_symlink(folder.path() / "open", folder.path() / "door");
  folder.write("open-not/b.txt", "b");
  DataPermissions permissions;
  permissions.folders = {folder.path() / "open"};
  const std::string root = folder.path().string();

  CHECK(resolve_data(files({root + "/open/a.txt"}), permissions, no_download).has_value());
  CHECK(resolve_data(files({root + "/open/../open/a.txt"}), permissions, no_download).has_value());
  CHECK(resolve_data(files({root + "/door/a.txt"}), permissions, no_download).has_value());
  for (const std::string& asked :
       {root + "/secret/key.txt", root + "/open/link.txt", root + "/open/../secret/key.txt", root + "/open/folder/key.txt",
        root + "/open/*.txt", root + "/open/*/key.txt", root + "/open/*/../../secret/*", root + "/open-not/b.txt", root + "/*/a.txt",
        root + "/absent/x", std::string("/etc/passwd"), std::string("/proc/self/environ")}) {
    INFO(asked);
    const auto found = resolve_data(files({asked}), permissions, no_download);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Code::unauthorized);
    CHECK(found.error().why.find("--allow-data") != std::string::npos);
  }
  CHECK(resolve_data(files({root + "/open/absent.txt"}), permissions, no_download).error().code == Code::not_found);
  CHECK(resolve_data(files({root + "/open/a.txt", root + "/secret/key.txt"}), permissions, no_download).error().code == Code::unauthorized);
  CHECK(resolve_data(files({root + "/open/a.txt"}), DataPermissions{}, no_download).error().code == Code::unauthorized);
}

TEST_CASE("data: a link inside a mapped folder does not lead out of it") {
  atl_test::TemporaryFolder folder;
  folder.write("set/a.txt", "a");
  fs::create_symlink(folder.write("secret/key.txt", "k"), folder.path() / "set/link.txt");
  DataPermissions permissions;
  REQUIRE(add_data_mapping(permissions, "corpus=" + (folder.path() / "set").string()).ok());
  CHECK(resolve_data(set("corpus"), permissions, no_download).error().code == Code::unauthorized);
  permissions.folders = {folder.path() / "secret"};
  CHECK(resolve_data(set("corpus"), permissions, no_download).has_value());
}

TEST_CASE("data: a loop of links ends") {
  atl_test::TemporaryFolder folder;
  folder.write("a/x.txt", "x");
  fs::create_directory_symlink(folder.path(), folder.path() / "a/up");
  fs::create_directory_symlink(folder.path() / "a", folder.path() / "a/self");
  CHECK(expand_files(folder.path().string())->size() == 1);
  CHECK(expand_files((folder.path() / "**/*.txt").string())->size() == 1);
}

TEST_CASE("data: a url goes through the downloader with its digest") {
  DataSpec spec;
  spec.url = "https://example.org/text";
  spec.sha256 = "00";
  const auto found = resolve_data(spec, {}, [](const std::string& url, const std::string& sha256) -> Result<fs::path> {
    CHECK(url == "https://example.org/text");
    CHECK(sha256 == "00");
    return fs::path("/cache/x");
  });
  REQUIRE(found.has_value());
  CHECK(found->front() == "/cache/x");
}

}  // namespace of_data_access_test
