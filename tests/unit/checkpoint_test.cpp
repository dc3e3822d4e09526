// Checkpoints: written whole or not at all, refused when a bit flipped, pruned without losing the only good one.
#include "agent/storage/checkpoint.hpp"

#include <signal.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/catch.hpp"
#include "tests/skip.hpp"
#include "tests/temporary_folder.hpp"
#include "transport/base/log.hpp"
#include "transport/base/own_disk.hpp"

namespace of_checkpoint_test {

using namespace atl;
namespace fs = std::filesystem;

namespace {

Digest digest_of(std::uint64_t round) {
  Digest digest;
  digest.bytes[0] = static_cast<std::byte>(round);
  digest.bytes[31] = std::byte{7};
  return digest;
}

// Writes the checkpoint of a round whose every value is the round's number.
Result<CheckpointMeta> write(CheckpointStore& store, std::uint64_t round, std::size_t values = 500) {
  ATOLL_ASSIGN(const DiskPath begun, store.begin(Round(round)));
  const fs::path partial = begun.text();
  fs::create_directories(partial / kTrainerFolder);
  std::ofstream(partial / kTrainerFolder / "optimizer.bin") << "state of " << round;
  const std::vector<float> floats(values, static_cast<float>(round));
  ATOLL_ASSIGN([[maybe_unused]] const FileFacts facts,
               store.write_outer(Round(round), {{"w", {values}, floats}, {"momentum/w", {values}, floats}},
                                 outer_metadata(RunId("r-1"), Round(round), digest_of(round), RunSpec(), "[]")));
  CheckpointMeta meta;
  meta.run = RunId("r-1");
  meta.round = Round(round);
  meta.epoch = Epoch(2);
  meta.digest = digest_of(round);
  meta.step = Step(round * 10);
  meta.position = round * 1000;
  return store.finish(meta);
}

// That the newest good checkpoint is complete and that of one round.
Round check_readable(const fs::path& folder) {
  CheckpointStore store = CheckpointStore::open(confined_to(folder).value()).value();
  const std::optional<CheckpointMeta> meta = store.newest_good();
  REQUIRE(meta.has_value());
  CHECK(meta->digest == digest_of(meta->round.value));
  CHECK(meta->step.value == meta->round.value * 10);
  SafetensorsFile file = SafetensorsFile::open(store.folder_of(meta->round) / kOuterFile).value();
  CHECK(file.floats("w")->back() == static_cast<float>(meta->round.value));
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    CHECK_FALSE(entry.path().filename().string().starts_with("."));
  }
  return meta->round;
}

struct LogLines {
  std::vector<std::string> lines;
  LogLines() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      if (level >= LogLevel::warning) {
        lines.emplace_back(line);
      }
    });
  }
  ~LogLines() { set_log_sink({}); }
};

void flip_bit(const fs::path& path, std::size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char c = static_cast<char>(file.get() ^ 1);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(c);
}

}  // namespace

TEST_CASE("checkpoint: what was written is what is read") {
  atl_test::TemporaryFolder folder;
  CheckpointStore store = CheckpointStore::open(confined_to(folder.path() / "checkpoints").value()).value();
  CHECK_FALSE(store.newest_good().has_value());
  REQUIRE(write(store, 3).has_value());
  const CheckpointMeta meta = store.verify(Round(3)).value();
  CHECK(meta.run == RunId("r-1"));
  CHECK(meta.epoch == Epoch(2));
  CHECK(meta.position == 3000);
  CHECK(meta.has_trainer_state());
  CHECK(meta.files.size() == 2);
  CHECK(meta.outer()->bytes == (store.folder_of(Round(3)) / kOuterFile).look()->bytes);
  CHECK(store.verify(Round(4)).error().code == Code::not_found);
  CHECK(check_readable(store.folder().text()) == Round(3));
}

TEST_CASE("checkpoint: a flipped bit anywhere is refused with a warning, and the next older one is taken") {
  for (const std::string& name : {std::string(kOuterFile), std::string("meta.json"), std::string("trainer/optimizer.bin")}) {
    atl_test::TemporaryFolder folder;
    CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
    REQUIRE(write(store, 1, 20).has_value());
    REQUIRE(write(store, 2, 20).has_value());
    const fs::path victim = (store.folder_of(Round(2)) / name).text();
    const std::size_t size = static_cast<std::size_t>(fs::file_size(victim));
    for (std::size_t at = 0; at < size - (name == "meta.json" ? 1 : 0); at += 1 + size / 40) {
      INFO(name << " byte " << at);
      flip_bit(victim, at);
      LogLines log;
      CHECK(check_readable(folder.path()) == Round(1));
      REQUIRE(log.lines.size() == 1);
      CHECK(log.lines[0].find("round 2 is refused") != std::string::npos);
      flip_bit(victim, at);
    }
    CHECK(check_readable(folder.path()) == Round(2));
  }
}

TEST_CASE("checkpoint: pruning keeps the newest, those needed, and the only good one") {
  atl_test::TemporaryFolder folder;
  CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
  for (std::uint64_t round = 1; round <= 6; ++round) {
    REQUIRE(write(store, round, 10).has_value());
  }
  store.prune(2, {Round(3)});
  std::vector<std::uint64_t> left;
  for (const CheckpointMeta& meta : store.list()) {
    left.push_back(meta.round.value);
  }
  CHECK(left == std::vector<std::uint64_t>{6, 5, 3});

  flip_bit((store.folder_of(Round(6)) / kOuterFile).text(), 30);
  flip_bit((store.folder_of(Round(5)) / kOuterFile).text(), 30);
  LogLines log;
  CheckpointStore again = CheckpointStore::open(confined_to(folder.path()).value()).value();
  again.prune(1);  // nothing is verified yet: nothing is removed
  CHECK(again.list().size() == 3);
  CHECK(again.newest_good()->round == Round(3));
  again.prune(1);
  REQUIRE(again.list().size() == 1);
  CHECK(again.list()[0].round == Round(3));
}

TEST_CASE("checkpoint: one of the same round is replaced in one step") {
  atl_test::TemporaryFolder folder;
  CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
  REQUIRE(write(store, 1, 10).has_value());
  REQUIRE(write(store, 1, 30).has_value());
  CHECK(SafetensorsFile::open(store.folder_of(Round(1)) / kOuterFile)->floats("w")->size() == 30);
  CHECK(check_readable(folder.path()) == Round(1));
}

TEST_CASE("checkpoint: a meta.json that names files outside is refused") {
  atl_test::TemporaryFolder folder;
  folder.write("5/meta.json", R"({"schema":1})");
  folder.write("6/meta.json", "not json");
  fs::create_directories(folder.path() / "7");
  LogLines log;
  CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
  CHECK(store.list().empty());
  CHECK_FALSE(store.newest_good().has_value());
  CHECK(log.lines.size() == 3);
}

// The child is stopped at each of its system calls in turn and killed there: whatever the instant, a good one is left.
TEST_CASE("checkpoint: a meta.json that nests without end is refused, not a stack overflow") {
  atl_test::TemporaryFolder folder;
  const std::string deep(1'000'000, '[');
  const std::string closed(1'000'000, ']');
  for (const std::string& content : {deep, "{\"sha256\": \"" + std::string(64, '0') + "\", \"x\": " + deep + closed + "}"}) {
    folder.write("1/meta.json", content);
    const CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
    CHECK(store.list().empty());
    CHECK(store.verify(Round(1)).error().code == Code::corrupt);
  }
}

TEST_CASE("checkpoint: a kill at any system call leaves a readable one") {
  bool finished = false;
  int killed = 0;
  for (int calls = 1; !finished; ++calls) {
    atl_test::TemporaryFolder folder;
    {
      CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
      REQUIRE(write(store, 1, 100).has_value());
      REQUIRE(write(store, 2, 100).has_value());
    }
    const pid_t child = ::fork();
    if (child == 0) {
      ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      ::raise(SIGSTOP);
      Result<CheckpointStore> store = CheckpointStore::open(confined_to(folder.path()).value());
      if (store && store->newest_good() && write(*store, 3, 100) && write(*store, 2, 100)) {
        store->prune(1);
      }
      ::_exit(0);
    }
    REQUIRE(child > 0);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (!WIFSTOPPED(status)) {
      ATL_SKIP("ptrace is not permitted here");
    }
    for (int i = 0; i < calls && !finished; ++i) {
      if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
        ATL_SKIP("ptrace is not permitted here");
      }
      ::waitpid(child, &status, 0);
      finished = WIFEXITED(status);
    }
    if (!finished) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      ++killed;
    }
    INFO("killed after " << calls << " stops at system calls");
    const Round newest = check_readable(folder.path());
    CHECK((newest == Round(2) || newest == Round(3)));
  }
  CHECK(killed > 100);
}

TEST_CASE("checkpoint: a file size limit is a clear error and the older one stays good") {
  atl_test::TemporaryFolder folder;
  {
    CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
    REQUIRE(write(store, 1, 100).has_value());
  }
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    CheckpointStore store = CheckpointStore::open(confined_to(folder.path()).value()).value();
    const Result<CheckpointMeta> written = write(store, 2, 5000);
    const bool clear = !written && written.error().code == Code::io && written.error().why.find("outer.safetensors") != std::string::npos;
    store.abandon(Round(2));
    const bool again = write(store, 3, 100).has_value();
    ::_exit(clear && again ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(check_readable(folder.path()) == Round(3));
}

TEST_CASE("checkpoint: a full disk is a clear error and the older one stays good") {
  atl_test::TemporaryFolder folder;
  const fs::path disk = folder.path() / "disk";
  fs::create_directories(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k") != 0) {
    ATL_SKIP("no small tmpfs can be mounted here (not root)");
  }
  {
    CheckpointStore store = CheckpointStore::open(confined_to(disk).value()).value();
    CHECK(write(store, 1, 5000).has_value());
    const Result<CheckpointMeta> full = write(store, 2, 50000);
    REQUIRE_FALSE(full.has_value());
    CHECK(full.error().code == Code::io);
    CHECK(full.error().why.find("free some space") != std::string::npos);
    store.abandon(Round(2));
    CHECK(check_readable(disk) == Round(1));
    CHECK(write(store, 3, 5000).has_value());
  }
  CHECK(::umount(disk.c_str()) == 0);
}

}  // namespace of_checkpoint_test
