// Where commands write what `-o` names.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/storage/durable_file.hpp"
#include "agent/storage/safetensors.hpp"
#include "coordinator/ledger/durable_file.hpp"
#include "tests/catch.hpp"
#include "tests/cli/served_model.hpp"
#include "tests/full_disk.hpp"
#include "tests/places.hpp"
#include "tests/special_files.hpp"
#include "tests/temporary_files_in.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/own_disk.hpp"
#include "transport/identity/sha256.hpp"

namespace of_output_path_test {

using namespace atl;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// While it lives, the process works in this folder.
class WorkingIn {
 public:
  explicit WorkingIn(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  WorkingIn(const WorkingIn&) = delete;
  WorkingIn& operator=(const WorkingIn&) = delete;
  ~WorkingIn() { fs::current_path(before_); }

 private:
  fs::path before_;
};

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

}  // namespace

TEST_CASE("a file is written under a bare name, in the folder that one stands in") {
  const atl_test::TemporaryFolder folder;
  const WorkingIn inside(folder.path());
  ServedModel served;
  const Called exported = served.call({"export", "text", "-o", "model.safetensors"});
  INFO(exported.err);
  CHECK(exported.exit == 0);
  CHECK(SafetensorsFile::open(folder.path() / "model.safetensors"));
  const Called traced = served.call({"trace", "text", "-o", "trace.json"});
  INFO(traced.err);
  CHECK(traced.exit == 0);
  CHECK(names_in(folder.path()) == std::set<std::string>{"model.safetensors", "trace.json"});
}

TEST_CASE("the state of a coordinator and its backup may lie under bare names") {
  const atl_test::TemporaryFolder folder;
  const WorkingIn inside(folder.path());
  CHECK(call({"coordinator", "init", "--state", "state", "--bind", "tcp://127.0.0.1:7400"}).exit == 0);
  const Called backed_up = call({"coordinator", "backup", "copy", "--state", "state"});
  INFO(backed_up.err);
  // Before a coordinator ran there is no ledger to copy.
  CHECK((backed_up.exit == 0 || backed_up.err.find("there is no coordinator in state") != std::string::npos));
  CHECK(call({"runs", "--key", "state/keys/operator"}).exit == 3);
}

TEST_CASE("what is written durably may have a bare name") {
  const atl_test::TemporaryFolder folder;
  const WorkingIn inside(folder.path());
  CHECK(replace_file(on_this_machine("note"), as_bytes("a")));
  CHECK(rename_durably(on_this_machine("note"), on_this_machine("renamed")));
  CHECK(coordinator::write_durable("settings", "b"));
  CHECK(names_in(folder.path()) == std::set<std::string>{"renamed", "settings"});
}

TEST_CASE("export and trace write through what is no regular file") {
  const atl_test::TemporaryFolder folder;
  const atl_test::TemporaryFolder scratch;
  ServedModel served;
  const atl_test::TemporaryFilesIn inside(scratch.path());
  {
    const fs::path null = atl_test::make_null_device(folder.path() / "null");
    CHECK(served.call({"export", "text", "-o", null.string()}).exit == 0);
    CHECK(served.call({"trace", "text", "-o", null.string()}).exit == 0);
    CHECK(fs::is_character_file(null));
  }
  {
    const fs::path full = atl_test::make_full_device(folder.path() / "full");
    for (const char* command : {"export", "trace"}) {
      const Called called = served.call({command, "text", "-o", full.string()});
      CHECK(called.exit != 0);
      CHECK(called.err.find("No space left on device") != std::string::npos);
    }
    CHECK(fs::is_character_file(full));
  }
  {
    atl_test::ReadFifo fifo(folder.path() / "fifo");
    CHECK(served.call({"export", "text", "-o", (folder.path() / "fifo").string()}).exit == 0);
    folder.write("copy", fifo.content());
    CHECK(SafetensorsFile::open(folder.path() / "copy"));
  }
  {
    atl_test::ReadFifo fifo(folder.path() / "second");
    CHECK(served.call({"trace", "text", "-o", (folder.path() / "second").string()}).exit == 0);
    CHECK(json::parse(fifo.content()).is_object());
  }
  fs::create_symlink("there", folder.path() / "link");
  CHECK(served.call({"export", "text", "-o", (folder.path() / "link").string()}).exit == 0);
  CHECK(fs::is_symlink(folder.path() / "link"));
  CHECK(SafetensorsFile::open(folder.path() / "there"));
  CHECK(names_in(folder.path()) == std::set<std::string>{"copy", "fifo", "full", "link", "null", "second", "there"});
  CHECK(fs::is_empty(scratch.path()));
}

TEST_CASE("a folder for a file is refused before anybody is asked") {
  const atl_test::TemporaryFolder folder;
  ServedModel served;
  for (const char* command : {"export", "trace"}) {
    const Called called = served.call({command, "text", "-o", folder.path().string()});
    CHECK(called.exit == 2);
    CHECK(called.err.find("is a folder; give the name of a file in it") != std::string::npos);
  }
  CHECK(served.coordinator().asked("export").empty());
  CHECK(served.coordinator().asked("spans").empty());
  const Called sampled = served.call({"sample", "text", "-o", folder.path().string()});
  CHECK(sampled.exit == 2);
  CHECK(served.coordinator().asked("status").size() == 1);  // export's
  CHECK(served.call({"export", "text", "-o", (folder.path() / "none" / "model").string()}).exit == 2);
}

TEST_CASE("local refuses what it cannot write at the end before it trains") {
  const atl_test::TemporaryFolder folder;
  const std::string file = atl_test::source_folder() + "/examples/quickstart.toml";
  const Called called = call({"local", file, "--state", (folder.path() / "state").string(), "--export", folder.path().string()});
  CHECK(called.exit == 2);
  CHECK(called.err.find("--export: " + folder.path().string() + ": is a folder") != std::string::npos);
  CHECK_FALSE(fs::exists(folder.path() / "state"));
}

TEST_CASE("an export that fails leaves what was there") {
  const atl_test::TemporaryFolder folder;
  const atl_test::TemporaryFolder scratch;
  ServedModel served;
  const atl_test::TemporaryFilesIn inside(scratch.path());
  const fs::path path = folder.write("model", "old");
  {
    const atl_test::FullDisk full(100);
    CHECK(served.call({"export", "text", "-o", path.string()}).exit != 0);
    CHECK(served.call({"trace", "text", "-o", path.string()}).exit != 0);
  }
  CHECK(fs::file_size(path) == 3);
  CHECK(names_in(folder.path()) == std::set<std::string>{"model"});
}

TEST_CASE("ensemble.json names only files beside it") {
  const atl_test::TemporaryFolder folder;
  const fs::path zero = atl_test::make_zero_device(folder.path() / "zero");
  folder.write("outside", "x");
  const std::string sha256 = to_hex(sha256_of_file(folder.path() / "outside").value());
  const auto sample = [&](const std::string& file) {
    folder.write("ensemble/ensemble.json",
                 json{{"format", "atoll-ensemble"}, {"run", "r-1"}, {"experts", {{{"file", file}, {"sha256", sha256}}}}}.dump());
    return call({"sample", (folder.path() / "ensemble").string(), "-o", (folder.path() / "out.png").string()});
  };
  for (const std::string& file : {std::string("/dev/zero"), std::string("../outside"), (folder.path() / "outside").string(),
                                  std::string("experts/../../outside"), std::string(""), std::string("..")}) {
    const Called called = sample(file);
    INFO(file);
    CHECK(called.exit != 0);
    CHECK(called.err.find("does not lie beside it") != std::string::npos);
  }
  // Nor is a device or a FIFO read that lies beside it.
  fs::rename(zero, folder.path() / "ensemble/zero");
  REQUIRE(::mkfifo((folder.path() / "ensemble/fifo").c_str(), 0600) == 0);
  for (const char* file : {"zero", "fifo"}) {
    const Called called = sample(file);
    CHECK(called.exit != 0);
    CHECK(called.err.find("not a regular file") != std::string::npos);
  }
  CHECK_FALSE(fs::exists(folder.path() / "out.png"));
}

TEST_CASE("a backup overwrites nothing, not even a link to nothing") {
  const atl_test::TemporaryFolder folder;
  const WorkingIn inside(folder.path());
  REQUIRE(call({"coordinator", "init", "--state", "state", "--bind", "tcp://127.0.0.1:7400"}).exit == 0);
  folder.write("state/ledger.db", "");
  fs::create_symlink("nothing", "copy");
  CHECK(call({"coordinator", "backup", "copy", "--state", "state"}).exit == 8);
  CHECK(fs::is_symlink("copy"));
  CHECK_FALSE(fs::exists("nothing"));
}

}  // namespace of_output_path_test
