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
  fs::create_directory(folder.path() / "open" / "empty");
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
  // What is missing is not made up for by what is there.
  for (const std::string& absent : {root + "/open/absent.txt", root + "/open/*.bin", root + "/open/empty"}) {
    for (const std::vector<std::string>& asked : {std::vector{root + "/open/a.txt", absent}, {absent, root + "/open/a.txt"}}) {
      const Error missing = resolve_data(files(asked), permissions, no_download).error();
      CHECK(missing.code == Code::not_found);
      CHECK(missing.why == "no files are at '" + absent + "'");
    }
  }
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

TEST_CASE("data: a link to a folder is followed, and the files keep the names by which they were found") {
  atl_test::TemporaryFolder folder;
  folder.write("set/cats/1.png", "c");
  folder.write("set/.store/dogs/1.png", "d");
  folder.write("set/.store/blobs/b1", "e");
  fs::create_directory_symlink(".store/dogs", folder.path() / "set/dogs");
  fs::create_directories(folder.path() / "set/eels");
  fs::create_symlink("../.store/blobs/b1", folder.path() / "set/eels/1.png");
  using Names = std::vector<std::string>;
  const Names all = {"set/cats/1.png", "set/dogs/1.png", "set/eels/1.png"};
  const fs::path set_folder = folder.path() / "set";
  DataPermissions permissions;
  REQUIRE(add_data_mapping(permissions, "pets=" + set_folder.string()).ok());
  CHECK(names(resolve_data(set("pets"), permissions, no_download), folder.path()) == all);
  permissions.folders = {set_folder};
  CHECK(names(resolve_data(files({set_folder.string()}), permissions, no_download), folder.path()) == all);
  CHECK(names(resolve_data(files({set_folder.string() + "/**/*.png"}), permissions, no_download), folder.path()) == all);
  CHECK(names(resolve_data(files({set_folder.string() + "/*/*.png"}), permissions, no_download), folder.path()) == all);
  CHECK(names(expand_files(set_folder.string()), folder.path()) == all);
  // A link without its folder is data that are missing, and not none.
  fs::create_directory_symlink("nowhere", set_folder / "foxes");
  const Error gone = resolve_data(set("pets"), permissions, no_download).error();
  CHECK(gone.code == Code::not_found);
  CHECK(gone.why.find("set/foxes' is a link to 'nowhere', which is not there") != std::string::npos);
}

TEST_CASE("data: a link to a folder leads nowhere that is not allowed, and is not looked into before that is known") {
  atl_test::TemporaryFolder folder;
  folder.write("set/cats/1.png", "c");
  folder.write("elsewhere/dogs/1.png", "d");
  fs::create_directory_symlink(folder.path() / "elsewhere/dogs", folder.path() / "set/dogs");
  const std::string root = (folder.path() / "set").string();
  DataPermissions permissions;
  REQUIRE(add_data_mapping(permissions, "pets=" + root).ok());
  permissions.folders = {root};
  for (const DataSpec& asked :
       {set("pets"), files({root}), files({root + "/**"}), files({root + "/*/*.png"}), files({root + "/dogs/1.png"})}) {
    const auto found = resolve_data(asked, permissions, no_download);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Code::unauthorized);
    CHECK(found.error().why.find("--allow-data " + (folder.path() / "elsewhere/dogs").string()) != std::string::npos);
  }
  permissions.folders.push_back(folder.path() / "elsewhere/dogs");  // the advice
  CHECK(resolve_data(set("pets"), permissions, no_download)->size() == 2);
  CHECK(resolve_data(files({root}), permissions, no_download)->size() == 2);
  // A link to everything is refused at once.
  atl_test::TemporaryFolder other;
  other.write("a.txt", "a");
  fs::create_directory_symlink("/", other.path() / "all");
  DataPermissions mapped;
  REQUIRE(add_data_mapping(mapped, "x=" + other.path().string()).ok());
  CHECK(resolve_data(set("x"), mapped, no_download).error().code == Code::unauthorized);
}

TEST_CASE("data: folders that link to one another are each walked once") {
  atl_test::TemporaryFolder folder;
  for (int i = 0; i < 12; ++i) {
    const std::string name = "f" + std::to_string(i);
    folder.write(name + "/x.txt", "x");
    for (int j = 0; j < 12; ++j) {
      fs::create_directory_symlink("../f" + std::to_string(j), folder.path() / name / ("to" + std::to_string(j)));
    }
  }
  std::string deep = folder.path().string();
  CHECK(expand_files(deep)->size() == 12);
  CHECK(expand_files(deep + "/**/*.txt")->size() == 12);
  for (int i = 0; i < 40; ++i) {
    deep += "/*";
  }
  CHECK(expand_files(deep)->size() == 12);
  // The real folder gives the name, not the link to it.
  fs::create_directory_symlink("f0", folder.path() / "alias");
  using Names = std::vector<std::string>;
  CHECK(names(expand_files(folder.path().string()), folder.path()).front() == "f0/x.txt");
  folder.write("plain/x.txt", "x");
  fs::create_directory_symlink("plain", folder.path() / "named");
  CHECK(names(expand_files((folder.path() / "named").string()), folder.path()) == Names{"named/x.txt"});
  // A folder that was named allows itself, not what lies beside it.
  CHECK(expand_files((folder.path() / "alias").string()).error().code == Code::unauthorized);
}

TEST_CASE("data: a path that exists is that path, whatever is in its name") {
  atl_test::TemporaryFolder folder;
  folder.write("photos [2024]/a.png", "a");
  folder.write("photos [2024]/what?.png", "q");
  folder.write("photos [2024]/whatx.png", "x");
  folder.write("photos 2/a.png", "b");
  folder.write("base [v2].safetensors", "m");
  folder.write("star/*/a.png", "s");
  folder.write("star/b/a.png", "t");
  const std::string root = folder.path().string();
  using Names = std::vector<std::string>;
  DataPermissions permissions;
  REQUIRE(add_data_mapping(permissions, "photos=" + root + "/photos [2024]").ok());
  CHECK(names(resolve_data(set("photos"), permissions, no_download), folder.path()) ==
        Names{"photos [2024]/a.png", "photos [2024]/what?.png", "photos [2024]/whatx.png"});
  // The owner allowed this folder alone; what is below it may be a pattern still.
  permissions.folders = {root + "/photos [2024]", root + "/base [v2].safetensors"};
  CHECK(names(resolve_data(files({root + "/photos [2024]"}), permissions, no_download), folder.path()).size() == 3);
  CHECK(names(resolve_data(files({root + "/photos [2024]/what?.png"}), permissions, no_download), folder.path()) ==
        Names{"photos [2024]/what?.png"});
  CHECK(names(resolve_data(files({root + "/photos [2024]/wha??.png"}), permissions, no_download), folder.path()) ==
        Names{"photos [2024]/what?.png", "photos [2024]/whatx.png"});
  CHECK(names(resolve_data(files({root + "/base [v2].safetensors"}), permissions, no_download), folder.path()) ==
        Names{"base [v2].safetensors"});
  CHECK(names(expand_files(root + "/star/*/a.png"), folder.path()) == Names{"star/*/a.png"});
  CHECK(names(expand_files(root + "/photos [0-9]/a.png"), folder.path()) == Names{"photos 2/a.png"});
  // Whether something exists is not told to who may not look there: both are refused in the same words.
  const auto asked = [&](const std::string& name) {
    std::string why = resolve_data(files({root + "/star/" + name}), permissions, no_download).error().why;
    why.replace(why.find(name), name.size(), "NAME");
    return why;
  };
  CHECK(asked("[x]/a.png") == asked("[y]/a.png"));
  folder.write("star/[x]/a.png", "u");
  CHECK(asked("[x]/a.png") == asked("[y]/a.png"));
}

TEST_CASE("data: a file that is a link out of what is allowed says what to allow, and that is enough") {
  atl_test::TemporaryFolder folder;
  const std::string cache = folder.path().string() + "/models--base";
  folder.write("models--base/blobs/9a3f", "m");
  fs::create_directories(cache + "/snapshots/main");
  fs::create_symlink("../../blobs/9a3f", cache + "/snapshots/main/model.safetensors");
  DataPermissions permissions;
  permissions.folders = {cache + "/snapshots/main"};
  const DataSpec asked = files({cache + "/snapshots/main/model.safetensors"});
  const Error refused = resolve_data(asked, permissions, no_download).error();
  CHECK(refused.code == Code::unauthorized);
  CHECK(refused.why.find("model.safetensors' is a link to '" + cache + "/blobs/9a3f'") != std::string::npos);
  CHECK(refused.why.find("--allow-data " + cache + "/blobs") != std::string::npos);
  permissions.folders.push_back(cache + "/blobs");
  CHECK(resolve_data(asked, permissions, no_download).has_value());
  // A link that leads nowhere is that, and nothing to be allowed.
  fs::create_symlink("../../blobs/0000", cache + "/snapshots/main/gone.safetensors");
  CHECK(resolve_data(files({cache + "/snapshots/main/gone.safetensors"}), permissions, no_download).error().code == Code::not_found);
}

TEST_CASE("data: a folder with training and validation shards is not trained on as a whole") {
  atl_test::TemporaryFolder folder;
  for (const char* name : {"train.bin", "val.bin", "fine/fineweb_train_000001.bin", "fine/fineweb_val_000000.bin", "one/validation.bin",
                           "two/training-data.bin", "two/values.bin", "pets/train/cats/1.png", "pets/val/cats/1.png"}) {
    folder.write(name, "aabb");
  }
  const std::string root = folder.path().string();
  DataPermissions permissions;
  permissions.folders = {root};
  const auto read = [&](std::vector<std::string> asked, DataReader reader) {
    const DataSpec spec = files(std::move(asked));
    return resolve_data(spec, permissions, no_download, reader);
  };
  const DataReader built_in = DataReader::built_in;
  for (const std::string& name : {root, root + "/*.bin", root + "/fine", root + "/fine/*.bin", root + "/pets", root + "/**/1.png"}) {
    INFO(name);
    const auto found = read({name}, built_in);
    REQUIRE_FALSE(found.has_value());
    CHECK(found.error().code == Code::invalid_argument);
    CHECK(found.error().why.find("lies beside") != std::string::npos);
  }
  // Files that are named one by one are meant, and a trainer of one's own knows what its files are for.
  CHECK(read({root + "/train.bin", root + "/val.bin"}, built_in)->size() == 2);
  CHECK(read({root + "/fine/*train*.bin"}, built_in)->size() == 1);
  CHECK(read({root + "/one"}, built_in)->size() == 1);
  CHECK(read({root + "/two"}, built_in)->size() == 2);
  CHECK(read({root + "/pets/train"}, built_in)->size() == 1);
  CHECK(read({root + "/pets", root + "/fine"}, DataReader::own)->size() == 4);
}

TEST_CASE("data: what a path stands for is listed with sizes") {
  atl_test::TemporaryFolder folder;
  folder.write("a.txt", std::string(1500, 'a'));
  folder.write("b.txt", "b");
  CHECK(listing_of(*expand_files(folder.path().string())) == "2 files of 1.5 kB: a.txt 1.5 kB, b.txt 1 B");
  CHECK(listing_of(*expand_files((folder.path() / "b*").string())) == "1 file of 1 B: b.txt 1 B");
  CHECK(base_of_pattern("/srv/text/*.txt") == "/srv/text");
  folder.write("x [1]/a.txt", "a");
  CHECK(base_of_pattern((folder.path() / "x [1]/*.txt").string()) == folder.path() / "x [1]");
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
